/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which packets may be forwarded at all: plain headers, unicast between hosts, and neither for this
 * one nor from it. */
#ifndef ROUTER_STEER_PLAIN_H
#define ROUTER_STEER_PLAIN_H

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "lowroad/csum.h"
#include "lowroad/wire.h"

#define MAX_LOCAL (1 << 16)

/* This host's addresses, which the stack need not wait for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LOCAL);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __be32);
	__type(value, __u8);
} local4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LOCAL);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct in6_addr);
	__type(value, __u8);
} local6 SEC(".maps");

struct device {
	__u8 mac[6];
	/* Of enum device_flags. */
	__u8 flags;
	/* Of enum reverse_path, for IPv4. */
	__u8 reverse_path;
};

enum device_flags {
	/* All packets of the IP version are the kernel's. */
	DEVICE_KERNEL_V4 = 1,
	DEVICE_KERNEL_V6 = 2,
	/* The kernel lacks the rules, one of which drops packets: threads ask them first. */
	DEVICE_SOLE_FILTER_V4 = 4,
	DEVICE_SOLE_FILTER_V6 = 8,
};

enum reverse_path {
	REVERSE_PATH_OFF = 0,
	REVERSE_PATH_STRICT = 1,
	REVERSE_PATH_LOOSE = 2,
};

/* Where a frame goes on. */
enum way {
	WAY_STACK,
	WAY_THREAD,
	/* To the stack, which asks the rules that threads cannot ask. */
	WAY_RULES,
};

static __always_inline bool is_intact(const struct iphdr *ip)
{
	const __u32 *words = (const __u32 *)ip;
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < sizeof(*ip) / 4; i++)
		sum = csum_add(sum, words[i]);
	return csum_fold(sum) == 0xffff;
}

/* Whether the kernel surely finds the source where it wants it: fib_validate_source(). */
static __always_inline bool is_reached(struct xdp_md *ctx, const struct iphdr *ip, __u8 wanted)
{
	struct bpf_fib_lookup route = {
		.family = AF_INET,
		.ifindex = ctx->ingress_ifindex,
		.ipv4_src = ip->daddr,
		.ipv4_dst = ip->saddr,
	};
	long found;

	if (wanted == REVERSE_PATH_OFF)
		return true;
	found = bpf_fib_lookup(ctx, &route, sizeof(route), 0);
	if (found != BPF_FIB_LKUP_RET_SUCCESS && found != BPF_FIB_LKUP_RET_NO_NEIGH)
		return false;
	return wanted == REVERSE_PATH_LOOSE || route.ifindex == ctx->ingress_ifindex;
}

static __always_inline enum way way4(struct xdp_md *ctx, void *at, void *end,
				     const struct device *device)
{
	struct iphdr *ip = at;
	bool sole_filter = device->flags & DEVICE_SOLE_FILTER_V4;
	__u32 to, from;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5 || ip->ttl <= 1)
		return WAY_STACK;
	to = bpf_ntohl(ip->daddr);
	from = bpf_ntohl(ip->saddr);
	/* Multicast and above, loopback, this network. */
	if (to >= 0xe0000000 || to >> 24 == 127 || to >> 24 == 0)
		return WAY_STACK;
	if (from >= 0xe0000000 || from >> 24 == 127 || from >> 24 == 0)
		return WAY_STACK;
	if (bpf_map_lookup_elem(&local4, &ip->daddr))
		return WAY_STACK;
	if (ip->ihl != 5 || ip->frag_off & bpf_htons(0x3fff))
		return WAY_RULES;
	/* The kernel drops these, as RFC 1812 wants (5.2.2, 5.3.7). */
	if (!is_intact(ip) || bpf_map_lookup_elem(&local4, &ip->saddr))
		return WAY_STACK;
	if (!is_reached(ctx, ip, device->reverse_path))
		return WAY_RULES;
	return device->flags & DEVICE_KERNEL_V4 && !sole_filter ? WAY_STACK : WAY_THREAD;
}

static __always_inline bool is_link_local(const struct in6_addr *address)
{
	return address->in6_u.u6_addr8[0] == 0xfe && (address->in6_u.u6_addr8[1] & 0xc0) == 0x80;
}

/* ::/96 holds the unspecified address and the loopback's. */
static __always_inline bool is_special(const struct in6_addr *address)
{
	return !(address->in6_u.u6_addr32[0] | address->in6_u.u6_addr32[1] |
		 address->in6_u.u6_addr32[2]);
}

static __always_inline enum way way6(void *at, void *end, const struct device *device)
{
	struct ipv6hdr *ip = at;
	bool sole_filter = device->flags & DEVICE_SOLE_FILTER_V6;
	struct in6_addr to, from;

	if ((void *)(ip + 1) > end || ip->version != 6 || ip->hop_limit <= 1)
		return WAY_STACK;
	if (ip->daddr.in6_u.u6_addr8[0] == 0xff || ip->saddr.in6_u.u6_addr8[0] == 0xff)
		return WAY_STACK;
	if (is_link_local(&ip->daddr) || is_link_local(&ip->saddr))
		return WAY_STACK;
	if (is_special(&ip->daddr) || is_special(&ip->saddr))
		return WAY_STACK;
	to = ip->daddr;
	from = ip->saddr;
	if (bpf_map_lookup_elem(&local6, &to) || bpf_map_lookup_elem(&local6, &from))
		return WAY_STACK;
	return device->flags & DEVICE_KERNEL_V6 && !sole_filter ? WAY_STACK : WAY_THREAD;
}

#endif
