// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Both sides of a forwarding trial that are not ours to sell: the router that asks the kernel's own
 * tables for each packet, and the sink that counts what arrives and looks at a sample of it.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "lowroad/csum.h"
#include "lowroad/license.h"
#include "lowroad/payload.h"
#include "lowroad/wire.h"

/* One packet in so many is looked at. */
#define SAMPLE 64
#define TTL_SENT 64

const volatile __u32 run_id;
/* Flows from this one on must not arrive: a rule drops them. */
const volatile __u32 allowed;
/* The link-layer address that the router sends from. */
const volatile __u8 router[ETH_ALEN];

/* By the index of a device: itself. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

/* Where a flow's packets go, and to whom the router must send them for that. */
struct flow_route {
	__be32 destination;
	__u8 neighbour[ETH_ALEN];
	__u16 padding;
};

_Static_assert(sizeof(struct flow_route) == 12, "programs::FlowRoute");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_route);
} flow_routes SEC(".maps");

struct arrived {
	__u64 packets;
	__u64 looked_at;
	__u64 wrong;
	/* What a rule should have dropped. */
	__u64 forbidden;
};

_Static_assert(sizeof(struct arrived) == 32, "programs::Arrived");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct arrived);
} arrivals SEC(".maps");

struct headers {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct payload payload;
} __attribute__((packed, aligned(2)));

/* As the kernel's own sample does, xdp_fwd: what the tables do not answer goes up to the kernel. */
SEC("xdp")
int fib_forward(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct bpf_fib_lookup fib = {};

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->ttl <= 1)
		return XDP_PASS;
	fib.family = AF_INET;
	fib.tos = ip->tos;
	fib.l4_protocol = ip->protocol;
	fib.tot_len = bpf_ntohs(ip->tot_len);
	fib.ipv4_src = ip->saddr;
	fib.ipv4_dst = ip->daddr;
	fib.ifindex = ctx->ingress_ifindex;
	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return XDP_PASS;
	ip->check = csum_replace2(ip->check, *(__be16 *)&ip->ttl,
				  *(__be16 *)&ip->ttl - bpf_htons(0x0100));
	ip->ttl--;
	__builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
	return bpf_redirect_map(&devices, fib.ifindex, 0);
}

static __always_inline bool is_right(const struct headers *at)
{
	const __u16 *words = (const __u16 *)&at->ip;
	__u32 flow = at->payload.flow, sum = 0;
	const struct flow_route *route = bpf_map_lookup_elem(&flow_routes, &flow);

	if (!route)
		return false;
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += words[i];
	for (int i = 0; i < ETH_ALEN; i++)
		if (at->eth.h_dest[i] != route->neighbour[i] || at->eth.h_source[i] != router[i])
			return false;
	return at->ip.ttl == TTL_SENT - 1 && csum_fold(sum) == 0xffff &&
	       at->ip.daddr == route->destination;
}

SEC("xdp")
int sink(struct xdp_md *ctx)
{
	struct headers *at = (void *)(long)ctx->data;
	__u32 zero = 0;
	struct arrived *arrived = bpf_map_lookup_elem(&arrivals, &zero);

	if (!arrived || (void *)(at + 1) > (void *)(long)ctx->data_end ||
	    at->payload.magic != PAYLOAD_MAGIC || at->payload.run != run_id)
		return XDP_PASS;
	arrived->packets++;
	if (at->payload.flow >= allowed)
		arrived->forbidden++;
	if (((__u64)at->payload.flow + at->payload.sequence) % SAMPLE == 0) {
		arrived->looked_at++;
		if (!is_right(at))
			arrived->wrong++;
	}
	return XDP_DROP;
}
