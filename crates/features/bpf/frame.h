/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What comes before and after a frame's dissection in every program: its time, its account, its
 * fate. */
#ifndef FEATURES_FRAME_H
#define FEATURES_FRAME_H

#include "dissect.h"
#include "fragments.h"
#include "lowroad/export.h"
#include "sample.h"

/* Bytes of a VLAN tag. */
#define TAG_LENGTH 4

/* Accounts for frames: each one is in exactly one of the other counters, or in a table. */
struct account {
	__u64 packets;
	/* On the wire. */
	__u64 bytes;
	/* Frames that were sent to another CPU, and frames that arrived there. */
	__u64 sent;
	__u64 arrived;
	/* Frames that a CPU's queue had no room for, as reported by the kernel. */
	__u64 refused_by_queue;
	/* Marks, not packets: userspace puts them into a queue behind the packets. */
	__u64 marks;
	/* Came by another of the device's queues than the one before in their flow and direction.
	 */
	__u64 changed_queue;
	__u64 lone_fragments;
	__u64 refused[REFUSALS];
	/* The filter was false; not chosen; too many in too short a time. */
	__u64 filtered;
	__u64 sampled_out;
	__u64 rate_limited;
	/* Left by the ring: in flows that have ended, or as packets. */
	__u64 exported;
	/* Among these, packets that the table had no room for. */
	__u64 table_full;
	/* Neither the table nor the ring had room. */
	__u64 lost_table_full;
	/* The ring had no room for the flow before it. */
	__u64 lost_ring_full;
	/* No table, or no ring, for this CPU: it came after the start. */
	__u64 lost_cpu;
	/* No packets: rows about a flow's first packets that the ring had no room for. */
	__u64 lost_early_rows;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* The offset of the monotonic clock from the epoch. Userspace keeps it current. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} clock SEC(".maps");

/* Whether a frame is dropped (a tap) or left to the stack. */
const volatile __u32 frame_verdict = FRAME_GOES_ON;
/* The outermost VLAN id is part of the flow key. */
const volatile __u8 by_vlan = 0;
/* Tests: time and wire length come beside the frame. */
const volatile __u8 from_metadata = 0;

static __always_inline struct account *account(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&accounts, &zero);
}

static __always_inline __s64 now(void)
{
	__u32 zero = 0;
	__u64 *offset = bpf_map_lookup_elem(&clock, &zero);

	return bpf_ktime_get_ns() + (offset ? *offset : 0);
}

/* Whether a packet is selected. It is counted if not. */
static __always_inline bool is_selected(struct packet *p, struct account *a)
{
	int fate = select_packet(p);

	if (fate == FATE_FILTERED)
		a->filtered++;
	if (fate == FATE_SAMPLED_OUT)
		a->sampled_out++;
	if (fate == FATE_RATE_LIMITED)
		a->rate_limited++;
	return fate == FATE_KEPT;
}

/* When and where a frame came, and how long it is. */
static __always_inline void meet(context *ctx, struct packet *p)
{
	p->wire_length = frame_length(ctx);
	p->queue = frame_queue(ctx);
	if (from_metadata)
		frame_metadata(ctx, p);
	else
		p->time_ns = now();
}

/* Whether the result of the dissection is a selected packet. It is counted if not. */
static __always_inline bool judge(struct packet *p, struct account *a, __u32 verdict)
{
	if (verdict < REFUSALS)
		a->refused[verdict]++;
	if (verdict != DISSECTED)
		return false;
	if (by_vlan)
		p->key.vlan = p->vlan;
	if (p->fragment != FRAGMENT_NONE && !complete_fragment(p))
		a->lone_fragments++;
	return !selecting || is_selected(p, a);
}

/* Whether the frame contains a selected packet. Every frame is counted. */
static __always_inline bool read_packet(context *ctx, struct packet *p, struct account *a)
{
	__u16 control;
	__u32 verdict;

	meet(ctx, p);
	verdict = dissect(ctx, p);
	/* Only now: headers are where they are without it. */
	if (frame_lost_tag(ctx, &control))
		p->wire_length += TAG_LENGTH;
	a->packets++;
	a->bytes += p->wire_length;
	return judge(p, a, verdict);
}

#endif
