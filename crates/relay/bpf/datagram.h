/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reads a frame as a UDP datagram, and says whether its headers tell the truth. */
#ifndef RELAY_DATAGRAM_H
#define RELAY_DATAGRAM_H

#include "checksum.h"

enum shape {
	/* Not UDP, or without the ports to tell whose it is: the network stack's. */
	SHAPE_OTHER,
	SHAPE_PLAIN,
	/* A fragment, IPv4 options: valid, and left to the network stack. */
	SHAPE_ODD,
	SHAPE_MALFORMED,
};

struct datagram {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u16 family;
	/* Of the network header, from the start of the frame. */
	__u16 network;
	__u16 payload_length;
	/* As in the header; in partial form when the sender left it to the device to complete. */
	__u16 check;
	/* Folded sums: of addresses, protocol and length; and of the payload. */
	__u16 pseudo_sum;
	__u16 payload_sum;
	__u8 tos;
	__u8 ttl;
	__u8 partial;
	__u8 zero;
};

/* IPv4 addresses as ::ffff:a.b.c.d, whose prefix adds nothing to a sum once folded. */
static __always_inline void map_address(struct address *address, __be32 v4)
{
	address->high = 0;
	address->low = (__u64)v4 << 32 | 0xffff0000;
}

static __always_inline __u16 network_length(const struct datagram *d)
{
	return d->family == AF_INET ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
}

/* `room`: bytes the network header says follow it; `at`: the UDP header. */
static __always_inline int parse_udp(struct datagram *d, void *at, void *end, __u32 room, int shape)
{
	struct udphdr *udp = at;
	__u32 length;
	__u64 sum;

	if ((void *)(udp + 1) > end)
		return SHAPE_OTHER;
	length = bpf_ntohs(udp->len);
	d->source_port = udp->source;
	d->destination_port = udp->dest;
	d->check = udp->check;
	if (shape != SHAPE_PLAIN)
		return shape;
	if (length < sizeof(*udp) || length > room)
		return SHAPE_MALFORMED;
	d->payload_length = length - sizeof(*udp);
	sum = sum_address(&d->source) + sum_address(&d->destination);
	d->pseudo_sum = fold(sum + udp->len + bpf_htons(IPPROTO_UDP));
	return SHAPE_PLAIN;
}

static __always_inline int parse_ipv4(struct datagram *d, void *at, void *end)
{
	struct iphdr *ip = at;
	int shape = SHAPE_PLAIN;
	__u32 length, header;
	__u64 sum = 0;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->protocol != IPPROTO_UDP)
		return SHAPE_OTHER;
	header = ip->ihl * 4;
	length = bpf_ntohs(ip->tot_len);
	/* Only the first fragment has the ports; the others follow it up the stack unseen. */
	if (header < sizeof(*ip) || (ip->frag_off & bpf_htons(IP_OFFSET)))
		return SHAPE_OTHER;
	d->family = AF_INET;
	d->tos = ip->tos;
	d->ttl = ip->ttl;
	map_address(&d->source, ip->saddr);
	map_address(&d->destination, ip->daddr);
	if (header != sizeof(*ip) || (ip->frag_off & bpf_htons(IP_MF)))
		shape = SHAPE_ODD;
	else if (at + length > end || length < sizeof(*ip) ||
		 sum_bytes(ip, end, sizeof(*ip), &sum) || fold(sum) != 0xffff)
		shape = SHAPE_MALFORMED;
	return parse_udp(d, at + header, end, length - header, shape);
}

static __always_inline int parse_ipv6(struct datagram *d, void *at, void *end)
{
	struct ipv6hdr *ip = at;
	__u32 length;

	/* Extension headers: left to the network stack, which finds out whose it is. */
	if ((void *)(ip + 1) > end || ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
		return SHAPE_OTHER;
	length = bpf_ntohs(ip->payload_len);
	d->family = AF_INET6;
	d->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	d->ttl = ip->hop_limit;
	__builtin_memcpy(&d->source, &ip->saddr, sizeof(d->source));
	__builtin_memcpy(&d->destination, &ip->daddr, sizeof(d->destination));
	/* The stack drops a mapped source; here it would pass for an IPv4 one. */
	if (!d->source.high && (d->source.low & 0xffffffff) == 0xffff0000)
		return SHAPE_OTHER;
	return parse_udp(d, ip + 1, end, length,
			 (void *)(ip + 1) + length > end ? SHAPE_MALFORMED : SHAPE_PLAIN);
}

/* `d` zeroed by the caller. */
static __always_inline int parse(struct datagram *d, void *data, void *end)
{
	struct ethhdr *eth = data;
	void *at = eth + 1;
	__be16 protocol;

	if ((void *)(eth + 1) > end)
		return SHAPE_OTHER;
	protocol = eth->h_proto;
	for (int tags = 0; tags < 2; tags++) {
		struct vlan_hdr *vlan = at;

		if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(vlan + 1) > end)
			return SHAPE_OTHER;
		protocol = vlan->h_vlan_encapsulated_proto;
		at = vlan + 1;
	}
	d->network = at - data;
	if (protocol == bpf_htons(ETH_P_IP))
		return parse_ipv4(d, at, end);
	if (protocol == bpf_htons(ETH_P_IPV6))
		return parse_ipv6(d, at, end);
	return SHAPE_OTHER;
}

enum checked {
	CHECK_RIGHT,
	CHECK_WRONG,
	CHECK_UNREADABLE,
};

/* Sums the payload, once for all copies, and checks the UDP checksum over it. */
static __always_inline int check_sum(struct datagram *d, void *data, void *end)
{
	__u32 header = d->network + network_length(d) + sizeof(struct udphdr);
	__u64 sum = 0;

	/* What parse() found, told again to the verifier, which loses it through the stack. */
	if (header > ETH_HLEN + 8 + sizeof(struct ipv6hdr) + sizeof(struct udphdr))
		return CHECK_UNREADABLE;
	if (d->payload_length > SUM_MAX || sum_bytes(data + header, end, d->payload_length, &sum))
		return CHECK_UNREADABLE;
	d->payload_sum = fold(sum);
	if (!d->check)
		return d->family == AF_INET ? CHECK_RIGHT : CHECK_WRONG;
	sum = (__u64)d->payload_sum + d->pseudo_sum + d->source_port + d->destination_port +
	      bpf_htons(d->payload_length + sizeof(struct udphdr)) + d->check;
	if (fold(sum) == 0xffff)
		return CHECK_RIGHT;
	/* A sender on this host leaves the sum of the pseudo-header for the device to complete. */
	d->partial = d->check == d->pseudo_sum;
	return d->partial ? CHECK_RIGHT : CHECK_WRONG;
}

#endif
