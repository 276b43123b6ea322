/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The one header cursor: Ethernet, up to two VLAN tags, IPv4 with options, IPv6 with extension
 * headers, then UDP, TCP or ICMP. Twin of packet::parse: same fields, same verdicts.
 *
 * It reports offsets, not pointers, because a pointer dies with the first helper that changes the
 * packet. To read or write a header afterwards, take it again:
 *
 *	udp = packet_at(data, end, packet.l4, sizeof(*udp));
 *	if (!udp)
 *		return XDP_PASS;
 *
 * On tc the outer tag is usually not in the frame but in skb->vlan_tci (skb->vlan_present), so
 * vlan_tags counts only what is left in the data; XDP always sees tags in place. Also on tc, only
 * the linear part lies between data and end: parse_frame() takes the real length, and a header
 * beyond the linear part reads as truncated until bpf_skb_pull_data() has fetched it.
 */
#ifndef LOWROAD_PARSE_H
#define LOWROAD_PARSE_H

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PACKET_MAX_TAGS 2
#define PACKET_MAX_EXTENSIONS 6
/* Beyond any header (the last starts by 22 + 40 + 6 * 2048) and any jumbo payload's end. A power of
 * two, so that the verifier learns the bound from a mask.
 */
#define PACKET_MAX_OFFSET 32768

enum parse_verdict {
	PARSE_OK = 0,
	/* Another EtherType; l3 is where its payload starts. */
	PARSE_NOT_IP = 1,
	/* A transport other than UDP, TCP and ICMP; l4 is where it starts. */
	PARSE_UNSUPPORTED = 2,
	/* Any fragment. The first has its transport header parsed; of later ones l4 is the data. */
	PARSE_FRAGMENT = 3,
	PARSE_TOO_MANY_TAGS = 4,
	PARSE_TOO_MANY_EXTENSIONS = 5,

	/* From here on malformed: only fields of the headers before the bad one are set. */
	PARSE_MALFORMED = 16,
	PARSE_TRUNCATED_ETHERNET = 16,
	PARSE_TRUNCATED_VLAN = 17,
	PARSE_TRUNCATED_IP = 18,
	PARSE_BAD_VERSION = 19,
	PARSE_BAD_HEADER_LENGTH = 20,
	PARSE_BAD_TOTAL_LENGTH = 21,
	PARSE_TRUNCATED_EXTENSION = 22,
	PARSE_TRUNCATED_TRANSPORT = 23,
	PARSE_BAD_UDP_LENGTH = 24,
	PARSE_BAD_DATA_OFFSET = 25,
};

enum packet_fragment {
	FRAGMENT_NONE = 0,
	FRAGMENT_FIRST = 1,
	FRAGMENT_LATER = 2,
};

/* Numbers are in host order, addresses in network order. Offsets count from the frame's start. */
struct packet {
	/* IPv4 addresses are mapped (::ffff:a.b.c.d): the IPv4 part is in6_u.u6_addr32[3]. */
	struct in6_addr source;
	struct in6_addr destination;
	/* From the IP header's first byte to the packet's last; Ethernet padding is beyond. */
	__u32 ip_length;
	__u16 ethertype;
	__u16 l3;
	__u16 payload;
	__u16 l4;
	/* Outermost first; the VLAN id is the low 12 bits. */
	__u16 vlan_tci[PACKET_MAX_TAGS];
	__u16 source_port;
	__u16 destination_port;
	__u16 udp_length;
	__u8 vlan_tags;
	/* The transport, after extension headers. */
	__u8 protocol;
	/* AF_INET, AF_INET6, or 0 when there is no IP header. */
	__u8 family;
	__u8 fragment;
	__u8 extensions;
	__u8 ttl;
	/* DSCP and ECN: IPv4 TOS, IPv6 traffic class. */
	__u8 tos;
	__u8 tcp_flags;
	__u8 icmp_type;
	__u8 icmp_code;
};

_Static_assert(sizeof(struct packet) == 64, "no implicit padding");

/*
 * Makes paths that found different headers one path again for the verifier, which would otherwise
 * look at everything after the parser once for each of thousands of combinations: what is written
 * to the stack is read back as an unknown number. It forgets only numbers whose stack offset is
 * no multiple of 4, so the fields that steer the parser (l3, l4, protocol, fragment) have such.
 */
static __always_inline void packet_merge_paths(struct packet *p)
{
	asm volatile("" : : "r"(p) : "memory");
}

/* `size` bytes at `offset`, or NULL when they are not all in the packet; the offset is below
 * PACKET_MAX_OFFSET.
 */
static __always_inline void *packet_at(void *data, void *end, __u32 offset, __u32 size)
{
	void *at = data + (offset & (PACKET_MAX_OFFSET - 1));

	return at + size > end ? NULL : at;
}

