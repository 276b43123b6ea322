// SPDX-License-Identifier: MIT OR Apache-2.0
// DPDK's rte_acl as a peer: its own process, which loads rules and keys once and answers a line on
// standard input with a JSON line on standard output.
//
//   acl RULES KEYS... [-- EAL ARGUMENTS]
//
// RULES is ClassBench text, each KEYS a file of 16-byte keys in network order (protocol, three bytes
// of padding, source, destination, source port, destination port). The first line out names the
// levels of instructions that work here; then "pass LEVEL SET" classifies a whole set once by one.

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_malloc.h>

#define BATCH 256
#define MAX_SETS 8

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

struct set {
	struct key *keys;
	size_t count;
};

static void die(const char *what)
{
	fprintf(stderr, "acl: %s\n", what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

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

	if (!file)
		die("cannot read the rules");
	*count = 0;
	while (fgets(line, sizeof(line), file)) {
		unsigned int s[4], d[4], ports[4], lengths[2], protocol, mask;

		if (sscanf(line,
			   "@%u.%u.%u.%u/%u %u.%u.%u.%u/%u %u : %u %u : %u %x/%x", &s[0], &s[1],
			   &s[2], &s[3], &lengths[0], &d[0], &d[1], &d[2], &d[3], &lengths[1],
			   &ports[0], &ports[1], &ports[2], &ports[3], &protocol, &mask) != 16)
			continue;
		if (*count == room) {
			room = room ? 2 * room : 1024;
			rules = realloc(rules, room * sizeof(*rules));
			if (!rules)
				die("no memory for the rules");
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

static struct set read_keys(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct set set = { 0 };
	size_t room = 1 << 20;

	if (!file)
		die("cannot read the keys");
	set.keys = malloc(room * sizeof(struct key));
	if (!set.keys)
		die("no memory for the keys");
	set.count = fread(set.keys, sizeof(struct key), room, file);
	fclose(file);
	return set;
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
	struct rte_acl_ctx *context = rte_acl_create(&param);

	define(&config, 0, RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, offsetof(struct key, protocol));
	define(&config, 1, RTE_ACL_FIELD_TYPE_MASK, 4, 1, offsetof(struct key, source));
	define(&config, 2, RTE_ACL_FIELD_TYPE_MASK, 4, 2, offsetof(struct key, destination));
	define(&config, 3, RTE_ACL_FIELD_TYPE_RANGE, 2, 3, offsetof(struct key, source_port));
	define(&config, 4, RTE_ACL_FIELD_TYPE_RANGE, 2, 3, offsetof(struct key, destination_port));
	if (!context || rte_acl_add_rules(context, (const struct rte_acl_rule *)rules, count) ||
	    rte_acl_build(context, &config))
		return NULL;
	return context;
}

// After a pass that warms the caches: nanoseconds for a key, and the sum of (position + 1) * (rule + 1) with 0 for no rule.
static void pass(struct rte_acl_ctx *context, enum rte_acl_classify_alg alg, const struct set *set)
{
	const uint8_t *data[BATCH];
	uint32_t found[BATCH];
	uint64_t checksum = 0;
	double time = 0;

	for (int timed = 0; timed < 2; timed++) {
		double start = now();

		for (size_t i = 0; i < set->count; i += BATCH) {
			size_t n = set->count - i < BATCH ? set->count - i : BATCH;

			for (size_t j = 0; j < n; j++)
				data[j] = (const uint8_t *)(set->keys + i + j);
			rte_acl_classify_alg(context, data, found, n, 1, alg);
			if (timed)
				__asm__ volatile("" ::"r"(found) : "memory");
			else
				for (size_t j = 0; j < n; j++)
					checksum += (i + j + 1) * found[j];
		}
		if (timed)
			time = now() - start;
	}
	printf("{\"ns\":%.4f,\"checksum\":%" PRIu64 "}\n", time * 1e9 / set->count, checksum);
	fflush(stdout);
}

static size_t heap(void)
{
	struct rte_malloc_socket_stats stats;

	return rte_malloc_get_socket_stats(0, &stats) ? 0 : stats.heap_allocsz_bytes;
}

int main(int argc, char **argv)
{
	static const char *const standard[] = { "acl",	      "--no-telemetry",
						"--no-pci",   "--log-level=3",
						"--in-memory", "--force-max-simd-bitwidth=512" };
	char *eal[32];
	int eals = 0, mine = 1;
	struct set sets[MAX_SETS];
	int count = 0;
	uint32_t rule_count;
	char line[64];

	while (mine < argc && strcmp(argv[mine], "--"))
		mine++;
	if (mine < 3 || mine - 2 > MAX_SETS)
		die("usage: acl RULES KEYS... [-- EAL ARGUMENTS]");
	for (size_t i = 0; i < sizeof(standard) / sizeof(standard[0]); i++)
		eal[eals++] = (char *)standard[i];
	for (int i = mine + 1; i < argc && eals < 31; i++)
		eal[eals++] = argv[i];
	if (rte_eal_init(eals, eal) < 0)
		die("EAL refused its arguments (huge pages? else -- --no-huge -m 1200)");

	struct five_tuple *rules = read_rules(argv[1], &rule_count);

	for (int i = 2; i < mine; i++)
		sets[count++] = read_keys(argv[i]);

	size_t before = heap();
	double start = now();
	struct rte_acl_ctx *context = build(rules, rule_count);
	double seconds = now() - start;

	if (!context)
		die("rte_acl refused the rules");
	printf("{\"rules\":%u,\"seconds\":%.4f,\"bytes\":%zu,\"levels\":[", rule_count, seconds,
	       heap() - before);
	const char *comma = "";
	for (size_t i = 0; i < LEVELS; i++) {
		if (rte_acl_set_ctx_classify(context, levels[i].alg))
			continue;
		printf("%s\"%s\"", comma, levels[i].name);
		comma = ",";
	}
	printf("]}\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		char name[32];
		int set;
		size_t level = 0;

		if (sscanf(line, "pass %31s %d", name, &set) != 2 || set < 0 || set >= count)
			die("a line is: pass LEVEL SET");
		while (level < LEVELS && strcmp(levels[level].name, name))
			level++;
		if (level == LEVELS)
			die("no such level");
		pass(context, levels[level].alg, &sets[set]);
	}
	return 0;
}
