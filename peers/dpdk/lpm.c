// SPDX-License-Identifier: MIT OR Apache-2.0
// DPDK's rte_lpm, rte_fib and rte_fib6 as a peer: a process that answers each JSON line on standard
// input with one on standard output. docs/src/router-designs.md describes requests and files.

#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>
#include <rte_vect.h>

#include "line.h"

#define TBL8_V4 4096
#define TBL8_V6 (1 << 18)
// Room that tables of routes want beyond their number.
#define SPARE_ROUTES 64

struct route4 {
	uint32_t address;
	uint8_t len, zero;
	uint16_t hop;
};

struct route6 {
	uint8_t address[16];
	uint8_t len, zero;
	uint16_t hop;
};

enum kind {
	LPM_BULK,
	LPM_X4,
	FIB,
	FIB6
};

static const struct engine {
	const char *name;
	enum kind kind;
	int width, lookup;
} engines[] = {
	{ "rte_lpm", LPM_BULK, 0, 0 },
	{ "rte_lpm-x4", LPM_X4, 0, 0 },
	{ "rte_fib", FIB, RTE_FIB_DIR24_8_2B, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512 },
	{ "rte_fib-scalar", FIB, RTE_FIB_DIR24_8_2B, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO },
	{ "rte_fib-4b", FIB, RTE_FIB_DIR24_8_4B, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512 },
	{ "rte_fib-4b-scalar", FIB, RTE_FIB_DIR24_8_4B, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO },
	{ "rte_fib6", FIB6, RTE_FIB6_TRIE_4B, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512 },
	{ "rte_fib6-scalar", FIB6, RTE_FIB6_TRIE_4B, RTE_FIB6_LOOKUP_TRIE_SCALAR },
};

static const struct engine *engine;
static struct rte_lpm *lpm;
static struct rte_fib *fib;
static struct rte_fib6 *fib6;

static void forget(void)
{
	rte_lpm_free(lpm);
	rte_fib_free(fib);
	rte_fib6_free(fib6);
	lpm = NULL;
	fib = NULL;
	fib6 = NULL;
}

static const char *build_lpm(const struct route4 *routes, size_t count)
{
	struct rte_lpm_config config = { .max_rules = count + SPARE_ROUTES,
					 .number_tbl8s = TBL8_V4 };

	lpm = rte_lpm_create("lpm", SOCKET_ID_ANY, &config);
	for (size_t i = 0; lpm && i < count; i++)
		if (rte_lpm_add(lpm, routes[i].address, routes[i].len, routes[i].hop))
			return "rte_lpm_add refuses a route";
	return lpm ? NULL : "rte_lpm_create refuses";
}

static const char *build_fib(const struct route4 *routes, size_t count)
{
	struct rte_fib_conf conf = {
		.type = RTE_FIB_DIR24_8,
		.max_routes = count + SPARE_ROUTES,
		.dir24_8 = { .nh_sz = engine->width, .num_tbl8 = TBL8_V4 },
	};

	fib = rte_fib_create("fib", SOCKET_ID_ANY, &conf);
	if (!fib)
		return "rte_fib_create refuses";
	if (rte_fib_select_lookup(fib, engine->lookup))
		return "this machine has no such lookup";
	for (size_t i = 0; i < count; i++)
		if (rte_fib_add(fib, routes[i].address, routes[i].len, routes[i].hop))
			return "rte_fib_add refuses a route";
	return NULL;
}

static const char *build_fib6(const struct route6 *routes, size_t count)
{
	struct rte_fib6_conf conf = {
		.type = RTE_FIB6_TRIE,
		.max_routes = count + SPARE_ROUTES,
		.trie = { .nh_sz = engine->width, .num_tbl8 = TBL8_V6 },
	};

	fib6 = rte_fib6_create("fib6", SOCKET_ID_ANY, &conf);
	if (!fib6)
		return "rte_fib6_create refuses";
	if (rte_fib6_select_lookup(fib6, engine->lookup))
		return "this machine has no such lookup";
	for (size_t i = 0; i < count; i++)
		if (rte_fib6_add(fib6, routes[i].address, routes[i].len, routes[i].hop))
			return "rte_fib6_add refuses a route";
	return NULL;
}

// The lookup table as reserved, without control structures and lists of rules.
static double table_mib(void)
{
	double top = 1 << 24, group = 256, mib = 1 << 20;
	double width;

	switch (engine->kind) {
	case LPM_BULK:
	case LPM_X4:
		return (top + TBL8_V4 * group) * 4 / mib;
	case FIB:
		width = 1 << engine->width;
		return (top + TBL8_V4 * group) * width / mib;
	default:
		return (top + TBL8_V6 * group) * 4 / mib;
	}
}

