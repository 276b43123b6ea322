/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Decides what becomes of a frame: whose stream it is, whether it is valid and permitted, and who
 * relays it now. The same for every fast path, and counted here.
 */
#ifndef RELAY_INGRESS_H
#define RELAY_INGRESS_H

#include "limits.h"

enum verdict {
	/* Nothing of ours, or not for a fast path: up the stack untouched. */
	VERDICT_PASS,
	VERDICT_DROP,
	/* To userspace, which has not caught up yet. */
	VERDICT_DIVERT,
	VERDICT_FORWARD,
};

struct ingress {
	struct datagram datagram;
	struct stream *stream;
	struct stream_counters *counters;
	__u32 slot;
	__u32 ifindex;
	/* Datagrams in the frame: more than one in a superframe, of `segment` bytes each but for
	 * the last.
	 */
	__u32 packets;
	__u32 segment;
	__u32 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_STREAMS);
	__type(key, __u32);
	__type(value, struct divert);
} diverts SEC(".maps");

/* How many diverted datagrams userspace is done with; all ones until it first says so. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_STREAMS);
	__type(key, __u32);
	__type(value, __u64);
} done SEC(".maps");

/*
 * Counts a diverted datagram, or takes over at the first that finds userspace done with all before
 * it. One step under a lock: a datagram diverted beside one that takes over would be overtaken.
 */
static __always_inline bool take_over(__u32 slot, __u32 packets)
{
	struct divert *divert = bpf_map_lookup_elem(&diverts, &slot);
	__u64 *caught_up = bpf_map_lookup_elem(&done, &slot);
	bool taken;
	__u64 sent;

	if (!divert || !caught_up)
		return false;
	/* Read outside the lock, where the verifier allows no other map: it only ever grows, so
	 * an old value diverts one more datagram than needed and never takes over too early.
	 */
	sent = *(volatile __u64 *)caught_up;
	bpf_spin_lock(&divert->lock);
	if (!divert->taken_over && sent == divert->diverted)
		divert->taken_over = 1;
	taken = divert->taken_over;
	if (!taken)
		divert->diverted += packets;
	bpf_spin_unlock(&divert->lock);
	return taken;
}

/* Diverted datagrams that userspace never gets: it would wait for them. */
static __always_inline void forget_diverted(__u32 slot, __u32 packets)
{
	struct divert *divert = bpf_map_lookup_elem(&diverts, &slot);

	if (!divert)
		return;
	bpf_spin_lock(&divert->lock);
	divert->diverted -= packets;
	bpf_spin_unlock(&divert->lock);
}

static __always_inline struct ingest *find(const struct packet *p, __u32 ifindex)
{
	struct ingest_key key = {
		.address = p->destination,
		.ifindex = ifindex,
		.port = bpf_htons(p->destination_port),
		.family = p->family,
	};

	return bpf_map_lookup_elem(&ingests, &key);
}

static __always_inline int drop(struct ingress *in, __u32 reason)
{
	in->counters->drops[reason] += in->packets;
	return VERDICT_DROP;
}

static __always_inline int pass(struct ingress *in)
{
	count(&in->counters->passed, in->packets, in->bytes);
	return VERDICT_PASS;
}

/* The checks in the order that relay::plan gives, so that every datapath counts the same. */
static __always_inline int permit(struct ingress *in)
{
	const struct packet *p = &in->datagram.packet;

	if (in->stream->path == PATH_DIVERTED && !take_over(in->slot, in->packets))
		return VERDICT_DIVERT;
	if (!source_accepted(in->stream, in->slot, p))
		return drop(in, DROP_SOURCE_DENIED);
	if (!within_rates(in->stream, in->slot, p, in->packets))
		return drop(in, DROP_RATE_LIMITED);
	if (p->ttl < in->stream->min_ttl)
		return drop(in, DROP_TTL_EXCEEDED);
	count(&in->counters->forwarded, in->packets, in->bytes);
	return VERDICT_FORWARD;
}

