// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Decides which frames are a stream's, and has the network stack send a clone to every subscriber.
 * Works on every device, and under senders that leave segmentation or checksums to it.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "lowroad/license.h"

typedef struct __sk_buff context;

#define load_bytes bpf_skb_load_bytes

#include "punt.h"
#include "rewrite.h"

/* One frame on its way through a group: what its headers are now, and what it carries. */
struct walk {
	struct __sk_buff *skb;
	struct origin origin;
	__u16 family;
	__u16 address_sum;
	__u16 port_sum;
	__u32 group;
	__u32 packets;
	/* Payload bytes of all datagrams in the frame, and of the longest. */
	__u32 bytes;
	__u32 longest;
	/* The member that gets the frame itself instead of a clone. */
	__u32 last;
	__u32 redirect;
	bool direct;
};

/*
 * Both sums are replaced by helpers that know what the stack knows and a program cannot see: a
 * partial checksum covers the addresses but not the ports, and stays partial.
 */
static __always_inline void replace_sums(struct walk *walk, __u16 address_sum, __u16 port_sum)
{
	__u32 at = header_length(walk->family) - sizeof(struct udphdr) +
		   __builtin_offsetof(struct udphdr, check);
	__u32 addresses = (__u32)(__u16)~walk->address_sum + address_sum;
	__u32 ports = (__u32)(__u16)~walk->port_sum + port_sum;

	bpf_l4_csum_replace(walk->skb, at, 0, addresses, BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0);
	bpf_l4_csum_replace(walk->skb, at, 0, ports, BPF_F_MARK_MANGLED_0);
	walk->address_sum = address_sum;
	walk->port_sum = port_sum;
}

static __always_inline int change_family(struct walk *walk, __u16 family)
{
	__be16 protocol = family == AF_INET6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);

	if (walk->family == family)
		return 0;
	if (bpf_skb_change_proto(walk->skb, protocol, 0))
		return -1;
	walk->family = family;
	return 0;
}

static __always_inline int address(struct walk *walk, const struct member *member)
{
	struct __sk_buff *skb = walk->skb;
	void *data, *end, *network;
	struct udphdr *udp;

	if (change_family(walk, member->family))
		return -1;
	replace_sums(walk, member->address_sum, member->port_sum);
	if (bpf_skb_pull_data(skb, header_length(member->family)))
		return -1;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	network = data + ETH_HLEN;
	udp = network +
	      (member->family == AF_INET6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	if ((void *)(udp + 1) > end || network + sizeof(struct iphdr) > end)
		return -1;
	if (member->family == AF_INET6) {
		if (network + sizeof(struct ipv6hdr) > end)
			return -1;
		write_ethernet(data, member, bpf_htons(ETH_P_IPV6));
		write_ipv6(network, member, &walk->origin);
	} else {
		write_ethernet(data, member, bpf_htons(ETH_P_IP));
		write_ipv4(network, member, &walk->origin);
	}
	udp->source = member->source_port;
	udp->dest = member->destination_port;
	return 0;
}

static long send_next(__u32 i, struct walk *walk)
{
	struct member *member = member_at(walk->group, i);
	__u32 headers;

	if (!member)
		return 1;
	headers = header_length(member->family) - ETH_HLEN;
	if (headers + walk->longest > member->mtu) {
		refuse(member, DROP_TOO_BIG, walk->packets);
		return 0;
	}
	if (address(walk, member)) {
		refuse(member, DROP_TRANSMIT, walk->packets);
		return 0;
	}
	if (i == walk->last) {
		walk->redirect = member->ifindex;
		walk->direct = member->flags & MEMBER_DIRECT;
	} else if (bpf_clone_redirect(walk->skb, member->ifindex, 0)) {
		refuse(member, DROP_TRANSMIT, walk->packets);
		return 0;
	}
	deliver(member->subscriber, walk->packets, walk->bytes);
	return 0;
}

static __always_inline __u16 address_sum(const struct packet *p)
{
	return csum_fold(csum_address(csum_address(0, &p->source), &p->destination));
}

#include "skb_out.h"

static __always_inline int fan_out(struct __sk_buff *skb, const struct ingress *in)
{
	const struct datagram *d = &in->datagram;
	const struct packet *p = &d->packet;
	__u32 slot = in->stream->group;
	struct group *group = bpf_map_lookup_elem(&groups, &slot);
	struct walk walk = {
		.skb = skb,
		.origin = { .payload_length = d->payload_length, .tos = p->tos, .ttl = p->ttl },
		.family = p->family,
		.address_sum = address_sum(p),
		.port_sum = csum_fold((__u32)bpf_htons(p->source_port) +
				      bpf_htons(p->destination_port)),
		.group = slot,
		.packets = in->packets,
		.bytes = in->bytes,
		.longest = skb->gso_size ? skb->gso_size : d->payload_length,
	};

	if (!group || trim_skb(skb, d) || complete(skb, d))
		return TC_ACT_SHOT;
	walk.last = group->ready - 1;
	if (group->members > group->ready)
		refuse_members(slot, group->ready, group->members - group->ready, DROP_REASONS,
			       in->packets);
	bpf_loop(group->ready, send_next, &walk, 0);
	return redirect(&walk, group);
}

static __always_inline int relay(struct __sk_buff *skb)
{
	struct ingress in = {
		.ifindex = skb->ifindex,
		.packets = skb->gso_segs,
		.segment = skb->gso_size,
	};
	int trust = bpf_csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0 ? TRUST_ALL : TRUST_PARTIAL;

	/* The frame of a VLAN belongs to another device; its tag is no longer in the frame. */
	if (skb->vlan_present && skb->vlan_tci & 0xfff)
		return TC_ACT_UNSPEC;
	/* Headers and payload in one piece; most frames are, and superframes pay for it. */
	if (bpf_skb_pull_data(skb, skb->len))
		return TC_ACT_UNSPEC;
	switch (judge(skb, &in, trust)) {
	case VERDICT_PASS:
		return TC_ACT_UNSPEC;
	case VERDICT_DIVERT:
		divert(skb, &in);
		return TC_ACT_SHOT;
	case VERDICT_FORWARD:
		if (in.stream->copies)
			copy_up(skb, &in);
		return fan_out(skb, &in);
	default:
		return TC_ACT_SHOT;
	}
}

SEC("tc") int relay_ingress(struct __sk_buff *skb)
{
	return relay(skb);
}
