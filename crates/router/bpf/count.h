/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What became of the frames, for each CPU. */
#ifndef ROUTER_COUNT_H
#define ROUTER_COUNT_H

#include "layout.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ends);
} counters SEC(".maps");

static __always_inline struct ends *ends_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

static __always_inline void count(__u32 end, __u32 bytes)
{
	struct ends *ends = ends_here();

	if (!ends || end >= ENDS)
		return;
	ends->end[end].packets++;
	ends->end[end].bytes += bytes;
}

#endif
