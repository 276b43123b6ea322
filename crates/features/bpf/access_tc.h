/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Frame access at tc: by helper calls, because headers may be in any fragment of the frame. */
#ifndef FEATURES_ACCESS_H
#define FEATURES_ACCESS_H

#include "packet.h"

/* The verdict on a frame that is left to other programs and the stack. */
#define FRAME_GOES_ON (__u32) TC_ACT_UNSPEC
#define FRAME_DROPPED TC_ACT_SHOT

typedef struct __sk_buff context;

/* The device's frames begin with an IP header. */
const volatile __u8 raw_frames = 0;

static __always_inline __u32 frame_length(context *ctx)
{
	return ctx->len;
}

/* Of the device; not known, as a frame that leaves has none yet. */
static __always_inline __u16 frame_queue(context *ctx)
{
	return 0;
}

static __always_inline __u32 frame_readable(context *ctx)
{
	return ctx->len;
}

static __always_inline long frame_load(context *ctx, __u32 at, void *to, __u32 size)
{
	return bpf_skb_load_bytes(ctx, at, to, size);
}

static __always_inline void *frame_at(context *ctx, __u32 at, void *room, __u32 size)
{
	return bpf_skb_load_bytes(ctx, at, room, size) ? NULL : room;
}

/* The stack takes the outermost tag out of what comes in, and leaves it to the device to put one
 * into what goes out.
 */
static __always_inline bool frame_lost_tag(context *ctx, __u16 *control)
{
	if (!ctx->vlan_present)
		return false;
	*control = ctx->vlan_tci;
	return true;
}

static __always_inline bool frame_is_raw(void)
{
	return raw_frames;
}

/* The mark that nftables, tc and routing rules know; the packet stays as it is. */
static __always_inline void frame_mark(context *ctx, const struct packet *p, __u8 dscp)
{
	ctx->mark = dscp;
}

/* The metadata that a test supplies beside a frame. */
static __always_inline void frame_metadata(context *ctx, struct packet *p)
{
	p->time_ns = ctx->tstamp;
	if (ctx->wire_len > p->wire_length) {
		p->wire_length = ctx->wire_len;
		p->marks |= PACKET_TRUNCATED;
	}
}

#endif
