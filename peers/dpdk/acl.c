// SPDX-License-Identifier: MIT OR Apache-2.0
// DPDK's rte_acl as a peer: a process that answers each JSON line on standard input with one on
// standard output. docs/src/router-designs.md describes requests and files. The engine is
// `rte_acl`, which takes the fastest level of instructions on the first keys, or `rte_acl-LEVEL`.

#include <rte_acl.h>

#include "line.h"

struct key {
	uint8_t protocol;
	uint8_t padding[3];
	uint32_t source, destination;
	uint16_t source_port, destination_port;
};

RTE_ACL_RULE_DEF(five_tuple, 5);

static const struct {
	const char *name;
	enum rte_acl_classify_alg alg;
} levels[] = {
	{ "scalar", RTE_ACL_CLASSIFY_SCALAR },	     { "sse", RTE_ACL_CLASSIFY_SSE },
	{ "avx2", RTE_ACL_CLASSIFY_AVX2 },	     { "avx512x16", RTE_ACL_CLASSIFY_AVX512X16 },
	{ "avx512x32", RTE_ACL_CLASSIFY_AVX512X32 },
};
#define LEVELS (sizeof(levels) / sizeof(levels[0]))

static uint32_t address(const unsigned int *octets)
{
	return octets[0] << 24 | octets[1] << 16 | octets[2] << 8 | octets[3];
}

static struct five_tuple *read_rules(const char *path, uint32_t *count)
{
	FILE *file = fopen(path, "r");
	struct five_tuple *rules = NULL;
	char line[512];
	uint32_t room = 0;

	*count = 0;
	if (!file)
		return NULL;
	while (fgets(line, sizeof(line), file)) {
		unsigned int s[4], d[4], ports[4], lengths[2], protocol, mask;

		if (sscanf(line, "@%u.%u.%u.%u/%u %u.%u.%u.%u/%u %u : %u %u : %u %x/%x", &s[0],
			   &s[1], &s[2], &s[3], &lengths[0], &d[0], &d[1], &d[2], &d[3],
			   &lengths[1], &ports[0], &ports[1], &ports[2], &ports[3], &protocol,
			   &mask) != 16)
			continue;
		if (*count == room) {
			room = room ? 2 * room : 1024;
			rules = realloc(rules, room * sizeof(*rules));
			if (!rules)
				break;
		}
		struct five_tuple *rule = &rules[(*count)++];

		memset(rule, 0, sizeof(*rule));
		rule->data.category_mask = 1;
		rule->data.userdata = *count;
		rule->field[0].value.u8 = protocol;
		rule->field[0].mask_range.u8 = mask;
		rule->field[1].value.u32 = address(s);
		rule->field[1].mask_range.u32 = lengths[0];
		rule->field[2].value.u32 = address(d);
		rule->field[2].mask_range.u32 = lengths[1];
		rule->field[3].value.u16 = ports[0];
		rule->field[3].mask_range.u16 = ports[1];
		rule->field[4].value.u16 = ports[2];
		rule->field[4].mask_range.u16 = ports[3];
	}
	fclose(file);
	for (uint32_t i = 0; i < *count; i++)
		rules[i].data.priority = *count - i;
	return rules;
}

static void define(struct rte_acl_config *config, int field, uint8_t type, uint8_t size,
		   uint8_t input, uint32_t offset)
{
	config->defs[field].type = type;
	config->defs[field].size = size;
	config->defs[field].field_index = field;
	config->defs[field].input_index = input;
	config->defs[field].offset = offset;
}

// Builds the context; returns NULL when rte_acl refuses the rules.
static struct rte_acl_ctx *build(const struct five_tuple *rules, uint32_t count)
{
	struct rte_acl_param param = { .name = "peer",
				       .socket_id = -1,
				       .rule_size = RTE_ACL_RULE_SZ(5),
				       .max_rule_num = count + 1 };
	struct rte_acl_config config = { .num_categories = 1, .num_fields = 5 };
	struct rte_acl_ctx *made = rte_acl_create(&param);

	define(&config, 0, RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, offsetof(struct key, protocol));
	define(&config, 1, RTE_ACL_FIELD_TYPE_MASK, 4, 1, offsetof(struct key, source));
	define(&config, 2, RTE_ACL_FIELD_TYPE_MASK, 4, 2, offsetof(struct key, destination));
	define(&config, 3, RTE_ACL_FIELD_TYPE_RANGE, 2, 3, offsetof(struct key, source_port));
	define(&config, 4, RTE_ACL_FIELD_TYPE_RANGE, 2, 3, offsetof(struct key, destination_port));
	if (made && !rte_acl_add_rules(made, (const struct rte_acl_rule *)rules, count) &&
	    !rte_acl_build(made, &config))
		return made;
	rte_acl_free(made);
	return NULL;
}

static struct rte_acl_ctx *context;
// Chosen by name, or when the first keys come.
static const char *level;
static enum rte_acl_classify_alg alg;

