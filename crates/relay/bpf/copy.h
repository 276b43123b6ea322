/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What an XDP program hands up besides what it forwards: diverted datagrams through the network
 * stack, copies through a ring buffer, as XDP cannot both pass and redirect a frame.
 */
#ifndef RELAY_COPY_H
#define RELAY_COPY_H

#include "ingress.h"

/* Two sizes of record, this head included, so that small datagrams do not waste the ring. */
#define COPY_SMALL 512
#define COPY_LARGE 9216

struct copy {
	__u32 stream;
	/* Of the IP packet behind it, which has no options and a right UDP checksum. */
	__u16 length;
	__u16 family;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} copies SEC(".maps");

/* To another port of this machine. A partial checksum does not cover the ports. */
static __always_inline void readdress(struct udphdr *udp, const struct datagram *d, __be16 port)
{
	if (!d->partial)
		udp->check = udp_csum_replace2(udp->check, udp->dest, port);
	udp->dest = port;
}

static __always_inline int divert(struct xdp_md *ctx, const struct ingress *in)
{
	const struct datagram *d = &in->datagram;
	struct udphdr *udp = packet_at((void *)(long)ctx->data, (void *)(long)ctx->data_end,
				       d->packet.l4, sizeof(*udp));

	if (!udp)
		return XDP_ABORTED;
	readdress(udp, d, in->stream->shadow_port);
	return XDP_PASS;
}

/* Fills a record with the IP packet, sent to the copy port. */
static __always_inline int fill(struct xdp_md *ctx, const struct ingress *in, struct copy *head,
				__u8 *packet, __u32 room)
{
	const struct datagram *d = &in->datagram;
	__u16 family = d->packet.family;
	__u32 header = network_length(family);
	__u32 length = header + sizeof(struct udphdr) + d->payload_length;
	struct udphdr *udp = (void *)packet + (family == AF_INET6 ? 40 : 20);
	__u32 sum;

	if (length > room)
		return -1;
	/* The compiler knows that there are headers; 6.1 wants to see it. */
	barrier_var(length);
	if (length < sizeof(struct iphdr) || bpf_xdp_load_bytes(ctx, d->packet.l3, packet, length))
		return -1;
	head->stream = in->slot;
	head->length = length;
	head->family = family;
	udp->dest = in->stream->copy_port;
	sum = (__u32)d->payload_sum + d->pseudo_sum + udp->source + udp->dest + udp->len;
	udp->check = csum_udp_nonzero(~csum_fold(sum));
	return 0;
}

/* `size`: of the record, a constant. */
static __always_inline int copy_in(struct xdp_md *ctx, const struct ingress *in, __u32 size)
{
	struct copy *copy = bpf_ringbuf_reserve(&copies, size, 0);

	if (!copy)
		return -1;
	if (fill(ctx, in, copy, (__u8 *)(copy + 1), size - sizeof(*copy))) {
		bpf_ringbuf_discard(copy, 0);
		return -1;
	}
	bpf_ringbuf_submit(copy, 0);
	return 0;
}

static __always_inline void copy_up(struct xdp_md *ctx, const struct ingress *in)
{
	__u32 headers = sizeof(struct copy) + sizeof(struct ipv6hdr) + sizeof(struct udphdr);
	bool small = in->datagram.payload_length + headers <= COPY_SMALL;

	if (small ? copy_in(ctx, in, COPY_SMALL) : copy_in(ctx, in, COPY_LARGE))
		in->counters->copies_lost++;
}

#endif