static __always_inline void packet_map_ipv4(struct in6_addr *address, __be32 ipv4)
{
	address->in6_u.u6_addr32[0] = 0;
	address->in6_u.u6_addr32[1] = 0;
	address->in6_u.u6_addr32[2] = bpf_htonl(0xffff);
	address->in6_u.u6_addr32[3] = ipv4;
}

static __always_inline bool packet_is_tag(__u16 ethertype)
{
	return ethertype == ETH_P_8021Q || ethertype == ETH_P_8021AD;
}

static __always_inline bool packet_is_extension(__u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_AH ||
	       protocol == IPPROTO_DSTOPTS;
}

static __always_inline int parse_ethernet(void *data, void *end, struct packet *p)
{
	struct ethhdr *eth = data;
	struct vlan_hdr *tag;

	if ((void *)(eth + 1) > end)
		return PARSE_TRUNCATED_ETHERNET;
	p->ethertype = bpf_ntohs(eth->h_proto);
	p->l3 = sizeof(*eth);
#pragma unroll
	for (int i = 0; i < PACKET_MAX_TAGS; i++) {
		if (!packet_is_tag(p->ethertype))
			return PARSE_OK;
		tag = packet_at(data, end, p->l3, sizeof(*tag));
		if (!tag)
			return PARSE_TRUNCATED_VLAN;
		p->vlan_tci[i] = bpf_ntohs(tag->h_vlan_TCI);
		p->vlan_tags = i + 1;
		p->ethertype = bpf_ntohs(tag->h_vlan_encapsulated_proto);
		p->l3 += sizeof(*tag);
	}
	return packet_is_tag(p->ethertype) ? PARSE_TOO_MANY_TAGS : PARSE_OK;
}

static __always_inline int parse_ipv4(void *data, void *end, __u32 length, struct packet *p)
{
	struct iphdr *ip = packet_at(data, end, p->l3, sizeof(*ip));
	__u32 header;
	__u16 fragment;

	if (!ip)
		return PARSE_TRUNCATED_IP;
	if (ip->version != 4)
		return PARSE_BAD_VERSION;
	header = ip->ihl * 4;
	if (header < sizeof(*ip))
		return PARSE_BAD_HEADER_LENGTH;
	p->ip_length = bpf_ntohs(ip->tot_len);
	if (p->ip_length < header || p->l3 + p->ip_length > length)
		return PARSE_BAD_TOTAL_LENGTH;
	if (!packet_at(data, end, p->l3 + header, 0))
		return PARSE_TRUNCATED_IP;

	p->family = AF_INET;
	p->tos = ip->tos;
	p->ttl = ip->ttl;
	p->protocol = ip->protocol;
	packet_map_ipv4(&p->source, ip->saddr);
	packet_map_ipv4(&p->destination, ip->daddr);
	p->l4 = p->l3 + header;
	fragment = bpf_ntohs(ip->frag_off);
	if (fragment & IP_OFFSET)
		p->fragment = FRAGMENT_LATER;
	else if (fragment & IP_MF)
		p->fragment = FRAGMENT_FIRST;
	return PARSE_OK;
}

/* One extension header at p->l4; returns its size, or 0 when it is cut off. */
static __always_inline __u32 parse_extension(void *data, void *end, struct packet *p)
{
	__u8 *extension = packet_at(data, end, p->l4, 8);
	__u32 size = 8;
	__u16 fragment;

	if (!extension)
		return 0;
	if (p->protocol == IPPROTO_FRAGMENT) {
		fragment = (extension[2] << 8) | extension[3];
		/* Neither offset nor more: a whole packet in fragment's clothing (RFC 6946). */
		if (fragment & 0xfff8)
			p->fragment = FRAGMENT_LATER;
		else if (fragment & 1)
			p->fragment = FRAGMENT_FIRST;
	} else if (p->protocol == IPPROTO_AH) {
		size = (extension[1] + 2) * 4;
	} else {
		size = (extension[1] + 1) * 8;
	}
	p->protocol = extension[0];
	return size;
}

static __always_inline int parse_extensions(void *data, void *end, struct packet *p)
{
	__u32 size;

	/* Unrolled: 6.1 refuses a loop whose last instruction falls through to its first. */
#pragma unroll
	for (int i = 0; i < PACKET_MAX_EXTENSIONS; i++) {
		if (!packet_is_extension(p->protocol) || p->fragment == FRAGMENT_LATER)
			return PARSE_OK;
		size = parse_extension(data, end, p);
		if (!size || p->l4 + size > p->l3 + p->ip_length)
			return PARSE_TRUNCATED_EXTENSION;
		p->l4 += size;
		p->extensions = i + 1;
		packet_merge_paths(p);
	}
	if (p->fragment == FRAGMENT_LATER)
		return PARSE_OK;
	return packet_is_extension(p->protocol) ? PARSE_TOO_MANY_EXTENSIONS : PARSE_OK;
}

