/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which flow leaves a full table: the second chance algorithm. Each CPU has a queue of its flows'
 * keys. The flow at the head leaves, unless it has had a packet since it was put into the queue:
 * then it goes to the tail. A flow that has ended by its timers leaves its entry behind, which is
 * dropped at the head.
 */
#ifndef FEATURES_FLOW_QUEUE_H
#define FEATURES_FLOW_QUEUE_H

#include "flow.h"
#include "frame.h"
#include "wake.h"

/* Entries that a packet without room looks at, and flows among them that get another chance. On
 * average these are few: an entry is dropped once, and a flow gets a chance only for a packet that
 * has come since.
 */
#define QUEUE_ROUNDS 256
#define QUEUE_CHANCES 16

struct queue_entry {
	struct flow_key key;
	/* The flow's, or there is another flow of this key, with an entry of its own. */
	__u64 entered_ns;
};

_Static_assert(sizeof(struct queue_entry) == 48, "no implicit padding");

/* A queue's shape; userspace makes one for each CPU, with twice as many entries as its table has.
 */
struct flow_queue {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(map_flags, BPF_F_NUMA_NODE);
	__uint(max_entries, 1);
	__uint(value_size, sizeof(struct queue_entry));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct flow_queue);
} flow_queues SEC(".maps");

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

/* Whether there may be a model. If not, the program contains no code for models. */
const volatile __u8 with_models = 0;

static __always_inline void *own_table(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&tables, &cpu);
}

static __always_inline void *own_queue(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&flow_queues, &cpu);
}

static __always_inline int push(struct flow *f, __u8 end)
{
	f->end = end;
	return bpf_ringbuf_output(&ended, f, sizeof(*f), wakeup_flags(&ended, 0));
}

struct queue_walk {
	struct queue_entry entry;
	/* `value` counts chances, `verdict` says whether a flow has left. */
	struct walk walk;
};

/*
 * Whether a flow has left. Where the ring has no room for it, it stays; but a model must see every
 * packet, so that nobody can pass it by filling both: then the flow is lost, and counted.
 */
static __always_inline bool queue_evict(void *table, struct flow *f, const struct flow_key *key)
{
	struct account *a = account();
	__u64 packets = flow_packets(f);
	bool lost = push(f, END_FULL);

	if (!a || (lost && !with_models))
		return false;
	if (lost)
		a->lost_ring_full += packets;
	else
		a->exported += packets;
	bpf_map_delete_elem(table, key);
	return true;
}

static long queue_next(__u32 index, void *context)
{
	struct queue_walk *q = context;
	void *table = own_table(), *queue = own_queue();
	struct flow *f;

	if (!table || !queue || bpf_map_pop_elem(queue, &q->entry))
		return 1;
	f = bpf_map_lookup_elem(table, &q->entry.key);
	if (!f || f->entered_ns != q->entry.entered_ns)
		return 0;
	if (f->marks & FLOW_ACTIVE && q->walk.value < QUEUE_CHANCES) {
		f->marks &= ~FLOW_ACTIVE;
		q->walk.value++;
		bpf_map_push_elem(queue, &q->entry, BPF_EXIST);
		return 0;
	}
	if (queue_evict(table, f, &q->entry.key))
		q->walk.verdict = 1;
	else
		bpf_map_push_elem(queue, &q->entry, BPF_EXIST);
	return 1;
}

/* Has a flow leave this CPU's table; whether one has. Global, so that the verifier looks at it
 * once. */
__noinline int make_room(void)
{
	struct queue_walk q = {};

	bpf_loop(QUEUE_ROUNDS, queue_next, &q, 0);
	return q.walk.verdict;
}

static long queue_tidy(__u32 index, void *context)
{
	struct queue_walk *q = context;
	void *table = own_table(), *queue = own_queue();
	struct flow *f;

	if (!table || !queue || bpf_map_pop_elem(queue, &q->entry))
		return 1;
	f = bpf_map_lookup_elem(table, &q->entry.key);
	if (!f || f->entered_ns != q->entry.entered_ns)
		return 1;
	bpf_map_push_elem(queue, &q->entry, BPF_EXIST);
	return 0;
}

/* Adds a flow to the queue that is new in the table. */
__noinline int enter_queue(struct flow *f)
{
	void *queue = own_queue();
	struct queue_walk q = {};

	if (!f || !queue)
		return 0;
	f->entered_ns = bpf_ktime_get_ns();
	q.entry.key = f->key;
	q.entry.entered_ns = f->entered_ns;
	if (!bpf_map_push_elem(queue, &q.entry, 0))
		return 0;
	/* At least half of a full queue are entries of flows that have left. */
	bpf_loop(QUEUE_CHANCES, queue_tidy, &q, 0);
	q.entry.key = f->key;
	q.entry.entered_ns = f->entered_ns;
	return bpf_map_push_elem(queue, &q.entry, BPF_EXIST);
}

#endif
