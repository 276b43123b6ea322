/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* No more packets a second than were asked for, on all CPUs together: twin of
 * features::filter::limit.
 */
#ifndef FEATURES_LIMIT_H
#define FEATURES_LIMIT_H

#include "packet.h"

#define LIMIT_BURST_NS 10000000LL
#define LIMIT_ATTEMPTS 4

/* A second's share of a packet; 0: no limit. */
const volatile __u64 limit_gap_ns = 0;

/* When the next packet would come if all came evenly. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s64);
} limit_next SEC(".maps");

/* Whether a packet that comes now is within the limit; then it counts. */
static __always_inline bool limit_admits(__s64 now)
{
	__s64 gap = limit_gap_ns, *place;
	__u32 zero = 0;

	place = bpf_map_lookup_elem(&limit_next, &zero);
	if (!place)
		return true;
	for (int i = 0; i < LIMIT_ATTEMPTS; i++) {
		__s64 next = *(volatile __s64 *)place, after = next + gap;
		__s64 ahead = next - now;

		/* It is never so far ahead, unless the clock was set back. */
		if (ahead > LIMIT_BURST_NS + gap || ahead < 0)
			after = now + gap;
		else if (ahead > LIMIT_BURST_NS)
			return false;
		if (__sync_val_compare_and_swap(place, next, after) == next)
			return true;
	}
	return false;
}

#endif
