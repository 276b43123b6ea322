// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Answers, for one frame, what each shared header makes of it. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "lowroad/csum.h"
#include "lowroad/histogram.h"
#include "lowroad/license.h"
#include "lowroad/parse.h"
#include "lowroad/payload.h"

struct packet parsed;
int verdict;

__u64 value;
__u32 bucket;

struct payload header;
__u32 has_header;

__u16 udp_check;
__u32 is_partial;

SEC("xdp")
int parse(struct xdp_md *ctx)
{
	struct packet packet;

	verdict = parse_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end, &packet);
	parsed = packet;
	return XDP_PASS;
}

/* As tc sees a frame: its linear part may end before the frame does. */
SEC("tc")
int parse_linear(struct __sk_buff *skb)
{
	struct packet packet;

	verdict = parse_frame((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len,
			      &packet);
	parsed = packet;
	return TC_ACT_OK;
}

SEC("xdp")
int find_bucket(struct xdp_md *ctx)
{
	bucket = histogram_bucket(value);
	return XDP_PASS;
}

SEC("xdp")
int find_payload(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct payload *found = payload_at(data, end);

	has_header = found != NULL;
	if (found)
		header = *found;
	return XDP_PASS;
}

__noinline int sum_datagram(struct xdp_md *ctx, __u32 offset, __u32 length)
{
	return csum_bytes((void *)(long)ctx->data, (void *)(long)ctx->data_end, offset, length, 0);
}

/* The UDP checksum the frame should carry, and whether what it carries is partial. */
SEC("xdp")
int sum_udp(struct xdp_md *ctx)
{
	struct packet p;
	struct udphdr *udp;
	__u32 pseudo;
	int sum;

	if (parse_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end, &p) != PARSE_OK ||
	    p.protocol != IPPROTO_UDP)
		return XDP_DROP;
	sum = sum_datagram(ctx, p.l4, p.udp_length);
	if (sum < 0)
		return XDP_ABORTED;
	udp = packet_at((void *)(long)ctx->data, (void *)(long)ctx->data_end, p.l4, sizeof(*udp));
	if (!udp)
		return XDP_ABORTED;
	pseudo = csum_pseudo(&p.source, &p.destination, IPPROTO_UDP, p.udp_length);
	is_partial = udp_csum_is_partial(udp->check, pseudo);
	udp_check = udp_csum_finish(sum, pseudo, udp->check);
	return XDP_PASS;
}

/* Rewrites TTL, addresses and ports as a relay does, and keeps both checksums right. */
SEC("xdp")
int rewrite(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__be32 to = bpf_htonl(0xc6336407);
	__be16 port = bpf_htons(5004);
	struct packet p;
	struct udphdr *udp;
	struct iphdr *ip;

	if (parse_packet(data, end, &p) != PARSE_OK || p.protocol != IPPROTO_UDP ||
	    p.family != AF_INET)
		return XDP_DROP;
	ip = packet_at(data, end, p.l3, sizeof(*ip));
	udp = packet_at(data, end, p.l4, sizeof(*udp));
	if (!ip || !udp)
		return XDP_ABORTED;
	ip->check = csum_replace2(ip->check, bpf_htons(ip->ttl << 8), bpf_htons((ip->ttl - 1) << 8));
	ip->ttl--;
	ip->check = csum_replace4(ip->check, ip->daddr, to);
	udp->check = udp_csum_replace4(udp->check, ip->daddr, to);
	udp->check = udp_csum_replace2(udp->check, udp->dest, port);
	ip->daddr = to;
	udp->dest = port;
	return XDP_PASS;
}