static __always_inline int parse_ipv6(void *data, void *end, __u32 length, struct packet *p)
{
	struct ipv6hdr *ip = packet_at(data, end, p->l3, sizeof(*ip));

	if (!ip)
		return PARSE_TRUNCATED_IP;
	if (ip->version != 6)
		return PARSE_BAD_VERSION;
	p->ip_length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (p->l3 + p->ip_length > length)
		return PARSE_BAD_TOTAL_LENGTH;

	p->family = AF_INET6;
	p->tos = (ip->priority << 4) | (ip->flow_lbl[0] >> 4);
	p->ttl = ip->hop_limit;
	p->protocol = ip->nexthdr;
	p->source = ip->saddr;
	p->destination = ip->daddr;
	p->l4 = p->l3 + sizeof(*ip);
	return parse_extensions(data, end, p);
}

static __always_inline int parse_udp(struct udphdr *udp, __u32 room, struct packet *p)
{
	if (!udp || room < sizeof(*udp))
		return PARSE_TRUNCATED_TRANSPORT;
	p->udp_length = bpf_ntohs(udp->len);
	/* The first fragment's length is the whole datagram's. */
	if (p->udp_length < sizeof(*udp) || (p->udp_length > room && p->fragment == FRAGMENT_NONE))
		return PARSE_BAD_UDP_LENGTH;
	p->source_port = bpf_ntohs(udp->source);
	p->destination_port = bpf_ntohs(udp->dest);
	p->payload = p->l4 + sizeof(*udp);
	return PARSE_OK;
}

static __always_inline int parse_tcp(struct tcphdr *tcp, __u32 room, struct packet *p)
{
	__u16 offset_flags;
	__u32 header;

	if (!tcp || room < sizeof(*tcp))
		return PARSE_TRUNCATED_TRANSPORT;
	offset_flags = bpf_ntohs(tcp->offset_flags);
	header = (offset_flags >> 12) * 4;
	if (header < sizeof(*tcp) || header > room)
		return PARSE_BAD_DATA_OFFSET;
	p->source_port = bpf_ntohs(tcp->source);
	p->destination_port = bpf_ntohs(tcp->dest);
	p->tcp_flags = offset_flags & 0xff;
	p->payload = p->l4 + header;
	return PARSE_OK;
}

static __always_inline int parse_icmp(struct icmphdr *icmp, __u32 room, struct packet *p)
{
	if (!icmp || room < sizeof(*icmp))
		return PARSE_TRUNCATED_TRANSPORT;
	p->icmp_type = icmp->type;
	p->icmp_code = icmp->code;
	p->payload = p->l4 + sizeof(*icmp);
	return PARSE_OK;
}

static __always_inline int parse_transport(void *data, void *end, struct packet *p)
{
	__u32 room = p->l3 + p->ip_length - p->l4;

	if (p->protocol == IPPROTO_UDP)
		return parse_udp(packet_at(data, end, p->l4, sizeof(struct udphdr)), room, p);
	if (p->protocol == IPPROTO_TCP)
		return parse_tcp(packet_at(data, end, p->l4, sizeof(struct tcphdr)), room, p);
	if (p->protocol == (p->family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return parse_icmp(packet_at(data, end, p->l4, sizeof(struct icmphdr)), room, p);
	p->payload = p->l4;
	return PARSE_UNSUPPORTED;
}

/* Parses a frame of `length` bytes of which those before `end` can be read. */
static __always_inline int parse_frame(void *data, void *end, __u32 length, struct packet *p)
{
	int verdict;

	__builtin_memset(p, 0, sizeof(*p));
	verdict = parse_ethernet(data, end, p);
	if (verdict != PARSE_OK)
		return verdict;
	packet_merge_paths(p);
	if (p->ethertype == ETH_P_IP)
		verdict = parse_ipv4(data, end, length, p);
	else if (p->ethertype == ETH_P_IPV6)
		verdict = parse_ipv6(data, end, length, p);
	else
		return PARSE_NOT_IP;
	if (verdict != PARSE_OK)
		return verdict;
	packet_merge_paths(p);
	if (p->fragment == FRAGMENT_LATER) {
		p->payload = p->l4;
		return PARSE_FRAGMENT;
	}
	verdict = parse_transport(data, end, p);
	packet_merge_paths(p);
	return verdict == PARSE_OK && p->fragment ? PARSE_FRAGMENT : verdict;
}

/* Parses a frame that lies between `data` and `end` whole: XDP without multi-buffer. */
static __always_inline int parse_packet(void *data, void *end, struct packet *p)
{
	return parse_frame(data, end, end - data, p);
}

#endif
