/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The tables of flows, and the rules by which one ends and another starts: twin of
 * features::flow::Table, whose evictions are evict.h.
 */
#ifndef FEATURES_FLOW_TABLE_H
#define FEATURES_FLOW_TABLE_H

#include "flow_add.h"
#include "frame.h"
#include "wake.h"

/* A table's shape; userspace makes one for each CPU, of its own size. Sizes in place of types,
 * because 6.1 takes a table made without type information for another shape than one made with it.
 */
struct flow_table {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NUMA_NODE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct flow_key));
	__uint(value_size, sizeof(struct flow));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct flow_table);
} tables SEC(".maps");

/* Ended flows. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} ended SEC(".maps");

/* A flow for which there is no room in the table. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} homeless SEC(".maps");

/* Another row after this many packets of a flow; 0: none. */
const volatile __u64 early_packets = 0;

/* What an entry is made from. */
const struct flow nothing = {};

static __always_inline void *own_table(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&tables, &cpu);
}

static __always_inline int push(struct flow *f, __u8 end)
{
	f->end = end;
	return bpf_ringbuf_output(&ended, f, sizeof(*f), wakeup_flags(&ended, 0));
}

/* Zeroes a flow in place: nothing can fail between the old flow and the new one. */
static __always_inline void flow_clear(struct flow *f)
{
	__u64 *word = (void *)f;

	for (__u32 i = 0; i < sizeof(*f) / sizeof(*word); i++) {
		word[i] = 0;
		/* Or the compiler calls a function that is not there. */
		barrier_var(word);
	}
}

/* A packet without room in the table leaves as a flow of its own. */
static __always_inline void export_alone(const struct packet *p, struct account *a)
{
	__u32 zero = 0;
	struct flow *f = bpf_map_lookup_elem(&homeless, &zero);

	if (!f)
		return;
	flow_clear(f);
	flow_start(f, p);
	flow_add(f, p);
	if (push(f, END_FULL)) {
		a->lost_table_full++;
		return;
	}
	a->exported++;
	a->table_full++;
}

/* The entry of a packet's flow, as new or with the packets before; NULL when it was dealt with. */
static __always_inline struct flow *flow_of(void *table, const struct packet *p, struct account *a)
{
	struct flow *f = bpf_map_lookup_elem(table, &p->key);
	__u64 packets;
	int end;

	if (!f) {
		if (!bpf_map_update_elem(table, &p->key, &nothing, BPF_NOEXIST))
			f = bpf_map_lookup_elem(table, &p->key);
		if (f)
			flow_start(f, p);
		else
			export_alone(p, a);
		return f;
	}
	end = flow_ended_before(f, p);
	if (end == END_NONE)
		return f;
	packets = flow_packets(f);
	if (push(f, end)) {
		a->lost_ring_full++;
		return NULL;
	}
	a->exported += packets;
	flow_clear(f);
	flow_start(f, p);
	return f;
}

/* Whether a packet came by another queue than the one before in its flow and direction. */
static __always_inline bool changes_queue(const struct flow *f, const struct packet *p)
{
	const struct direction *d = &f->directions[(p->sender ^ f->initiator) & 1];

	return d->wire.count && d->queue != p->queue;
}

/* Counts a packet under its flow, which is NULL where it is in no table; pushes what it ends. */
static __always_inline struct flow *track(const struct packet *p, struct account *a)
{
	void *table = own_table();
	struct flow *f;

	if (!table) {
		a->lost_cpu++;
		return NULL;
	}
	f = flow_of(table, p, a);
	if (!f)
		return NULL;
	a->changed_queue += changes_queue(f, p);
	flow_add(f, p);
	if (early_packets && flow_packets(f) == early_packets && push(f, END_EARLY))
		a->lost_early_rows++;
	return f;
}

#endif
