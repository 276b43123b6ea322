// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Hands frames, payload and all, to the AF_XDP socket of the queue that they came in by, with the
 * time in front. A frame is handed over or goes on to the stack, never both.
 *
 * Headers are read here only where packets are chosen by them: userspace reads them anyway.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "lowroad/license.h"
#include "access_xdp.h"
#include "frame.h"

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* Whether the frame is to be handed over; counted, also where it is not. */
static __always_inline bool is_wanted(context *ctx, struct packet *p, struct account *a)
{
	if (selecting)
		return read_packet(ctx, p, a);
	p->time_ns = now();
	a->packets++;
	a->bytes += frame_length(ctx);
	return true;
}

SEC("xdp")
int hand_over(context *ctx)
{
	struct packet packet = {};
	struct account *a = account();
	__s64 *stamp;

	if (!a || !is_wanted(ctx, &packet, a))
		return frame_verdict;
	/* What has no room for it in front, or no socket, is missing from what userspace gets, and
	 * counted there. */
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*stamp)))
		return XDP_ABORTED;
	stamp = (void *)(long)ctx->data_meta;
	if ((void *)(stamp + 1) > (void *)(long)ctx->data)
		return XDP_ABORTED;
	*stamp = packet.time_ns;
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_ABORTED);
}
