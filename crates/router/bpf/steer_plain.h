/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which packets may be forwarded at all: plain headers, unicast between hosts, and not for this
 * one. */
#ifndef ROUTER_STEER_PLAIN_H
#define ROUTER_STEER_PLAIN_H

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

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

static __always_inline bool is_plain4(void *at, void *end)
{
	struct iphdr *ip = at;
	__u32 to, from;

	if ((void *)(ip + 1) > end || *(__u8 *)at != 0x45 || ip->ttl <= 1)
		return false;
	to = bpf_ntohl(ip->daddr);
	from = bpf_ntohl(ip->saddr);
	if (ip->frag_off & bpf_htons(0x3fff))
		return false;
	/* Multicast and above, loopback, this network. */
	if (to >= 0xe0000000 || to >> 24 == 127 || to >> 24 == 0)
		return false;
	if (from >= 0xe0000000 || from >> 24 == 127 || from >> 24 == 0)
		return false;
	return !bpf_map_lookup_elem(&local4, &ip->daddr);
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

static __always_inline bool is_plain6(void *at, void *end)
{
	struct ipv6hdr *ip = at;
	struct in6_addr to;

	if ((void *)(ip + 1) > end || ip->version != 6 || ip->hop_limit <= 1)
		return false;
	if (ip->daddr.in6_u.u6_addr8[0] == 0xff || ip->saddr.in6_u.u6_addr8[0] == 0xff)
		return false;
	if (is_link_local(&ip->daddr) || is_link_local(&ip->saddr))
		return false;
	if (is_special(&ip->daddr) || is_special(&ip->saddr))
		return false;
	to = ip->daddr;
	return !bpf_map_lookup_elem(&local6, &to);
}

#endif
