/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* IPv4 and IPv6 headers: twin of features::dissect::ip. */
#ifndef FEATURES_NETWORK_H
#define FEATURES_NETWORK_H

#include "extension.h"
#include "packet.h"

/* RFC 8200 section 5. */
#define IPV6_LEAST_MTU 1280

/* Echoes are told apart by addresses alone, not by their identifier, which is a port otherwise. */
const volatile __u8 ignore_icmp_id = 0;

/* The addresses and ports of a packet in the order they have in it: a key before it is canonical.
 */
struct endpoints {
	__u64 source[2];
	__u64 destination[2];
	__u16 source_port;
	__u16 destination_port;
};

static __always_inline void read_address(__u64 *address, const struct in6_addr *from)
{
	address[0] = (__u64)bpf_ntohl(from->in6_u.u6_addr32[0]) << 32 |
		     bpf_ntohl(from->in6_u.u6_addr32[1]);
	address[1] = (__u64)bpf_ntohl(from->in6_u.u6_addr32[2]) << 32 |
		     bpf_ntohl(from->in6_u.u6_addr32[3]);
}

/* A declared length that is beyond 32 bits is a jumbogram's of 4 GiB. */
static __always_inline void set_lengths(struct packet *p, __u64 length, __u32 header, __u32 room)
{
	p->ip_length = length > 0xffffffff ? 0xffffffff : length;
	p->ip_header = header;
	p->payload_length = length - header;
	if (length > room)
		p->marks |= PACKET_MALFORMED;
}

static __always_inline int network_v4(context *ctx, struct packet *p, struct endpoints *e,
				      __u32 room)
{
	struct iphdr copy, *ip = frame_at(ctx, p->l3, &copy, sizeof(copy));
	__u32 header, length;
	__u16 fragment;
	int verdict;

	if (!ip)
		return REFUSED_TRUNCATED_IP;
	header = ip->ihl * 4;
	if (header < sizeof(*ip))
		return REFUSED_BAD_IP;
	if (p->l3 + header > frame_readable(ctx))
		return REFUSED_TRUNCATED_IP;
	length = bpf_ntohs(ip->tot_len);
	/* A device that segments by itself may be handed a length of zero. */
	if (!length) {
		p->marks |= PACKET_AGGREGATED;
		length = room;
	}
	if (length < header)
		return REFUSED_BAD_IP;
	set_lengths(p, length, header, room);
	p->key.version = 4;
	p->key.protocol = ip->protocol;
	p->ip_protocol = ip->protocol;
	p->ttl = ip->ttl;
	p->tos = ip->tos;
	p->identification = bpf_ntohs(ip->id);
	e->source[1] = 0xffff00000000ULL | bpf_ntohl(ip->saddr);
	e->destination[1] = 0xffff00000000ULL | bpf_ntohl(ip->daddr);
	fragment = bpf_ntohs(ip->frag_off);
	if (fragment & IP_OFFSET)
		p->fragment = FRAGMENT_LATER;
	else if (fragment & IP_MF)
		p->fragment = FRAGMENT_FIRST;
	if (p->fragment == FRAGMENT_LATER || p->key.protocol != IPPROTO_AH)
		return DISSECTED;
	verdict = walk_extensions(ctx, p);
	if (verdict == REFUSED_TOO_MANY_EXTENSIONS)
		return verdict;
	/* IPv4 knows no chain of headers: where AH cannot be read, it is the transport. */
	if (verdict != DISSECTED)
		p->marks |= PACKET_MALFORMED;
	return DISSECTED;
}

static __always_inline int network_v6(context *ctx, struct packet *p, struct endpoints *e,
				      __u32 room)
{
	struct ipv6hdr copy, *ip = frame_at(ctx, p->l3, &copy, sizeof(copy));
	__u64 payload;

	if (!ip)
		return REFUSED_TRUNCATED_IP;
	payload = bpf_ntohs(ip->payload_len);
	if (!payload && ip->nexthdr == IPPROTO_HOPOPTS) {
		payload = jumbo_payload(ctx, p->l3 + sizeof(*ip));
		if (!payload)
			return REFUSED_BAD_IP;
	}
	/* TCP that the device is to segment: a shorter packet never has to be. */
	if (!payload && ip->nexthdr == IPPROTO_TCP && room > IPV6_LEAST_MTU) {
		p->marks |= PACKET_AGGREGATED;
		payload = room - sizeof(*ip);
	}
	set_lengths(p, sizeof(*ip) + payload, sizeof(*ip), room);
	p->key.version = 6;
	p->key.protocol = ip->nexthdr;
	p->ttl = ip->hop_limit;
	p->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	read_address(e->source, &ip->saddr);
	read_address(e->destination, &ip->daddr);
	return is_extension(p->key.protocol) ? walk_extensions(ctx, p) : DISSECTED;
}

/* Reads the IP header at p->l3, with options and extension headers; a verdict of enum refusal. */
static __always_inline int dissect_network(context *ctx, struct packet *p, struct endpoints *e)
{
	__u32 room = p->wire_length > p->l3 ? p->wire_length - p->l3 : 0;
	__u8 copy, *first = frame_at(ctx, p->l3, &copy, sizeof(copy));

	if (!first)
		return REFUSED_TRUNCATED_IP;
	/* What calls itself IPv4 is believed its version field, what calls itself IPv6 must be
	 * that. */
	if (*first >> 4 == 6)
		return network_v6(ctx, p, e, room);
	if (*first >> 4 == 4 && p->ethertype == ETH_P_IP)
		return network_v4(ctx, p, e, room);
	return REFUSED_BAD_IP;
}

#endif