/* Of a frame's first eight bytes: where it goes, and whether that is a group of devices. */
#define MAC_BITS bpf_cpu_to_be64(0xffffffffffff0000)
#define MAC_GROUP bpf_cpu_to_be64(0x0100000000000000)

/* A promiscuous or bridged device sees frames that are for others: the stack's, to drop or pass. */
static __always_inline bool for_this_device(const struct ingest *ingest, context *ctx)
{
	__u64 *frame =
		packet_at((void *)(long)ctx->data, (void *)(long)ctx->data_end, 0, sizeof(*frame));

	if (!frame)
		return false;
	return *frame & MAC_GROUP ? ingest->groups : (*frame & MAC_BITS) == ingest->mac;
}

/* Whether the network stack may drop the packet for its source address. */
static __always_inline bool has_kernel_source(const struct stream *stream, const struct packet *p)
{
	const __u32 *source = &p->source.in6_u.u6_addr32[3];

	return stream->check_source && p->family == AF_INET &&
	       bpf_map_lookup_elem(&kernel_sources, source);
}

/* Whose a parsed frame is: sets stream, counters and slot, or gives the verdict. */
static __always_inline int claim(context *ctx, struct ingress *in)
{
	struct ingest *ingest = find(&in->datagram.packet, in->ifindex);

	if (!ingest || !for_this_device(ingest, ctx))
		return VERDICT_PASS;
	in->slot = ingest->stream;
	in->stream = bpf_map_lookup_elem(&streams, &in->slot);
	in->counters = bpf_map_lookup_elem(&stream_counters, &in->slot);
	if (!in->stream || !in->counters || has_kernel_source(in->stream, &in->datagram.packet))
		return VERDICT_PASS;
	return in->stream->path == PATH_PASSING ? VERDICT_PASS : VERDICT_FORWARD;
}

/* Which UDP checksums are right without being summed. */
enum trust {
	/* None: who forwards the frame itself needs the payload's sum for every copy. */
	TRUST_NONE,
	/* Those that the sender left to its device: the network stack completes them. */
	TRUST_PARTIAL,
	/* All: the receiving device has checked. */
	TRUST_ALL,
};

/* A global function, so that the verifier looks at it once and not on every way here. */
__noinline int payload_sum(context *ctx, __u32 offset, __u32 length)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	return csum_bytes(data, end, offset, length, 0);
}

static __always_inline int judge_checksum(context *ctx, struct datagram *d, int trust)
{
	if (d->check && trust == TRUST_ALL)
		return CHECK_RIGHT;
	if (d->check && trust == TRUST_PARTIAL && d->check == d->pseudo_sum) {
		d->partial = 1;
		return CHECK_RIGHT;
	}
	return check_sum(d, payload_sum(ctx, d->packet.payload, d->payload_length));
}

/* `in` zeroed, but for ifindex and, in a superframe, packets and segment. */
static __always_inline int judge(context *ctx, struct ingress *in, int trust)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	int shape = read_datagram(&in->datagram, data, end);
	int verdict;

	if (shape == SHAPE_OTHER)
		return VERDICT_PASS;
	verdict = claim(ctx, in);
	if (verdict != VERDICT_FORWARD)
		return verdict;
	in->bytes = in->datagram.payload_length;
	/* Some devices leave the number of segments to whoever needs it. */
	if (!in->packets)
		in->packets = in->segment ? (in->bytes + in->segment - 1) / in->segment : 1;
	count(&in->counters->received, in->packets, in->bytes);
	if (shape == SHAPE_ODD)
		return pass(in);
	if (shape == SHAPE_MALFORMED)
		return drop(in, DROP_MALFORMED);
	switch (judge_checksum(ctx, &in->datagram, trust)) {
	case CHECK_UNREADABLE:
		return pass(in);
	case CHECK_WRONG:
		return drop(in, DROP_BAD_CHECKSUM);
	}
	return permit(in);
}

#endif
