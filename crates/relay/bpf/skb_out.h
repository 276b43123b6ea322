/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a tc program makes copies of, and how it sends the last one: the frame itself. */
#ifndef RELAY_SKB_OUT_H
#define RELAY_SKB_OUT_H

#define PACKET_HOST 0

/* Cuts VLAN tags in front and padding behind. */
static __always_inline int trim_skb(struct __sk_buff *skb, const struct datagram *d)
{
	__u32 length = header_length(d->packet.family) + d->payload_length;
	__u32 tags = (d->packet.l3 - ETH_HLEN) / sizeof(struct vlan_hdr) + !!skb->vlan_present;

	if (tags && bpf_skb_vlan_pop(skb))
		return -1;
	if (tags > 1 && bpf_skb_vlan_pop(skb))
		return -1;
	return skb->len > length ? bpf_skb_change_tail(skb, length, 0) : 0;
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

/* What is known of the frames that may wait at the other end; an odd number is a time. */
enum queued {
	QUEUED_UNKNOWN = 0,
	QUEUED_NONE = 2,
};

/* In 1024 nanoseconds: by then the other end should have taken in what it was sent. */
#define QUEUED_FOR 50

/*
 * A frame that goes directly overtakes those that wait for their turn at the other end. The first
 * that may go waits for a pause of those that go through the device; after it there are no more,
 * but for superframes. The time may lie ahead: another CPU has sent since this one looked.
 */
static __always_inline bool may_overtake(struct group *group, bool superframe)
{
	__u32 queued = group->queued;
	__u32 now;

	if (superframe) {
		group->queued = QUEUED_UNKNOWN;
		return true;
	}
	if (queued == QUEUED_NONE)
		return false;
	now = bpf_ktime_get_ns() >> 10 | 1;
	if (queued != QUEUED_UNKNOWN && (__s32)(now - queued) > QUEUED_FOR) {
		group->queued = QUEUED_NONE;
		return false;
	}
	group->queued = now;
	return true;
}

/*
 * To the other end of a veth in this very pass, where userspace has seen that nothing on the way
 * between would miss the frame, and by the device otherwise.
 */
static __always_inline int redirect(const struct walk *walk, struct group *group)
{
	struct __sk_buff *skb = walk->skb;

	if (!walk->redirect)
		return TC_ACT_SHOT;
	if (!walk->direct || may_overtake(group, skb->gso_size))
		return bpf_redirect(walk->redirect, 0);
	/* As a veth leaves a frame for the other end's address that changes its namespace. */
	skb->mark = 0;
	skb->priority = 0;
	if (skb->pkt_type != PACKET_HOST)
		bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(walk->redirect, 0);
}

#endif