static void load(const char *line)
{
	char name[64], path[4096];
	const char *wrong;
	size_t bytes;
	void *routes;
	double start;

	if (!text(line, "engine", name, sizeof(name)) || !text(line, "table", path, sizeof(path)))
		return refuse("load needs engine and table");
	engine = NULL;
	for (size_t i = 0; i < RTE_DIM(engines); i++)
		if (!strcmp(engines[i].name, name))
			engine = &engines[i];
	routes = read_file(path, &bytes);
	if (!engine || !routes)
		return refuse("no engine %s, or no file %s", name, path);
	forget();
	start = seconds();
	if (engine->kind == FIB6)
		wrong = build_fib6(routes, bytes / sizeof(struct route6));
	else if (engine->kind == FIB)
		wrong = build_fib(routes, bytes / sizeof(struct route4));
	else
		wrong = build_lpm(routes, bytes / sizeof(struct route4));
	start = seconds() - start;
	free(routes);
	if (wrong) {
		engine = NULL;
		return refuse("%s", wrong);
	}
	printf("{\"build_s\":%.4f,\"mib\":%.2f}\n", start, table_mib());
}

// Answers as the engine gives them: 64 bits of the FIBs, 32 of rte_lpm.
union hops {
	uint64_t wide[BATCH];
	uint32_t narrow[BATCH];
};

static __rte_always_inline void look_up(enum kind kind, const void *keys, size_t at,
					union hops *hops)
{
	const uint32_t *addresses = (const uint32_t *)keys + at;

	switch (kind) {
	case LPM_BULK:
		rte_lpm_lookup_bulk(lpm, addresses, hops->narrow, BATCH);
		break;
	case LPM_X4:
		for (int i = 0; i < BATCH; i += 4)
			rte_lpm_lookupx4(lpm, _mm_loadu_si128((const void *)(addresses + i)),
					 hops->narrow + i, 0);
		break;
	case FIB:
		rte_fib_lookup_bulk(fib, (uint32_t *)addresses, hops->wide, BATCH);
		break;
	case FIB6:
		rte_fib6_lookup_bulk(fib6, (uint8_t(*)[16])keys + at, hops->wide, BATCH);
		break;
	}
}

static uint64_t answer(enum kind kind, const union hops *hops, int at)
{
	switch (kind) {
	case LPM_BULK:
		return hops->narrow[at] & RTE_LPM_LOOKUP_SUCCESS ? hops->narrow[at] & 0xffffff : 0;
	case LPM_X4:
		return hops->narrow[at];
	default:
		return hops->wide[at];
	}
}

struct set {
	void *keys;
	uint16_t *answers;
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
	set.count = bytes / (engine->kind == FIB6 ? 16 : 4) / BATCH * BATCH;
	set.answered = answered / sizeof(uint16_t);
	return set.keys && set.answers && set.count ? &set : NULL;
}

// One pass that warms the caches and is checked, then timed ones. Specialised by kind: nothing else
// is decided in its loop.
static __rte_always_inline void pass_by(enum kind kind, const struct set *set, double for_s)
{
	uint64_t checksum = 0, wrong = 0, lookups = 0;
	union hops hops;
	double start, took;

	for (size_t i = 0; i < set->count; i += BATCH) {
		look_up(kind, set->keys, i, &hops);
		for (int j = 0; j < BATCH; j++) {
			uint64_t hop = answer(kind, &hops, j);

			checksum += (i + j + 1) * hop;
			wrong += i + j < set->answered && hop != set->answers[i + j];
		}
	}
	start = seconds();
	do {
		for (size_t i = 0; i < set->count; i += BATCH) {
			look_up(kind, set->keys, i, &hops);
			asm volatile("" ::"r"(&hops) : "memory");
		}
		lookups += set->count;
		took = seconds() - start;
	} while (took < for_s);
	printf("{\"ns\":%.4f,\"lookups\":%" PRIu64 ",\"wrong\":%" PRIu64 ",\"checksum\":%" PRIu64
	       "}\n",
	       took * 1e9 / lookups, lookups, wrong, checksum);
}

static void pass(const char *line)
{
	double for_s = number(line, "ms", 0) / 1000;
	const struct set *set;

	if (!engine)
		return refuse("load comes first");
	set = find_set(line);
	if (!set)
		return refuse("no keys, or no answers");
	switch (engine->kind) {
	case LPM_BULK:
		return pass_by(LPM_BULK, set, for_s);
	case LPM_X4:
		return pass_by(LPM_X4, set, for_s);
	case FIB:
		return pass_by(FIB, set, for_s);
	case FIB6:
		return pass_by(FIB6, set, for_s);
	}
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
	forget();
	return 0;
}
