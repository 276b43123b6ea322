/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which frames are the router's to forward, and what the kernel would do with the others. */
#ifndef ROUTER_INGRESS_H
#define ROUTER_INGRESS_H

#include <bpf/bpf_endian.h>
#include "layout.h"
#include "lowroad/csum.h"
#include "lowroad/parse.h"

/* The port is this router's, and the frame is for it. */
#define ADMITTED ENDS

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct port_key);
	__type(value, struct port);
} ports SEC(".maps");

/* The pairs that no rule of the kernel's is about, of ports that say so. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pair);
	__type(value, __u8);
} pairs SEC(".maps");

/* A frame's way in, beside the packet. */
struct entrance {
	/* Of the port. */
	__u8 flags;
	__u8 reverse_path;
	/* 0, or why the kernel has to see the packet once rules have been asked. */
	__u16 later;
	bool may_be_fragment;
};

static __always_inline __u32 admit_frame(const struct ethhdr *eth, __u32 ifindex,
					 const struct packet *p, struct entrance *in)
{
	struct port_key key = { .ifindex = ifindex };
	const struct port *port;
	__u8 differing = 0;

	if (eth->h_dest[0] & 1)
		return PUNT_NOT_UNICAST;
	/* An outer tag of VLAN 0 has a priority only. */
	key.tag[0] = p->vlan_tci[0] & VLAN_VID_MASK;
	key.tag[1] = p->vlan_tci[1] & VLAN_VID_MASK;
	port = bpf_map_lookup_elem(&ports, &key);
	if (!port)
		return PUNT_NOT_OURS;
	for (int i = 0; i < ETH_ALEN; i++)
		differing |= port->mac[i] ^ eth->h_dest[i];
	in->flags = port->flags;
	in->reverse_path = port->reverse_path;
	return differing ? PUNT_NOT_OURS : ADMITTED;
}

static __always_inline bool is_loopback4(__u32 address)
{
	return address >> 24 == 127;
}

/* Class D and the limited broadcast; the rest of class E is unicast to the kernel. */
static __always_inline bool is_many4(__u32 address)
{
	return address >> 28 == 14 || address == 0xffffffff;
}

/* In the order of the kernel's ip_route_input_slow(). */
static __always_inline __u32 admit_ipv4(const struct iphdr *ip, struct entrance *in)
{
	__u32 source = bpf_ntohl(ip->saddr);
	__u32 destination = bpf_ntohl(ip->daddr);
	const __u32 *words = (const __u32 *)ip;
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < sizeof(*ip) / 4; i++)
		sum = csum_add(sum, words[i]);
	/* Of a header with options the kernel checks the sum. */
	if (ip->ihl * 4 != sizeof(*ip)) {
		in->later = PUNT_OPTIONS;
	} else if (csum_fold(sum) != 0xffff) {
		return PUNT_MALFORMED;
	}
	if (is_many4(destination))
		return PUNT_NOT_UNICAST;
	if (is_many4(source) || source >> 24 == 0 || is_loopback4(source))
		return PUNT_MARTIAN;
	if (destination >> 24 == 0 || is_loopback4(destination))
		return PUNT_MARTIAN;
	return ADMITTED;
}

/* The unspecified address, the loopback, and mapped IPv4 addresses, which no wire should carry. */
static __always_inline bool is_special6(const struct in6_addr *address)
{
	const __u32 *words = address->in6_u.u6_addr32;

	if (words[0] | words[1])
		return false;
	return words[2] == bpf_htonl(0xffff) || (!words[2] && bpf_ntohl(words[3]) <= 1);
}

static __always_inline bool is_link_local6(const struct in6_addr *address)
{
	return (bpf_ntohl(address->in6_u.u6_addr32[0]) & 0xffc00000) == 0xfe800000;
}

static __always_inline __u32 admit_ipv6(const struct ipv6hdr *ip, struct entrance *in)
{
	if (ip->nexthdr == IPPROTO_HOPOPTS)
		in->later = PUNT_OPTIONS;
	if (ip->daddr.in6_u.u6_addr8[0] == 0xff || is_link_local6(&ip->daddr))
		return PUNT_NOT_UNICAST;
	if (ip->saddr.in6_u.u6_addr8[0] == 0xff || is_special6(&ip->saddr) ||
	    is_link_local6(&ip->saddr) || is_special6(&ip->daddr))
		return PUNT_MARTIAN;
	return ADMITTED;
}

/*
 * What the parser's verdict means here: what a transport says is its ends' affair, but for rules.
 * The kernel forwards packets of which this program does not find the transport.
 */
static __always_inline __u32 admit_parsed(int verdict)
{
	switch (verdict) {
	case PARSE_OK:
	case PARSE_UNSUPPORTED:
	case PARSE_FRAGMENT:
		return ADMITTED;
	case PARSE_NOT_IP:
		return PUNT_NOT_IP;
	case PARSE_TOO_MANY_TAGS:
		return PUNT_NOT_OURS;
	case PARSE_TOO_MANY_EXTENSIONS:
		return PUNT_UNKEYED;
	default:
		return PUNT_MALFORMED;
	}
}

#endif
