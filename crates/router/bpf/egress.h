/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Makes a frame what the kernel would send to a neighbour, and sends it. */
#ifndef ROUTER_EGRESS_H
#define ROUTER_EGRESS_H

#include <bpf/bpf_endian.h>
#include "hops.h"
#include "source.h"
#include "lowroad/csum.h"
#include "lowroad/parse.h"

#define TAG_LENGTH 4
/* Ethernet's least frame: what is padded to that stays so. */
#define LEAST_FRAME 60

/* By index of the device. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} devices SEC(".maps");

static __always_inline int age(void *data, void *end, const struct packet *p)
{
	if (p->family == AF_INET) {
		struct iphdr *ip = packet_at(data, end, p->l3, sizeof(*ip));
		__be16 *word;

		if (!ip)
			return -1;
		/* TTL and protocol. */
		word = (__be16 *)&ip->ttl;
		ip->check = csum_replace2(ip->check, *word, *word - bpf_htons(0x0100));
		ip->ttl--;
	} else {
		struct ipv6hdr *ip = packet_at(data, end, p->l3, sizeof(*ip));

		if (!ip)
			return -1;
		ip->hop_limit--;
	}
	return 0;
}

/* Takes what is behind the packet away, as the kernel does, but for Ethernet's padding. */
static __always_inline int trim(struct xdp_md *ctx, const struct packet *p)
{
	__u32 length = ctx->data_end - ctx->data;
	__u32 wanted = p->l3 + p->ip_length;

	if (wanted < LEAST_FRAME)
		wanted = LEAST_FRAME;
	if (length <= wanted)
		return 0;
	return bpf_xdp_adjust_tail(ctx, (int)wanted - (int)length);
}

/* Changes the number of tags, and writes all that is before the IP header. */
static __always_inline int frame(struct xdp_md *ctx, const struct packet *p,
				 const struct adjacency *to)
{
	int tags = to->vlan == NO_VLAN ? 0 : 1;
	int shorter = ((int)p->vlan_tags - tags) * TAG_LENGTH;
	struct ethhdr *eth;
	struct vlan_hdr *tag;
	void *data, *end;

	if (shorter && bpf_xdp_adjust_head(ctx, shorter))
		return -1;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	eth = data;
	tag = (void *)(eth + 1);
	if ((void *)(tag + 1) > end)
		return -1;
	__builtin_memcpy(eth->h_dest, to->destination, ETH_ALEN);
	__builtin_memcpy(eth->h_source, to->source, ETH_ALEN);
	if (!tags) {
		eth->h_proto = bpf_htons(p->ethertype);
		return 0;
	}
	eth->h_proto = bpf_htons(ETH_P_8021Q);
	tag->h_vlan_TCI = bpf_htons(to->vlan);
	tag->h_vlan_encapsulated_proto = bpf_htons(p->ethertype);
	return 0;
}

/* Whether no rule of the kernel's is about packets that come and leave this way. */
static __always_inline bool is_fast_pair(struct xdp_md *ctx, const struct packet *p,
					 const struct entrance *in, const struct adjacency *to)
{
	bool v6 = p->family == AF_INET6;
	struct pair pair = {};

	if (!(in->flags & (v6 ? PORT_PAIRS_V6 : PORT_PAIRS_V4)))
		return true;
	pair.from = ctx->ingress_ifindex;
	pair.to = to->ifindex;
	pair.from_vlan = vlan_of(p);
	pair.to_vlan = to->vlan;
	pair.v6 = v6;
	return bpf_map_lookup_elem(&pairs, &pair);
}

/* The verdict for the kernel, and the end. */
static __always_inline int send(struct xdp_md *ctx, const struct packet *p,
				const struct entrance *in, __u32 index, __u32 *end)
{
	const struct adjacency *to = bpf_map_lookup_elem(&adjacencies, &index);

	*end = PUNT_NO_MEANING;
	if (!to)
		return XDP_PASS;
	*end = PUNT_POLICY;
	if (!is_fast_pair(ctx, p, in, to))
		return XDP_PASS;
	*end = PUNT_TOO_LONG;
	if (p->ip_length > to->mtu)
		return XDP_PASS;
	*end = DROP_DEVICE;
	if (age((void *)(long)ctx->data, (void *)(long)ctx->data_end, p) || trim(ctx, p) ||
	    frame(ctx, p, to) || bpf_redirect_map(&devices, to->ifindex, XDP_DROP) != XDP_REDIRECT)
		return XDP_DROP;
	*end = FORWARDED;
	return XDP_REDIRECT;
}

#endif
