/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The tables of flows, and the rules by which one ends and another starts: twin of
 * features::flow::Table, whose evictions are evict.h.
 */
#ifndef FEATURES_FLOW_TABLE_H
#define FEATURES_FLOW_TABLE_H

#include "flow_add.h"
#include "flow_end.h"
#include "flow_queue.h"
#include "frame.h"

/* A flow that does not fit into the table. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} homeless SEC(".maps");

/* An additional row is exported after this many packets of a flow; 0 disables it. */
const volatile __u64 early_packets = 0;

/* The initial value of an entry. */
const struct flow nothing = {};

/* Zeroes a flow in place: nothing can fail between the old flow and the new one. */
static __always_inline void flow_clear(struct flow *f)
{
	__u64 *word = (void *)f;

	for (__u32 i = 0; i < sizeof(*f) / sizeof(*word); i++) {
		word[i] = 0;
		/* Prevents the compiler from calling memset, which BPF does not have. */
		barrier_var(word);
	}
}

/* A packet without room in the table leaves as a flow of its own, which a model can still be asked
 * about. */
static __always_inline struct flow *export_alone(const struct packet *p, struct account *a)
{
	__u32 zero = 0;
	struct flow *f = bpf_map_lookup_elem(&homeless, &zero);

	if (!f)
		return NULL;
	flow_clear(f);
	flow_start(f, p);
	flow_add(f, p);
	if (push(f, END_FULL)) {
		a->lost_table_full++;
	} else {
		a->exported++;
		a->table_full++;
	}
	return f;
}

/* The entry of a flow that starts with this packet; NULL without room. */
static __always_inline struct flow *insert_flow(void *table, const struct packet *p)
{
	struct flow *f;

	if (bpf_map_update_elem(table, &p->key, &nothing, BPF_NOEXIST) &&
	    (!make_room() || bpf_map_update_elem(table, &p->key, &nothing, BPF_NOEXIST)))
		return NULL;
	f = bpf_map_lookup_elem(table, &p->key);
	if (!f)
		return NULL;
	flow_start(f, p);
	enter_queue(f);
	return f;
}

/* Starts the flow of this packet in the place of one that has ended; whether the latter could
 * leave. */
static __always_inline bool turn_over(struct flow *f, const struct packet *p, struct account *a,
				      int end)
{
	__u64 packets = flow_packets(f), entered_ns = f->entered_ns;
	bool lost = push(f, end);

	/* As in queue_evict(). */
	if (lost && !with_models)
		return false;
	if (lost)
		a->lost_ring_full += packets;
	else
		a->exported += packets;
	flow_clear(f);
	flow_start(f, p);
	f->entered_ns = entered_ns;
	return true;
}

/* Whether a packet arrived on another queue than the previous one of its flow and direction. */
static __always_inline bool changes_queue(const struct flow *f, const struct packet *p)
{
	const struct direction *d = &f->directions[(p->sender ^ f->initiator) & 1];

	return d->wire.count && d->queue != p->queue;
}

/* Counts a packet and exports the flow that it ends. Returns its flow, or NULL if it is in none. */
static __always_inline struct flow *track(const struct packet *p, struct account *a)
{
	void *table = own_table();
	struct flow *f;
	int end;

	if (!table) {
		a->lost_cpu++;
		return NULL;
	}
	f = bpf_map_lookup_elem(table, &p->key);
	if (!f) {
		f = insert_flow(table, p);
		if (!f)
			return export_alone(p, a);
	} else {
		end = flow_ended_before(f, p);
		if (end != END_NONE && !turn_over(f, p, a, end)) {
			a->lost_ring_full++;
			return NULL;
		}
	}
	a->changed_queue += changes_queue(f, p);
	flow_add(f, p);
	if (early_packets && flow_packets(f) == early_packets && push(f, END_EARLY))
		a->lost_early_rows++;
	return f;
}

#endif
