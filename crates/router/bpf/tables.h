/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The tables of prefixes: the arrays of lpm's Fib4 and Fib6, byte by byte, in chunks of a page.
 * Userspace writes them in place; entries are read at once and lead to what was written before.
 */
#ifndef ROUTER_TABLES_H
#define ROUTER_TABLES_H

#include <bpf/bpf_helpers.h>

#define CHUNK 4096

/* As many entries as userspace says before loading. */
#define TABLE(name)                                                                                \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(max_entries, 1);                                                            \
		__uint(map_flags, BPF_F_MMAPABLE);                                                 \
		__type(key, __u32);                                                                \
		__type(value, __u8[CHUNK]);                                                        \
	} name SEC(".maps")

TABLE(v4_first);
TABLE(v4_projection);
TABLE(v4_page_of);
TABLE(v4_pages);
TABLE(v4_groups);

TABLE(v6_version);
TABLE(v6_short);
TABLE(v6_page_of);
TABLE(v6_pages);
TABLE(v6_cells);
TABLE(v6_lines);
TABLE(v6_deep);
TABLE(v6_steps);
TABLE(v6_answers);

/* Where in its chunk an element is. The last step bounds it where the verifier of 6.1 looks: it
 * forgets what bits two numbers together can have.
 */
static __always_inline __u64 place_in_chunk(__u64 index, __u32 size)
{
	__u64 place = index * size;

	barrier_var(place);
	return place & (CHUNK - size);
}

/* The element at `index`; `size` is a power of two, so that no element lies in two chunks. */
static __always_inline const void *element(void *table, __u64 index, __u32 size)
{
	__u32 chunk = index / (CHUNK / size);
	const __u8 *at = bpf_map_lookup_elem(table, &chunk);

	return at ? at + place_in_chunk(index, size) : NULL;
}

/* 0 where there is no such element, which no table leads to. */
static __always_inline __u64 number(void *table, __u64 index, __u32 size)
{
	const void *at = element(table, index, size);

	if (!at)
		return 0;
	switch (size) {
	case 1:
		return *(const volatile __u8 *)at;
	case 2:
		return *(const volatile __u16 *)at;
	case 4:
		return *(const volatile __u32 *)at;
	default:
		return *(const volatile __u64 *)at;
	}
}

/* What is read after it is no older than what was read before. */
static __always_inline void read_barrier(void)
{
#ifdef __TARGET_ARCH_x86
	/* Reads are in order. */
	asm volatile("" : : : "memory");
#else
	__u64 nothing = 0;

	/* Instructions for this are newer than Linux 6.1; one that returns what it replaced orders
	 * everything.
	 */
	__sync_fetch_and_add(&nothing, 1);
#endif
}

#endif
