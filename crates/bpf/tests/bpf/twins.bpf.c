// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Answers, for one frame, what each shared header makes of it. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "lowroad/csum.h"
#include "lowroad/histogram.h"
#include "lowroad/license.h"
#include "lowroad/parse.h"
#include "lowroad/payload.h"

struct answer {
	struct packet packet;
	struct payload payload;
	__s32 verdict;
	__u32 bucket;
	__u32 has_payload;
	__u32 checksum;
	__u32 is_partial;
	__u32 zero;
};

_Static_assert(sizeof(struct answer) == 128, "the test reads it by offset");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct answer);
} answers SEC(".maps");

static __always_inline struct answer *answer(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&answers, &key);
}

SEC("xdp")
int parse(struct xdp_md *ctx)
{
	struct answer *out = answer();
	struct packet packet;

	if (!out)
		return XDP_ABORTED;
	out->verdict = parse_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end, &packet);
	out->packet = packet;
	return XDP_PASS;
}

/* As tc sees a frame: its linear part may end before the frame does. */
SEC("tc")
int parse_linear(struct __sk_buff *skb)
{
	struct answer *out = answer();
	struct packet packet;

	if (!out)
		return TC_ACT_SHOT;
	out->verdict = parse_frame((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len,
				   &packet);
	out->packet = packet;
	return TC_ACT_OK;
}

/* The bucket of the frame's first eight bytes. */
SEC("xdp")
int find_bucket(struct xdp_md *ctx)
{
	__u64 *value = packet_at((void *)(long)ctx->data, (void *)(long)ctx->data_end, 0, 8);
	struct answer *out = answer();

	if (!out || !value)
		return XDP_ABORTED;
	out->bucket = histogram_bucket(*value);
	return XDP_PASS;
}

/* The generated header, were the whole frame a payload. */
SEC("xdp")
int find_payload(struct xdp_md *ctx)
{
	struct payload *found = payload_at((void *)(long)ctx->data, (void *)(long)ctx->data_end);
	struct answer *out = answer();

	if (!out)
		return XDP_ABORTED;
	out->has_payload = found != NULL;
	if (found)
		out->payload = *found;
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
	struct answer *out = answer();
	struct packet p;
	struct udphdr *udp;
	__u32 pseudo;
	int sum;

	if (!out)
		return XDP_ABORTED;
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
	out->is_partial = udp_csum_is_partial(udp->check, pseudo);
	out->checksum = udp_csum_finish(sum, pseudo, udp->check);
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
	ip->check =
		csum_replace2(ip->check, bpf_htons(ip->ttl << 8), bpf_htons((ip->ttl - 1) << 8));
	ip->ttl--;
	ip->check = csum_replace4(ip->check, ip->daddr, to);
	udp->check = udp_csum_replace4(udp->check, ip->daddr, to);
	udp->check = udp_csum_replace2(udp->check, udp->dest, port);
	ip->daddr = to;
	udp->dest = port;
	return XDP_PASS;
}
