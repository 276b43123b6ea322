// SPDX-License-Identifier: MIT OR Apache-2.0
// What both DPDK peers share: fields of the flat JSON objects that requests are, files, the clock,
// and the environment abstraction layer (EAL) with its widest vectors.

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_version.h>

#define BATCH 256

// One answer line that says what went wrong; the process goes on.
static inline void refuse(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	printf("{\"error\":\"");
	vprintf(format, arguments);
	printf("\"}\n");
	va_end(arguments);
}

static inline const char *value_of(const char *line, const char *name)
{
	char wanted[64];
	const char *at;

	snprintf(wanted, sizeof(wanted), "\"%s\":", name);
	at = strstr(line, wanted);
	return at ? at + strlen(wanted) : NULL;
}

// Copies a field's text; names and paths here have no escapes.
static inline bool text(const char *line, const char *name, char *out, size_t room)
{
	const char *from = value_of(line, name), *end;

	if (!from || *from != '"')
		return false;
	end = strchr(++from, '"');
	if (!end || (size_t)(end - from) >= room)
		return false;
	memcpy(out, from, end - from);
	out[end - from] = 0;
	return true;
}

static inline double number(const char *line, const char *name, double otherwise)
{
	const char *from = value_of(line, name);

	return from ? strtod(from, NULL) : otherwise;
}

static inline double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

// A whole file, in memory that asks for huge pages as that of the other processes does.
static inline void *read_file(const char *path, size_t *bytes)
{
	FILE *file = fopen(path, "rb");
	char *data = NULL;

	if (!file)
		return NULL;
	fseek(file, 0, SEEK_END);
	*bytes = ftell(file);
	rewind(file);
	// One zero more than there is, so that text ends.
	data = aligned_alloc(2 << 20, (*bytes + (2 << 20)) & ~(size_t)((2 << 20) - 1));
	if (data) {
		madvise(data, *bytes, MADV_HUGEPAGE);
		if (fread(data, 1, *bytes, file) != *bytes) {
			free(data);
			data = NULL;
		} else {
			data[*bytes] = 0;
		}
	}
	fclose(file);
	return data;
}

// Starts the EAL on the CPU that the process was given, with 512-bit vectors, which it refuses when
// it is not told to. `ordinary` as first argument: pages of 4 KiB.
static inline bool start_eal(int argc, char **argv)
{
	bool huge = argc < 2 || strcmp(argv[1], "ordinary");
	char *with_huge[] = { argv[0],
			      "--no-telemetry",
			      "--no-pci",
			      "--log-level=3",
			      "--force-max-simd-bitwidth=512",
			      "--in-memory",
			      "--single-file-segments" };
	char *without[] = { argv[0],
			    "--no-telemetry",
			    "--no-pci",
			    "--log-level=3",
			    "--force-max-simd-bitwidth=512",
			    "--no-shconf",
			    "--no-huge",
			    "-m1300" };
	int started = huge ? rte_eal_init(RTE_DIM(with_huge), with_huge)
			   : rte_eal_init(RTE_DIM(without), without);

	if (started < 0) {
		refuse("the EAL does not start: %s", rte_strerror(rte_errno));
		return false;
	}
	printf("{\"ready\":\"%s\",\"pages\":\"%s\"}\n", rte_version(), huge ? "2 MiB" : "4 KiB");
	fflush(stdout);
	return true;
}

// Bytes that DPDK's own heap has handed out.
static inline size_t heap(void)
{
	struct rte_malloc_socket_stats stats;

	return rte_malloc_get_socket_stats(0, &stats) ? 0 : stats.heap_allocsz_bytes;
}

// Whether the requests say to go on with the keys that the last pass had.
static inline bool same(char *last, const char *path, size_t room)
{
	if (!strcmp(last, path))
		return true;
	snprintf(last, room, "%s", path);
	return false;
}
