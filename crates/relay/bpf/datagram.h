/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reads a frame as a UDP datagram, and says whether its headers tell the truth. */
#ifndef RELAY_DATAGRAM_H
#define RELAY_DATAGRAM_H

#include "lowroad/csum.h"
#include "lowroad/parse.h"

enum shape {
	/* Not UDP, or without the ports to tell whose it is: the network stack's. */
	SHAPE_OTHER,
	SHAPE_PLAIN,
	/* A first fragment, IPv4 options, extension headers: valid, and left to the network stack.
	 */
	SHAPE_ODD,
	SHAPE_MALFORMED,
};

struct datagram {
	struct packet packet;
	__u32 payload_length;
	/* As in the header; in partial form when the sender left it to the device to complete. */
	__sum16 check;
	/* Folded sums: of addresses, protocol and length; and of the payload. */
	__u16 pseudo_sum;
	__u16 payload_sum;
	__u8 partial;
	__u8 zero;
};

static __always_inline __u32 network_length(__u16 family)
{
	return family == AF_INET6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

/*
 * The parser stops at a header that lies, and so tells nobody's datagram: finds whose counter a
 * malformed one belongs to, by the addresses and ports that are where they would be otherwise.
 */
static __always_inline int blame(struct packet *p, void *data, void *end)
{
	struct ipv6hdr *ip6 = packet_at(data, end, p->l3, sizeof(*ip6));
	struct iphdr *ip = packet_at(data, end, p->l3, sizeof(*ip));
	struct udphdr *udp;

	if (ip && p->ethertype == ETH_P_IP) {
		if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(IP_OFFSET))
			return SHAPE_OTHER;
		p->family = AF_INET;
		packet_map_ipv4(&p->destination, ip->daddr);
		udp = packet_at(data, end, p->l3 + ip->ihl * 4, sizeof(*udp));
	} else if (ip6 && p->ethertype == ETH_P_IPV6) {
		if (ip6->nexthdr != IPPROTO_UDP)
			return SHAPE_OTHER;
		p->family = AF_INET6;
		p->destination = ip6->daddr;
		udp = packet_at(data, end, p->l3 + sizeof(*ip6), sizeof(*udp));
	} else {
		return SHAPE_OTHER;
	}
	if (!udp)
		return SHAPE_OTHER;
	p->destination_port = bpf_ntohs(udp->dest);
	/* For the stack, IPv6's length 0 means the whole packet (RFC 2675). */
	if (p->family == AF_INET6 && !udp->len)
		return SHAPE_ODD;
	return SHAPE_MALFORMED;
}

/* Of an IPv6 packet; here it would pass for an IPv4 one. */
static __always_inline bool poses_as_ipv4(const struct packet *p)
{
	const __u32 *words = p->source.in6_u.u6_addr32;

	return p->family == AF_INET6 && !words[0] && !words[1] && words[2] == bpf_htonl(0xffff);
}

/* An address that nobody sends from: the stack drops such a packet. */
static __always_inline bool source_impossible(const struct packet *p)
{
	const __u32 *words = p->source.in6_u.u6_addr32;
	const __u32 *to = p->destination.in6_u.u6_addr32;
	__u8 first = bpf_ntohl(words[3]) >> 24;

	if (p->family == AF_INET)
		return first == 0 || first == 127 || first >> 4 == 0xe || !~words[3] ||
		       words[3] == to[3];
	if (p->source.in6_u.u6_addr8[0] == 0xff)
		return true;
	return !words[0] && !words[1] && !words[2] && words[3] == bpf_htonl(1);
}

/* A tag may carry a priority only: a frame of a VLAN belongs to another device than this. */
static __always_inline bool of_vlan(const struct packet *p)
{
	return (p->vlan_tci[0] | p->vlan_tci[1]) & 0xfff;
}

static __always_inline bool header_right(const struct iphdr *ip)
{
	const __u32 *words = (const void *)ip;
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < sizeof(*ip) / sizeof(*words); i++)
		sum = csum_add(sum, words[i]);
	return csum_fold(sum) == 0xffff;
}

/* `verdict`: what the parser said. */
static __always_inline int shape_of(struct datagram *d, void *data, void *end, int verdict)
{
	struct packet *p = &d->packet;
	struct udphdr *udp;
	struct iphdr *ip;

	if (of_vlan(p))
		return SHAPE_OTHER;
	if (verdict == PARSE_BAD_TOTAL_LENGTH || verdict == PARSE_BAD_UDP_LENGTH)
		return blame(p, data, end);
	if (p->protocol != IPPROTO_UDP || poses_as_ipv4(p) || source_impossible(p))
		return SHAPE_OTHER;
	/* Only the first fragment has the ports; the others follow it up the stack unseen. */
	if (verdict == PARSE_FRAGMENT)
		return p->fragment == FRAGMENT_FIRST ? SHAPE_ODD : SHAPE_OTHER;
	if (verdict != PARSE_OK)
		return SHAPE_OTHER;
	if (p->l4 - p->l3 != network_length(p->family))
		return SHAPE_ODD;
	ip = packet_at(data, end, p->l3, sizeof(*ip));
	udp = packet_at(data, end, p->l4, sizeof(*udp));
	if (!udp || !ip || (p->family == AF_INET && !header_right(ip)))
		return SHAPE_MALFORMED;
	d->check = udp->check;
	d->payload_length = p->udp_length - sizeof(*udp);
	d->pseudo_sum =
		csum_fold(csum_pseudo(&p->source, &p->destination, IPPROTO_UDP, p->udp_length));
	return SHAPE_PLAIN;
}

static __always_inline int read_datagram(struct datagram *d, void *data, void *end)
{
	return shape_of(d, data, end, parse_packet(data, end, &d->packet));
}

enum checked {
	CHECK_RIGHT,
	CHECK_WRONG,
	CHECK_UNREADABLE,
};

/* The UDP checksum that the datagram should carry, its payload summed. */
static __always_inline __sum16 right_check(const struct datagram *d)
{
	const struct packet *p = &d->packet;
	__u32 sum = (__u32)d->payload_sum + d->pseudo_sum + bpf_htons(p->source_port) +
		    bpf_htons(p->destination_port) + bpf_htons(p->udp_length);

	return csum_udp_nonzero(~csum_fold(sum));
}

/* Checks the UDP checksum, given the payload's sum, which is negative where it cannot be read. */
static __always_inline int check_sum(struct datagram *d, int payload_sum)
{
	if (payload_sum < 0)
		return CHECK_UNREADABLE;
	d->payload_sum = payload_sum;
	if (!d->check)
		return d->packet.family == AF_INET ? CHECK_RIGHT : CHECK_WRONG;
	if (d->check == right_check(d))
		return CHECK_RIGHT;
	/* A sender on this host leaves the sum of the pseudo-header for the device to complete. */
	d->partial = udp_csum_is_partial(d->check, d->pseudo_sum);
	return d->partial ? CHECK_RIGHT : CHECK_WRONG;
}

#endif
