/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Ports where a protocol has them, TCP's flags and windows, ICMP's kind: twin of
 * features::dissect::transport.
 */
#ifndef FEATURES_TRANSPORT_H
#define FEATURES_TRANSPORT_H

#include "network.h"

#define IPPROTO_DCCP 33
#define IPPROTO_UDPLITE 136

#define TCP_SMALLEST 20
/* RFC 1122: options are up to 40 bytes, and may be one byte each. */
#define TCP_MOST_OPTIONS 40

/* Where the transport is: `readable` of its bytes were captured, `room` are the packet's. */
struct transport {
	context *ctx;
	__u32 at;
	__u32 readable;
	__u32 room;
};

/* Its first `size` bytes, there or in `room`; NULL when they cannot be read. */
static __always_inline void *transport_bytes(const struct transport *t, void *room, __u32 size)
{
	return t->readable >= size ? frame_at(t->ctx, t->at, room, size) : NULL;
}

/* A header of `size` bytes that starts with two ports. */
static __always_inline void with_ports(const struct transport *t, __u32 size, struct packet *p,
				       struct endpoints *e)
{
	__be16 copy[2], *ports = transport_bytes(t, copy, sizeof(copy));

	p->l4_header = least(size, t->room);
	if (t->readable < size)
		p->marks |= PACKET_HEADLESS;
	if (t->room < size)
		p->marks |= PACKET_MALFORMED;
	if (ports) {
		e->source_port = bpf_ntohs(ports[0]);
		e->destination_port = bpf_ntohs(ports[1]);
	}
}

static __always_inline void transport_udp(const struct transport *t, struct packet *p,
					  struct endpoints *e)
{
	__be16 copy[3], *words = transport_bytes(t, copy, sizeof(copy));
	bool impossible, too_long;
	__u16 declared;

	with_ports(t, sizeof(struct udphdr), p, e);
	if (!words)
		return;
	declared = bpf_ntohs(words[2]);
	/* A jumbogram declares no length (RFC 2675), a first fragment the whole datagram's. */
	impossible = declared < sizeof(struct udphdr) && (declared || p->key.version == 4);
	too_long = declared > t->room && p->fragment == FRAGMENT_NONE;
	if (impossible || too_long)
		p->marks |= PACKET_MALFORMED;
	if (impossible)
		p->marks |= PACKET_HEADLESS;
}

struct tcp_options {
	context *ctx;
	/* The verdict: whether `value` is a window scale. */
	struct walk walk;
};

static long next_tcp_option(__u32 index, void *context)
{
	enum {
		END = 0,
		NO_OPERATION = 1,
		WINDOW_SCALE = 3,
	};
	struct tcp_options *o = context;
	__u8 option[3] = {};

	if (o->walk.at >= o->walk.end)
		return 1;
	if (frame_load(o->ctx, o->walk.at, option, 1) || option[0] == END)
		return 1;
	if (option[0] == NO_OPERATION) {
		o->walk.at++;
		return 0;
	}
	if (o->walk.at + 2 > o->walk.end || frame_load(o->ctx, o->walk.at, option, 2))
		return 1;
	if (option[0] == WINDOW_SCALE && option[1] == 3 && o->walk.at + 3 <= o->walk.end) {
		o->walk.verdict = !frame_load(o->ctx, o->walk.at, option, 3);
		o->walk.value = option[2];
		return 1;
	}
	o->walk.at += option[1];
	return option[1] < 2;
}

static __always_inline void read_window_scale(context *ctx, struct packet *p)
{
	__u32 tcp = p->l3 + p->ip_header;
	struct tcp_options options = { .ctx = ctx };

	options.walk.at = tcp + TCP_SMALLEST;
	options.walk.end = tcp + p->l4_header;
	bpf_loop(TCP_MOST_OPTIONS, next_tcp_option, &options, 0);
	if (!options.walk.verdict)
		return;
	p->marks |= PACKET_WINDOW_SCALE;
	p->window_scale = options.walk.value;
}

static __always_inline void transport_tcp(const struct transport *t, struct packet *p,
					  struct endpoints *e)
{
	struct tcphdr copy, *tcp = transport_bytes(t, &copy, sizeof(copy));
	__u16 offset_flags;
	__u32 size;

	with_ports(t, TCP_SMALLEST, p, e);
	if (!tcp)
		return;
	offset_flags = bpf_ntohs(tcp->offset_flags);
	size = (offset_flags >> 12) * 4;
	if (size < TCP_SMALLEST || size > t->room) {
		p->marks |= PACKET_MALFORMED | PACKET_HEADLESS;
	} else {
		p->l4_header = size;
		if (t->readable < size)
			p->marks |= PACKET_HEADLESS;
	}
	p->marks |= PACKET_TCP;
	p->tcp_flags = offset_flags;
	p->tcp_reserved = offset_flags >> 8 & 0x0f;
	p->sequence = bpf_ntohl(tcp->seq);
	p->acknowledgement = bpf_ntohl(tcp->ack_seq);
	p->window = bpf_ntohs(tcp->window);
	if (p->tcp_flags & TCP_SYN && t->readable >= p->l4_header)
		read_window_scale(t->ctx, p);
}

static __always_inline void transport_icmp(const struct transport *t, struct packet *p,
					   struct endpoints *e)
{
	struct icmphdr copy, *icmp = transport_bytes(t, &copy, sizeof(copy));
	bool asks;

	p->l4_header = least(t->room, sizeof(*icmp));
	if (t->room < sizeof(*icmp))
		p->marks |= PACKET_MALFORMED;
	if (!icmp)
		return;
	p->marks |= PACKET_ICMP;
	p->icmp_kind = icmp->type;
	p->icmp_code = icmp->code;
	/* Echoes, of both versions: the identifier is the port of the side that asks. */
	asks = icmp->type == 8 || icmp->type == 128;
	if (!asks && icmp->type != 0 && icmp->type != 129)
		return;
	p->icmp_identifier = bpf_ntohs(icmp->un.echo.id);
	if (asks && !ignore_icmp_id)
		e->source_port = p->icmp_identifier;
	else if (!ignore_icmp_id)
		e->destination_port = p->icmp_identifier;
}

/* Reads the transport header behind p->ip_header. */
static __always_inline void dissect_transport(context *ctx, struct packet *p, struct endpoints *e)
{
	__u32 at = p->l3 + p->ip_header;
	__u32 captured = frame_readable(ctx);
	__u32 stop = p->ip_length < captured - p->l3 ? p->l3 + p->ip_length : captured;
	struct transport t = {
		.ctx = ctx,
		.at = at,
		.readable = stop > at ? stop - at : 0,
		.room = p->payload_length,
	};
	__u8 icmp = p->key.version == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6;

	if (p->fragment == FRAGMENT_LATER)
		p->marks |= PACKET_HEADLESS;
	else if (p->key.protocol == IPPROTO_TCP)
		transport_tcp(&t, p, e);
	else if (p->key.protocol == IPPROTO_UDP)
		transport_udp(&t, p, e);
	else if (p->key.protocol == IPPROTO_UDPLITE)
		with_ports(&t, 8, p, e);
	else if (p->key.protocol == IPPROTO_SCTP || p->key.protocol == IPPROTO_DCCP)
		with_ports(&t, 12, p, e);
	else if (p->key.protocol == icmp)
		transport_icmp(&t, p, e);
	p->payload_length -= least(p->l4_header, p->payload_length);
}

#endif
