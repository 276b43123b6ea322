/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Hands datagrams to userspace past the network stack: those diverted during a hand-over, and
 * copies for the subscribers that only userspace can send to. A ring buffer carries both. There is
 * no port that others could send to, and no rule of the stack decides on a datagram a second time.
 *
 * The including program defines load_bytes(), which reads from its kind of context.
 */
#ifndef RELAY_PUNT_H
#define RELAY_PUNT_H

#include "ingress.h"

/* Sizes of records, the head included, so that small datagrams do not waste the ring. The largest
 * holds any UDP payload.
 */
#define PUNT_SMALL 512
#define PUNT_LARGE 9216
#define PUNT_LARGEST (65536 + 64)

enum punt_kind {
	PUNT_DIVERTED = 0,
	PUNT_COPY = 1,
};

/* The payload follows it. */
struct punt {
	struct in6_addr source;
	__u32 stream;
	__u32 ifindex;
	__be16 source_port;
	/* Bytes of payload. */
	__u16 length;
	__u8 kind;
	__u8 ttl;
	__u8 tos;
	__u8 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} punts SEC(".maps");

static __always_inline int write_punt(context *ctx, const struct ingress *in, __u32 offset,
				      __u32 length, __u8 kind, __u32 size)
{
	const struct packet *p = &in->datagram.packet;
	struct punt *punt = bpf_ringbuf_reserve(&punts, size, 0);
	__u32 last = length - 1;

	if (!punt)
		return -1;
	*punt = (struct punt){
		.source = p->source,
		.stream = in->slot,
		.ifindex = in->ifindex,
		.source_port = bpf_htons(p->source_port),
		.length = length,
		.kind = kind,
		.ttl = p->ttl,
		.tos = p->tos,
	};
	/* Less one, so that the verifier of 6.1 sees that no length of 0 is read. */
	barrier_var(last);
	if (length && (last >= size - sizeof(*punt) ||
		       load_bytes(ctx, offset, (void *)(punt + 1), last + 1))) {
		bpf_ringbuf_discard(punt, 0);
		return -1;
	}
	bpf_ringbuf_submit(punt, 0);
	return 0;
}

/* One datagram, whose payload is at `offset` of the frame. */
static __always_inline int punt_datagram(context *ctx, const struct ingress *in, __u32 offset,
					 __u32 length, __u8 kind)
{
	if (length <= PUNT_SMALL - sizeof(struct punt))
		return write_punt(ctx, in, offset, length, kind, PUNT_SMALL);
	if (length <= PUNT_LARGE - sizeof(struct punt))
		return write_punt(ctx, in, offset, length, kind, PUNT_LARGE);
	return write_punt(ctx, in, offset, length, kind, PUNT_LARGEST);
}

struct segments {
	context *ctx;
	const struct ingress *in;
	struct traffic handed;
	__u32 kind;
};

static long punt_segment(__u32 i, struct segments *segments)
{
	const struct ingress *in = segments->in;
	__u32 whole = in->datagram.payload_length;
	__u32 before = i * in->segment;
	__u32 length;

	if (before > whole)
		return 1;
	length = whole - before;
	if (length > in->segment)
		length = in->segment;
	if (!punt_datagram(segments->ctx, in, in->datagram.packet.payload + before, length,
			   segments->kind))
		count(&segments->handed, 1, length);
	return 0;
}

/* Every datagram of the frame; returns how much there was room for. */
static __always_inline struct traffic punt(context *ctx, const struct ingress *in, __u32 kind)
{
	struct segments segments = { .ctx = ctx, .in = in, .kind = kind };

	if (in->packets > 1)
		bpf_loop(in->packets, punt_segment, &segments, 0);
	else if (!punt_datagram(ctx, in, in->datagram.packet.payload, in->bytes, kind))
		count(&segments.handed, 1, in->bytes);
	return segments.handed;
}

/* Userspace relays them in their order; what finds no room is lost, and nothing waits for it. */
static __always_inline void divert(context *ctx, const struct ingress *in)
{
	struct traffic handed = punt(ctx, in, PUNT_DIVERTED);
	__u32 lost = in->packets - (__u32)handed.packets;

	count(&in->counters->passed, handed.packets, handed.bytes);
	if (lost) {
		in->counters->drops[DROP_QUEUE_FULL] += lost;
		forget_diverted(in->slot, lost);
	}
}

static __always_inline void copy_up(context *ctx, const struct ingress *in)
{
	in->counters->copies_lost += in->packets - punt(ctx, in, PUNT_COPY).packets;
}

#endif
