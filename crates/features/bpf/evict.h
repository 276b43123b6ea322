/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Takes flows out of a table on the CPU whose table it is.
 *
 * Userspace names the keys of flows that it saw to be due, and runs this as an XDP program on live
 * frames: these run with softirqs off, so no packet of this CPU comes between the look at a flow
 * and its deletion, and packets of other CPUs go to other tables. A flow that has got a packet
 * since userspace looked stays.
 */
#ifndef FEATURES_EVICT_H
#define FEATURES_EVICT_H

#include "flow_table.h"

/* The maximum number of keys per call of userspace. */
#define MOST_EVICTIONS 4096
/* Keys for each frame: how long packets of this CPU may have to wait. */
#define EVICTIONS_PER_FRAME 64

struct eviction {
	/* Flows that are due by this time are evicted. */
	__s64 horizon_ns;
	/* Keys in `candidates`, and the next one. */
	__u32 count;
	__u32 next;
	/* Nothing happens on another CPU. */
	__u32 cpu;
	/* The results. */
	__u32 evicted;
	__u32 stayed;
	__u32 ring_full;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct eviction);
} evictions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_EVICTIONS);
	__type(key, __u32);
	__type(value, struct flow_key);
} candidates SEC(".maps");

static __always_inline void evict_flow(struct eviction *e, const struct flow_key *key)
{
	void *table = own_table();
	struct account *a = account();
	struct flow *f;
	__u64 packets;
	int end;

	if (!table)
		return;
	f = bpf_map_lookup_elem(table, key);
	if (!f)
		return;
	end = flow_ended_by(f, e->horizon_ns);
	if (end == END_NONE) {
		e->stayed++;
		return;
	}
	packets = flow_packets(f);
	if (push(f, end)) {
		e->ring_full++;
		return;
	}
	bpf_map_delete_elem(table, key);
	e->evicted++;
	if (a)
		a->exported += packets;
}

static long evict_next(__u32 index, void *context)
{
	__u32 zero = 0, next;
	struct eviction *e = bpf_map_lookup_elem(&evictions, &zero);
	struct flow_key *key;

	if (!e || e->next >= e->count || e->cpu != bpf_get_smp_processor_id())
		return 1;
	next = e->next;
	e->next = next + 1;
	key = bpf_map_lookup_elem(&candidates, &next);
	if (!key)
		return 1;
	evict_flow(e, key);
	return 0;
}

static __always_inline void evict(void)
{
	__u32 nothing_more = 0;

	bpf_loop(EVICTIONS_PER_FRAME, evict_next, &nothing_more, 0);
}

#endif
