/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a tc program hands up the stack of its own: the datagram as it came, to another port. */
#ifndef RELAY_SKB_UP_H
#define RELAY_SKB_UP_H

/* Sends the datagram up to another port of this machine. */
static __always_inline int readdress(struct __sk_buff *skb, const struct ingress *in, __be16 port)
{
	const struct datagram *d = &in->datagram;
	__u32 at = d->packet.l4;
	__u32 ports = (__u32)(__u16)~bpf_htons(d->packet.destination_port) + port;

	bpf_l4_csum_replace(skb, at + __builtin_offsetof(struct udphdr, check), 0, ports,
			    BPF_F_MARK_MANGLED_0);
	bpf_skb_store_bytes(skb, at + __builtin_offsetof(struct udphdr, dest), &port, sizeof(port),
			    0);
	return TC_ACT_UNSPEC;
}

/* Gives a datagram without a checksum one, as copies must have and IPv6 demands. */
static __always_inline int complete(struct __sk_buff *skb, const struct datagram *d)
{
	__u32 at = header_length(d->packet.family) - sizeof(struct udphdr);
	__sum16 check = right_check(d);

	if (d->check)
		return 0;
	return bpf_skb_store_bytes(skb, at + __builtin_offsetof(struct udphdr, check), &check,
				   sizeof(check), 0);
}

/* The frame as it arrived but for its port, after its clones have been sent. */
static __always_inline int restore(struct walk *walk, const struct ingress *in)
{
	const struct packet *p = &in->datagram.packet;
	__be16 source_port = bpf_htons(p->source_port);
	struct member original = {
		.source = p->source,
		.destination = p->destination,
		.source_port = source_port,
		.destination_port = in->stream->copy_port,
		.address_sum = address_sum(p),
		.port_sum = csum_fold((__u32)source_port + in->stream->copy_port),
		.family = p->family,
		.ttl = p->ttl,
	};

	/* The stack looks at the addresses of Ethernet before a program can write them. */
	if (address(walk, &original))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

#endif