static bool choose(const char *name)
{
	for (size_t i = 0; i < LEVELS; i++)
		if (!strcmp(levels[i].name, name) &&
		    !rte_acl_set_ctx_classify(context, levels[i].alg)) {
			level = levels[i].name;
			alg = levels[i].alg;
			return true;
		}
	return false;
}

static void load(const char *line)
{
	char name[64], path[4096];
	struct five_tuple *rules;
	uint32_t count;
	size_t before;
	double start;

	if (!text(line, "engine", name, sizeof(name)) || !text(line, "table", path, sizeof(path)))
		return refuse("load needs engine and table");
	rules = read_rules(path, &count);
	if (!rules)
		return refuse("no rules in %s", path);
	rte_acl_free(context);
	level = NULL;
	before = heap();
	start = seconds();
	context = build(rules, count);
	start = seconds() - start;
	free(rules);
	if (!context)
		return refuse("rte_acl refuses the rules, or has not the memory for them");
	if (strcmp(name, "rte_acl") && !(!strncmp(name, "rte_acl-", 8) && choose(name + 8)))
		return refuse("this machine has no engine %s", name);
	printf("{\"build_s\":%.4f,\"mib\":%.2f}\n", start, (heap() - before) / 1048576.0);
}

struct set {
	struct key *keys;
	uint32_t *answers;
	size_t count, answered;
};

// The keys and answers of a request, of which those of the last one are still there.
static struct set *find_set(const char *line)
{
	static char last[4096];
	static struct set set;
	char keys[4096], answers[4096];
	size_t bytes = 0, answered = 0;

	if (!text(line, "keys", keys, sizeof(keys)) ||
	    !text(line, "answers", answers, sizeof(answers)))
		return NULL;
	if (same(last, keys, sizeof(last)) && set.keys)
		return &set;
	free(set.keys);
	free(set.answers);
	set.keys = read_file(keys, &bytes);
	set.answers = read_file(answers, &answered);
	set.count = bytes / sizeof(struct key);
	set.answered = answered / sizeof(uint32_t);
	return set.keys && set.answers && set.count ? &set : NULL;
}

static void classify(const struct set *set, size_t at, uint32_t *found)
{
	const uint8_t *data[BATCH];
	size_t n = RTE_MIN(set->count - at, (size_t)BATCH);

	for (size_t j = 0; j < n; j++)
		data[j] = (const uint8_t *)(set->keys + at + j);
	rte_acl_classify_alg(context, data, found, n, 1, alg);
}

// Nanoseconds a key of one or more whole passes.
static double timed(const struct set *set, double for_s, uint64_t *lookups)
{
	double start = seconds(), took;
	uint32_t found[BATCH];

	*lookups = 0;
	do {
		for (size_t i = 0; i < set->count; i += BATCH) {
			classify(set, i, found);
			asm volatile("" ::"r"(found) : "memory");
		}
		*lookups += set->count;
		took = seconds() - start;
	} while (took < for_s);
	return took * 1e9 / *lookups;
}

static void choose_fastest(const struct set *set)
{
	double least = 1e30;
	const char *best = NULL;
	uint64_t lookups;

	for (size_t i = 0; i < LEVELS; i++) {
		if (!choose(levels[i].name))
			continue;
		for (int again = 0; again < 3; again++) {
			double ns = timed(set, 0, &lookups);

			if (ns < least) {
				least = ns;
				best = levels[i].name;
			}
		}
	}
	choose(best);
}

// One pass that warms the caches and is checked, then timed ones. An answer is the rule's number,
// counted from 1, and 0 for none.
static void pass(const char *line)
{
	uint64_t checksum = 0, wrong = 0, lookups;
	const struct set *set;
	uint32_t found[BATCH];
	double ns;

	if (!context)
		return refuse("load comes first");
	set = find_set(line);
	if (!set)
		return refuse("no keys, or no answers");
	if (!level)
		choose_fastest(set);
	for (size_t i = 0; i < set->count; i += BATCH) {
		classify(set, i, found);
		for (size_t j = i; j < i + BATCH && j < set->count; j++) {
			checksum += (j + 1) * found[j - i];
			wrong += j < set->answered && found[j - i] != set->answers[j];
		}
	}
	ns = timed(set, number(line, "ms", 0) / 1000, &lookups);
	printf("{\"ns\":%.4f,\"lookups\":%" PRIu64 ",\"wrong\":%" PRIu64 ",\"checksum\":%" PRIu64
	       ",\"simd\":\"%s\"}\n",
	       ns, lookups, wrong, checksum, level);
}

int main(int argc, char **argv)
{
	char line[16384], what[32];

	if (!start_eal(argc, argv))
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		if (text(line, "do", what, sizeof(what)) && !strcmp(what, "load"))
			load(line);
		else if (!strcmp(what, "pass"))
			pass(line);
		else
			refuse("do is load or pass");
		fflush(stdout);
	}
	rte_acl_free(context);
	return 0;
}
