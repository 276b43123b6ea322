/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The UDP datagram a frame carries: where it goes, and its payload. Not lowroad/parse.h, because
 * the time of a probe is part of what every arm is charged: this reads three fields and no more.
 */
#ifndef PROBES_DATAGRAM_H
#define PROBES_DATAGRAM_H

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Bytes that must be readable: headers, and as much of the payload as identifies a packet. */
#define DATAGRAM_READ 256
/* ::ffff:0:0/96 in network byte order, its last four bytes zero. */
#define IPV4_MAPPED 0x00000000ffff0000ULL

struct datagram {
	/* The destination; IPv4 as IPv4-mapped IPv6; network byte order. */
	__u64 address[2];
	__be16 port;
	void *payload;
	/* Bytes of payload as UDP says: a short frame is padded, a long one is linear in part. */
	__u32 length;
	/* Of what can be read. */
	void *end;
};

static __always_inline void *ipv4_payload(struct datagram *datagram, void *at)
{
	struct iphdr *ip = at;

	if ((void *)(ip + 1) > datagram->end || ip->protocol != IPPROTO_UDP || ip->ihl < 5)
		return NULL;
	/* A fragment past the first has no UDP header, and the first not the whole payload. */
	if (ip->frag_off & bpf_htons(IP_MF | IP_OFFSET))
		return NULL;
	datagram->address[0] = 0;
	datagram->address[1] = IPV4_MAPPED | (__u64)ip->daddr << 32;
	return at + ip->ihl * 4;
}

static __always_inline void *ipv6_payload(struct datagram *datagram, void *at)
{
	struct ipv6hdr *ip = at;

	if ((void *)(ip + 1) > datagram->end || ip->nexthdr != IPPROTO_UDP)
		return NULL;
	__builtin_memcpy(datagram->address, &ip->daddr, sizeof(datagram->address));
	return at + sizeof(*ip);
}

/* Whether the frame carries a whole UDP datagram. */
static __always_inline int read_datagram(struct __sk_buff *skb, struct datagram *datagram)
{
	struct ethhdr *ethernet;
	struct udphdr *udp = NULL;

	if (skb->data_end - skb->data < DATAGRAM_READ && skb->data_end - skb->data < skb->len)
		bpf_skb_pull_data(skb, skb->len < DATAGRAM_READ ? skb->len : DATAGRAM_READ);
	datagram->end = (void *)(long)skb->data_end;
	ethernet = (void *)(long)skb->data;
	if ((void *)(ethernet + 1) > datagram->end)
		return 0;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP))
		udp = ipv4_payload(datagram, ethernet + 1);
	else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		udp = ipv6_payload(datagram, ethernet + 1);
	if (!udp || (void *)(udp + 1) > datagram->end || bpf_ntohs(udp->len) < sizeof(*udp))
		return 0;
	datagram->port = udp->dest;
	datagram->payload = udp + 1;
	datagram->length = bpf_ntohs(udp->len) - sizeof(*udp);
	return 1;
}

#endif
