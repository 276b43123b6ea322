/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Frame access in XDP. Every program includes one access_*.h before the dissector. */
#ifndef FEATURES_ACCESS_H
#define FEATURES_ACCESS_H

#include "packet.h"

/* No header is looked for beyond; a power of two, so that a mask tells the verifier. */
#define FRAME_MAX_OFFSET 32768
#define METADATA_MAGIC 0x6d726f66U
/* The verdict on a frame that is left to the stack. */
#define FRAME_GOES_ON XDP_PASS
#define FRAME_DROPPED XDP_DROP

typedef struct xdp_md context;

/* Bytes of the frame. */
static __always_inline __u32 frame_length(context *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

/* The device's, by which it came in. */
static __always_inline __u16 frame_queue(context *ctx)
{
	return ctx->rx_queue_index;
}

/* Bytes of it in which headers are looked for. */
static __always_inline __u32 frame_readable(context *ctx)
{
	return (void *)(long)ctx->data_end - (void *)(long)ctx->data;
}

static __always_inline long frame_load(context *ctx, __u32 at, void *to, __u32 size)
{
	return bpf_xdp_load_bytes(ctx, at, to, size);
}

/* `size` bytes at `at`, in the frame or in `room`; NULL when they cannot be read. */
static __always_inline void *frame_at(context *ctx, __u32 at, void *room, __u32 size)
{
	void *end = (void *)(long)ctx->data_end;
	void *found = (void *)(long)ctx->data + (at & (FRAME_MAX_OFFSET - 1));

	return at >= FRAME_MAX_OFFSET || found + size > end ? NULL : found;
}

/* Whether the frame has lost its outermost tag on its way here: none has yet. */
static __always_inline bool frame_lost_tag(context *ctx, __u16 *control)
{
	return false;
}

/* Whether the frame begins with its IP header. */
static __always_inline bool frame_is_raw(void)
{
	return false;
}

#define DSCP_SHIFT 2

static __always_inline __u16 checksum_replace(__u16 checksum, __u16 old, __u16 new)
{
	__u32 sum = (__u16)~checksum + (__u16)~old + new;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline void mark_v4(struct iphdr *ip, __u8 dscp)
{
	__u16 *word = (void *)ip;
	__u16 old = *word;

	ip->tos = dscp << DSCP_SHIFT | (ip->tos & 3);
	ip->check = checksum_replace(ip->check, old, *word);
}

/* XDP has no mark, so the packet's DSCP is set. Its ECN bits are kept. */
static __always_inline void frame_mark(context *ctx, const struct packet *p, __u8 dscp)
{
	struct iphdr *ip = frame_at(ctx, p->l3, NULL, sizeof(*ip));
	__be32 *first = (void *)ip;

	if (!ip)
		return;
	if (p->key.version == 4)
		mark_v4(ip, dscp);
	else
		*first = (*first & bpf_htonl(0xf03fffff)) | bpf_htonl((__u32)dscp << 22);
}

/* The metadata in front of a frame, written by a test or by the program that steers the frame. */
struct metadata {
	__u64 time_ns;
	__u32 wire_length;
	__u32 magic;
	/* By which it came in. */
	__u32 queue;
	__u32 padding;
};

/* The magic number of what is in front of a frame, whose contents are taken over. */
static __always_inline __u32 take_metadata(context *ctx, struct packet *p)
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

static __always_inline void frame_metadata(context *ctx, struct packet *p)
{
	take_metadata(ctx, p);
}

#endif
