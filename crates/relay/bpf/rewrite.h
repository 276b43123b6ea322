/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Writes the headers of one copy, whole: nothing of what arrived is left in them by accident. */
#ifndef RELAY_REWRITE_H
#define RELAY_REWRITE_H

#include "datagram.h"
#include "table.h"

/* What copies of one datagram have in common. */
struct origin {
	__u16 payload_length;
	__u16 payload_sum;
	__u8 tos;
	__u8 ttl;
};

static __always_inline __u32 header_length(__u16 family)
{
	return ETH_HLEN + network_length(family) + sizeof(struct udphdr);
}

static __always_inline __u8 ttl_of(const struct member *member, const struct origin *origin)
{
	return member->ttl ? member->ttl : origin->ttl - 1;
}

static __always_inline void write_ethernet(struct ethhdr *eth, const struct member *member,
					   __be16 protocol)
{
	__builtin_memcpy(eth->h_dest, member->destination_mac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, member->source_mac, ETH_ALEN);
	eth->h_proto = protocol;
}

static __always_inline void write_ipv4(struct iphdr *ip, const struct member *member,
				       const struct origin *origin)
{
	__be16 length = bpf_htons(origin->payload_length + sizeof(struct udphdr) + sizeof(*ip));
	__u8 ttl = ttl_of(member, origin);
	__u32 sum = (__u32)member->address_sum + bpf_htons(0x4500 | origin->tos) + length +
		    bpf_htons(IP_DF) + bpf_htons(ttl << 8 | IPPROTO_UDP);

	ip->version = 4;
	ip->ihl = 5;
	ip->tos = origin->tos;
	ip->tot_len = length;
	ip->id = 0;
	ip->frag_off = bpf_htons(IP_DF);
	ip->ttl = ttl;
	ip->protocol = IPPROTO_UDP;
	ip->check = ~csum_fold(sum);
	ip->saddr = member->source.in6_u.u6_addr32[3];
	ip->daddr = member->destination.in6_u.u6_addr32[3];
}

static __always_inline void write_ipv6(struct ipv6hdr *ip, const struct member *member,
				       const struct origin *origin)
{
	ip->version = 6;
	ip->priority = origin->tos >> 4;
	ip->flow_lbl[0] = origin->tos << 4;
	ip->flow_lbl[1] = 0;
	ip->flow_lbl[2] = 0;
	ip->payload_len = bpf_htons(origin->payload_length + sizeof(struct udphdr));
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = ttl_of(member, origin);
	ip->saddr = member->source;
	ip->daddr = member->destination;
}

static __always_inline void write_udp(struct udphdr *udp, const struct member *member,
				      const struct origin *origin)
{
	__be16 length = bpf_htons(origin->payload_length + sizeof(*udp));
	/* The length counts twice: once in the pseudo-header. */
	__u32 sum = (__u32)origin->payload_sum + member->address_sum + member->port_sum +
		    bpf_htons(IPPROTO_UDP) + 2 * (__u32)length;

	udp->source = member->source_port;
	udp->dest = member->destination_port;
	udp->len = length;
	udp->check = csum_udp_nonzero(~csum_fold(sum));
}

/* Writes all headers at the start of a frame; negative when it is too short for them. */
static __always_inline int write_headers(void *data, void *end, const struct member *member,
					 const struct origin *origin)
{
	void *network = data + ETH_HLEN;

	if (member->family == AF_INET6) {
		struct udphdr *udp = network + sizeof(struct ipv6hdr);

		if ((void *)(udp + 1) > end)
			return -1;
		write_ethernet(data, member, bpf_htons(ETH_P_IPV6));
		write_ipv6(network, member, origin);
		write_udp(udp, member, origin);
	} else {
		struct udphdr *udp = network + sizeof(struct iphdr);

		if ((void *)(udp + 1) > end)
			return -1;
		write_ethernet(data, member, bpf_htons(ETH_P_IP));
		write_ipv4(network, member, origin);
		write_udp(udp, member, origin);
	}
	return 0;
}

#endif
