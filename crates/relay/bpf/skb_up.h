/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a tc program hands up the stack of its own: the datagram as it came, to another port. */
#ifndef RELAY_SKB_UP_H
#define RELAY_SKB_UP_H

static __always_inline __u32 udp_at(const struct datagram *d)
{
	return d->network + network_length(d);
}

/* Sends the datagram up to another port of this machine. */
static __always_inline int readdress(struct __sk_buff *skb, const struct ingress *in, __be16 port)
{
	const struct datagram *d = &in->datagram;
	__u32 at = udp_at(d);
	__u32 ports = (__u32)(__u16)~d->destination_port + port;

	bpf_l4_csum_replace(skb, at + __builtin_offsetof(struct udphdr, check), 0, ports,
			    BPF_F_MARK_MANGLED_0);
	bpf_skb_store_bytes(skb, at + __builtin_offsetof(struct udphdr, dest), &port, sizeof(port),
			    0);
	return TC_ACT_UNSPEC;
}

/* Gives a datagram without a checksum one, as copies must have and IPv6 demands. */
static __always_inline int complete(struct __sk_buff *skb, const struct datagram *d)
{
	__u32 at = header_length(d->family) - sizeof(struct udphdr);
	__u16 check;

	if (d->check)
		return 0;
	check = ~fold((__u64)d->payload_sum + d->pseudo_sum + d->source_port + d->destination_port +
		      bpf_htons(d->payload_length + sizeof(struct udphdr)));
	if (!check)
		check = 0xffff;
	return bpf_skb_store_bytes(skb, at + __builtin_offsetof(struct udphdr, check), &check,
				   sizeof(check), 0);
}

/* The frame as it arrived but for its port, after its clones have been sent. */
static __always_inline int restore(struct walk *walk, const struct ingress *in)
{
	const struct datagram *d = &in->datagram;
	struct member original = {
		.source = d->source,
		.destination = d->destination,
		.source_port = d->source_port,
		.destination_port = in->stream->copy_port,
		.address_sum = fold(sum_address(&d->source) + sum_address(&d->destination)),
		.port_sum = fold((__u64)d->source_port + in->stream->copy_port),
		.family = d->family,
		.ttl = d->ttl,
	};

	/* The stack looks at the addresses of Ethernet before a program can write them. */
	if (address(walk, &original))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

#endif
