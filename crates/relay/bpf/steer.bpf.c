// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Decides which frames are a stream's, and hands those to be relayed to the AF_XDP socket of the
 * queue they came in by, with what was found out about them in front. Userspace makes the copies.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "lowroad/export.h"
#include "lowroad/license.h"

typedef struct xdp_md context;

#define load_bytes bpf_xdp_load_bytes

#include "punt.h"
#include "tag.h"

EXPORT_STRUCT(punt);
EXPORT_STRUCT(tag);

#define MAX_SOCKETS 1024

struct queue {
	__u32 ifindex;
	__u32 number;
};

/* Where in `sockets` a queue's socket is. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SOCKETS);
	__type(key, struct queue);
	__type(value, __u32);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_SOCKETS);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

static __always_inline int relay(struct xdp_md *ctx)
{
	struct queue queue = { .ifindex = ctx->ingress_ifindex, .number = ctx->rx_queue_index };
	__u32 *socket = bpf_map_lookup_elem(&queues, &queue);
	struct ingress in = { .ifindex = ctx->ingress_ifindex, .packets = 1 };

	/* Nobody to hand it to: the network stack's, like all that a fast path does not know. */
	if (!socket)
		return XDP_PASS;
	switch (judge(ctx, &in, TRUST_NONE)) {
	case VERDICT_PASS:
		return XDP_PASS;
	case VERDICT_DIVERT:
		divert(ctx, &in);
		return XDP_DROP;
	case VERDICT_FORWARD:
		break;
	default:
		return XDP_DROP;
	}
	if (in.stream->copies)
		copy_up(ctx, &in);
	if (trim(ctx, &in.datagram) || attach_tag(ctx, &in))
		return XDP_ABORTED;
	return bpf_redirect_map(&sockets, *socket, XDP_DROP);
}

SEC("xdp") int relay_ingress(struct xdp_md *ctx)
{
	return relay(ctx);
}
