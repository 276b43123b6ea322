// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Decides which frames the router's threads get: plain IP packets for this host's link-layer
 * address that may be forwarded. All others go on to the stack, and so does what the threads give
 * back, as if it had just come by its device.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "lowroad/license.h"
#include "lowroad/wire.h"
#include "give_back.h"
#include "steer_plain.h"

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

/* By interface. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SOCKETS);
	__type(key, __u32);
	__type(value, struct device);
} devices SEC(".maps");

enum {
	SEEN,
	STEERED,
	/* A rule may drop it, and neither threads nor the kernel can ask the rules. */
	UNFILTERED,
	COUNTS
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &which);

	if (value)
		*value += 1;
}

static __always_inline bool is_ours(const struct ethhdr *eth, const struct device *device)
{
	__u8 differing = 0;

	for (int i = 0; i < 6; i++)
		differing |= device->mac[i] ^ eth->h_dest[i];
	return !differing;
}

/* What is done with a frame that rules may be about, and that threads cannot ask them about. */
static __always_inline int without_rules(const struct device *device, bool v6)
{
	if (!(device->flags & (v6 ? DEVICE_SOLE_FILTER_V6 : DEVICE_SOLE_FILTER_V4)))
		return XDP_PASS;
	count(UNFILTERED);
	return XDP_DROP;
}

SEC("xdp") int router_steer(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct queue queue = { .ifindex = ctx->ingress_ifindex, .number = ctx->rx_queue_index };
	const struct device *device;
	struct ethhdr *eth = data;
	enum way way;
	__u32 *socket;
	bool v6;

	count(SEEN);
	device = bpf_map_lookup_elem(&devices, &queue.ifindex);
	if (!device || (void *)(eth + 1) > end || !is_ours(eth, device))
		return XDP_PASS;
	v6 = eth->h_proto == bpf_htons(ETH_P_IPV6);
	if (!v6 && eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	way = v6 ? way6(eth + 1, end, device) : way4(ctx, eth + 1, end, device);
	if (way == WAY_RULES)
		return without_rules(device, v6);
	socket = bpf_map_lookup_elem(&queues, &queue);
	if (way == WAY_STACK || !socket)
		return XDP_PASS;
	count(STEERED);
	return bpf_redirect_map(&sockets, *socket, XDP_PASS);
}

SEC("xdp") int router_give_back(struct xdp_md *ctx)
{
	return give_back(ctx);
}
