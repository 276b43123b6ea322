// SPDX-License-Identifier: MIT OR Apache-2.0
// DPDK's rte_fib and rte_fib6 on the routes and keys that `lookup_rate write FOLDER` made. It reads
// `pass ENGINE TRAFFIC` from standard input and answers with one JSON line: nanoseconds per lookup
// of one pass over all keys in batches, and how many answers of a pass before it were wrong.
#include <errno.h>
#include <inttypes.h>
#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_memory.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define BATCH 256
#define TBL8_V4 4096
#define TBL8_V6 (1 << 18)

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

struct traffic {
	char name[64];
	void *keys;
	uint16_t *answers;
	size_t count;
};

static const char *folder;
static struct traffic traffics[16];
static struct rte_fib *fib;
static struct rte_fib6 *fib6;

static void die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

// A whole file, in memory that asks for huge pages as the keys of the other process do.
static void *read_file(const char *name, const char *ending, size_t *bytes)
{
	char path[4096];
	FILE *file;
	void *data;

	snprintf(path, sizeof(path), "%s/%s%s", folder, name, ending);
	file = fopen(path, "rb");
	if (!file)
		return NULL;
	fseek(file, 0, SEEK_END);
	*bytes = ftell(file);
	rewind(file);
	data = aligned_alloc(2 << 20, (*bytes + (2 << 20)) & ~(size_t)((2 << 20) - 1));
	if (!data)
		die("no memory for %s", path);
	madvise(data, *bytes, MADV_HUGEPAGE);
	if (fread(data, 1, *bytes, file) != *bytes)
		die("cannot read %s", path);
	fclose(file);
	return data;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static void build4(void)
{
	struct rte_fib_conf conf = {
		.type = RTE_FIB_DIR24_8,
		.max_routes = 2000000,
		.dir24_8 = { .nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = TBL8_V4 },
	};
	size_t bytes;
	struct route4 *routes = read_file("v4", ".routes", &bytes);

	if (!routes)
		return;
	fib = rte_fib_create("v4", SOCKET_ID_ANY, &conf);
	if (!fib)
		die("rte_fib_create: %s", rte_strerror(rte_errno));
	for (size_t i = 0; i < bytes / sizeof(*routes); i++)
		if (rte_fib_add(fib, routes[i].address, routes[i].len, routes[i].hop))
			die("rte_fib_add refused route %zu", i);
	free(routes);
}

static void build6(void)
{
	struct rte_fib6_conf conf = {
		.type = RTE_FIB6_TRIE,
		.max_routes = 400000,
		.trie = { .nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = TBL8_V6 },
	};
	size_t bytes;
	struct route6 *routes = read_file("v6", ".routes", &bytes);

	if (!routes)
		return;
	fib6 = rte_fib6_create("v6", SOCKET_ID_ANY, &conf);
	if (!fib6)
		die("rte_fib6_create: %s", rte_strerror(rte_errno));
	for (size_t i = 0; i < bytes / sizeof(*routes); i++)
		if (rte_fib6_add(fib6, routes[i].address, routes[i].len, routes[i].hop))
			die("rte_fib6_add refused route %zu", i);
	free(routes);
}

// The engine is chosen once a pass; nothing else is in the loop.
static bool choose(const char *engine, bool *six)
{
	*six = !strncmp(engine, "fib6", 4);
	if (!strcmp(engine, "fib-2b-scalar"))
		return fib && !rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);
	if (!strcmp(engine, "fib-2b-avx512"))
		return fib && !rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512);
	if (!strcmp(engine, "fib6-4b-scalar"))
		return fib6 && !rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_TRIE_SCALAR);
	if (!strcmp(engine, "fib6-4b-avx512"))
		return fib6 && !rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512);
	return false;
}

static struct traffic *find(const char *name)
{
	size_t bytes;
	struct traffic *t = traffics;

	for (; t->name[0]; t++)
		if (!strcmp(t->name, name))
			return t;
	if (t + 1 == traffics + RTE_DIM(traffics))
		return NULL;
	t->answers = read_file(name, ".answers", &bytes);
	t->count = bytes / sizeof(uint16_t);
	t->keys = read_file(name, ".keys", &bytes);
	if (!t->keys || !t->answers)
		return NULL;
	snprintf(t->name, sizeof(t->name), "%s", name);
	return t;
}

static void look_up(const struct traffic *t, bool six, size_t at, uint64_t *hops)
{
	if (six)
		rte_fib6_lookup_bulk(fib6, (uint8_t(*)[16])t->keys + at, hops, BATCH);
	else
		rte_fib_lookup_bulk(fib, (uint32_t *)t->keys + at, hops, BATCH);
}

static void pass(const char *engine, const char *name)
{
	uint64_t hops[BATCH];
	size_t wrong = 0, count;
	struct traffic *t = find(name);
	double start;
	bool six;

	if (!t || !choose(engine, &six)) {
		printf("{\"error\":\"no %s or no %s\"}\n", engine, name);
		return;
	}
	count = t->count / BATCH * BATCH;
	for (size_t i = 0; i < count; i += BATCH) {
		look_up(t, six, i, hops);
		for (int j = 0; j < BATCH; j++)
			wrong += hops[j] != t->answers[i + j];
	}
	start = seconds();
	for (size_t i = 0; i < count; i += BATCH) {
		look_up(t, six, i, hops);
		asm volatile("" ::"r"(hops) : "memory");
	}
	printf("{\"engine\":\"%s\",\"traffic\":\"%s\",\"ns\":%.4f,\"wrong\":%zu}\n", engine, name,
	       (seconds() - start) * 1e9 / count, wrong);
}

int main(int argc, char **argv)
{
	char line[256], engine[64], traffic[64];
	bool huge = argc > 2 && !strcmp(argv[2], "huge");
	// Vectors of 512 bits are refused without this.
	char *eal[] = { argv[0], huge ? "--in-memory" : "--no-shconf", "--no-pci", "--log-level=3",
			"--force-max-simd-bitwidth=512",
			huge ? "--single-file-segments" : "--no-huge", "-m1300", "-l1" };

	if (argc < 2)
		die("usage: lpm FOLDER [huge]");
	folder = argv[1];
	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		die("rte_eal_init: %s (huge pages: sysctl vm.nr_hugepages=700)",
		    rte_strerror(rte_errno));
	build4();
	build6();
	printf("{\"ready\":\"DPDK\",\"pages\":\"%s\"}\n", huge ? "2 MiB" : "4 KiB");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "pass %63s %63s", engine, traffic) != 2)
			die("write: pass ENGINE TRAFFIC");
		pass(engine, traffic);
		fflush(stdout);
	}
	return 0;
}
