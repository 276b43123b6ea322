/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The next hop of an IPv6 address; twin of lpm's fib6/trie.rs with pages. */
#ifndef ROUTER_LPM6_H
#define ROUTER_LPM6_H

#include <bpf/bpf_endian.h>
#include "tables.h"

#define V6_PAGE 4096
#define V6_LINE 32
#define V6_ANSWERS 16
#define V6_DEEP 0x8000
/* Halvings of the longest block of steps. */
#define V6_HALVINGS 25
#define V6_ATTEMPTS 4
/* Not a next hop: the table changed in each attempt. */
#define LPM_BUSY 0xffffffff

struct address6 {
	__u64 high;
	__u64 low;
};

static __always_inline struct address6 address6(const struct in6_addr *address)
{
	const __u32 *words = address->in6_u.u6_addr32;

	return (struct address6){
		.high = (__u64)bpf_ntohl(words[0]) << 32 | bpf_ntohl(words[1]),
		.low = (__u64)bpf_ntohl(words[2]) << 32 | bpf_ntohl(words[3]),
	};
}

static __always_inline __u32 lpm6_target(__u32 entry, __u32 x)
{
	return (entry + (x << (entry >> 26 & 15) >> 16)) & ((1 << 26) - 1);
}

/* How many of the 15 ascending bounds are below x, step by step of a search. */
static __always_inline __u32 lpm6_line(__u32 target, __u32 x)
{
	const volatile __u16 *line = element(&v6_lines, target, 2 * V6_LINE);
	__u32 below = 0;

	if (!line)
		return 0;
#pragma unroll
	for (__u32 step = 8; step; step /= 2)
		below += line[(below + step - 1) & (V6_ANSWERS - 1)] < x ? step : 0;
	return line[V6_ANSWERS + (below & (V6_ANSWERS - 1))];
}

/* The answer of prefixes longer than /16: 0, a next hop, or a deep block. */
static __always_inline __u32 lpm6_found(const struct address6 *address)
{
	__u32 slash32 = address->high >> 32;
	__u32 x = address->high >> 16 & 0xffff;
	__u32 page = number(&v6_page_of, slash32 >> 12, 4);
	__u32 entry = number(&v6_pages, (__u64)page * V6_PAGE + (slash32 & (V6_PAGE - 1)), 4);

	if (entry >> 30 == 3) {
		read_barrier();
		entry = number(&v6_cells, lpm6_target(entry, x), 4);
	}
	if (!(entry >> 31))
		return entry & 0xffff;
	read_barrier();
	return lpm6_line(lpm6_target(entry, x), x);
}

struct deep {
	struct address6 address;
	__u64 low;
	__u64 high;
};

static long lpm6_halve(__u32 i, struct deep *deep)
{
	__u64 middle = deep->low + (deep->high - deep->low) / 2;
	const volatile __u64 *from;

	if (middle == deep->low)
		return 1;
	from = element(&v6_steps, middle, 16);
	if (!from)
		return 1;
	if (from[0] < deep->address.high ||
	    (from[0] == deep->address.high && from[1] <= deep->address.low))
		deep->low = middle;
	else
		deep->high = middle;
	return 0;
}

static __always_inline __u32 lpm6_deep(const struct address6 *address, __u32 block)
{
	__u64 place = number(&v6_deep, block, 8);
	struct deep deep = {
		.address = *address,
		.low = place >> 32,
		.high = (place >> 32) + (place & 0xffffffff),
	};

	read_barrier();
	bpf_loop(V6_HALVINGS, lpm6_halve, &deep, 0);
	return number(&v6_answers, deep.low, 2);
}

struct search6 {
	struct address6 address;
	__u32 answer;
	__u32 padding;
};

/*
 * In one version of `v6_short` either that stays as it is, or all else does: then there was a
 * moment at which both were as they were read.
 */
static long lpm6_attempt(__u32 i, struct search6 *search)
{
	__u64 version = number(&v6_version, 0, 8);
	__u32 answer;

	read_barrier();
	answer = lpm6_found(&search->address);
	if (answer & V6_DEEP) {
		read_barrier();
		answer = lpm6_deep(&search->address, answer ^ V6_DEEP);
	}
	search->answer = answer;
	if (answer)
		return 1;
	read_barrier();
	search->answer = number(&v6_short, search->address.high >> 48, 2);
	read_barrier();
	if (number(&v6_version, 0, 8) == version)
		return 1;
	search->answer = LPM_BUSY;
	return 0;
}

/* 0: no prefix holds the address. */
static __always_inline __u32 lpm6(const struct in6_addr *address)
{
	struct search6 search = { .address = address6(address) };

	bpf_loop(V6_ATTEMPTS, lpm6_attempt, &search, 0);
	return search.answer;
}

#endif
