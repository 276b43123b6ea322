/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The next hop of an IPv4 address; twin of lpm's fib4/dir24.rs. */
#ifndef ROUTER_LPM4_H
#define ROUTER_LPM4_H

#include "layout.h"
#include "tables.h"

const volatile struct settings settings = {};

#define ESCAPE_BYTE 0xff
#define ESCAPE_WORD 0xffff

static __always_inline __u32 lpm4_escaped(__u32 address)
{
	__u32 page, group;

	read_barrier();
	page = number(&v4_page_of, address >> 16, 2);
	group = number(&v4_pages, page * 256 + (address >> 8 & 255), 4);
	read_barrier();
	if (settings.v4_words)
		return number(&v4_groups, (__u64)group * 256 + (address & 255), 2);
	return number(&v4_groups, (__u64)group * 256 + (address & 255), 1);
}

/* Of an address in host order; 0: no prefix holds it. */
static __always_inline __u32 lpm4(__u32 address)
{
	__u32 hop;

	if (!settings.v4_words) {
		hop = number(&v4_first, address >> 8, 1);
		return hop == ESCAPE_BYTE ? lpm4_escaped(address) : hop;
	}
	hop = number(&v4_projection, address >> 8, 1);
	if (hop != ESCAPE_BYTE)
		return hop;
	read_barrier();
	hop = number(&v4_first, address >> 8, 2);
	return hop == ESCAPE_WORD ? lpm4_escaped(address) : hop;
}

#endif
