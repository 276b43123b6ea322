/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What comes before and after a frame's dissection in every program: its time, its account, its
 * fate. */
#ifndef FEATURES_FRAME_H
#define FEATURES_FRAME_H

#include "dissect.h"
#include "fragments.h"
#include "lowroad/export.h"
#include "sample.h"

#define METADATA_MAGIC 0x6d726f66U

/* What is put in front of a frame: by a test, or by the program that sends it to another CPU. */
struct metadata {
	__u64 time_ns;
	__u32 wire_length;
	__u32 magic;
	/* The device's, by which it came in. */
	__u32 queue;
	__u32 padding;
};

/* What became of frames: every one that was seen is in exactly one of the others, or in a table. */
struct account {
	__u64 packets;
	/* On the wire. */
	__u64 bytes;
	/* Of them, those that were sent to another CPU, and those that came there. */
	__u64 sent;
	__u64 arrived;
	/* Those that a CPU's queue had no room for, as the kernel tells. */
	__u64 refused_by_queue;
	/* No packets: what userspace has put into a queue to follow them. */
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

/* What to add to the monotonic clock for time since the epoch; userspace keeps it right. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} clock SEC(".maps");

/* What becomes of a frame: taken out (a tap), or left to the stack. */
const volatile __u32 frame_verdict = XDP_PASS;
/* Flows are told apart by their outermost VLAN id. */
const volatile __u8 by_vlan = 0;
/* Tests: time and wire length come in front of the frame already where it comes in. */
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

/* The magic number of what is in front of a frame, whose time and length are taken over. */
static __always_inline __u32 take_metadata(struct xdp_md *ctx, struct packet *p)
{
	struct metadata *metadata = (void *)(long)ctx->data_meta;

	if ((void *)(metadata + 1) > (void *)(long)ctx->data)
		return 0;
	if (metadata->magic != METADATA_MAGIC)
		return metadata->magic;
	p->time_ns = metadata->time_ns;
	p->queue = metadata->queue;
	if (metadata->wire_length > p->wire_length) {
		p->wire_length = metadata->wire_length;
		p->marks |= PACKET_TRUNCATED;
	}
	return METADATA_MAGIC;
}

/* A frame has come in: when, where, how long it is, and that it was seen. */
static __always_inline void meet(struct xdp_md *ctx, struct packet *p, struct account *a)
{
	p->wire_length = bpf_xdp_get_buff_len(ctx);
	p->queue = ctx->rx_queue_index;
	if (from_metadata)
		take_metadata(ctx, p);
	else
		p->time_ns = now();
	a->packets++;
	a->bytes += p->wire_length;
}

/* Whether a packet is one that is wanted; counted, where it is not. */
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

/* Whether there is a wanted packet in a frame that was met; counted where there is none. */
static __always_inline bool read_packet(struct xdp_md *ctx, struct packet *p, struct account *a)
{
	__u32 verdict = dissect(ctx, p);

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

#endif
