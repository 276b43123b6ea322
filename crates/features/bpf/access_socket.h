/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How the dissector reads a frame for a packet socket: from its first header on, wherever the
 * kernel's view of it begins. Lengths are of no interest there.
 */
#ifndef FEATURES_ACCESS_H
#define FEATURES_ACCESS_H

#include "packet.h"

#define FRAME_ANY_LENGTH 0xffff

typedef struct __sk_buff context;

/* The device's frames begin with an IP header. */
const volatile __u8 raw_frames = 0;

static __always_inline __u32 frame_length(context *ctx)
{
	return FRAME_ANY_LENGTH;
}

static __always_inline __u32 frame_readable(context *ctx)
{
	return FRAME_ANY_LENGTH;
}

static __always_inline long frame_load(context *ctx, __u32 at, void *to, __u32 size)
{
	return bpf_skb_load_bytes_relative(ctx, at, to, size, BPF_HDR_START_MAC);
}

static __always_inline void *frame_at(context *ctx, __u32 at, void *room, __u32 size)
{
	return frame_load(ctx, at, room, size) ? NULL : room;
}

/* A lost VLAN tag does not affect the choice of a socket, so it is not looked up. */
static __always_inline bool frame_lost_tag(context *ctx, __u16 *control)
{
	return false;
}

static __always_inline bool frame_is_raw(void)
{
	return raw_frames;
}

#endif
