/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a frame carries in front of it from ingress to where its copies are made: what was found out
 * once, and what tells its copies apart.
 */
#ifndef RELAY_TAG_H
#define RELAY_TAG_H

#include "ingress.h"

struct tag {
	/* Different for each datagram of a CPU. */
	__u64 nonce;
	__u32 group;
	__u16 payload_length;
	__u16 payload_sum;
	__u16 family;
	__u8 tos;
	__u8 ttl;
	__u32 stream;
};

_Static_assert(sizeof(struct tag) == 24, "a multiple of 4, below the 32 bytes every driver has");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} nonces SEC(".maps");

static __always_inline __u64 next_nonce(void)
{
	__u32 zero = 0;
	__u64 *nonce = bpf_map_lookup_elem(&nonces, &zero);

	return nonce ? ++*nonce : 0;
}

/* Cuts VLAN tags in front and padding behind, so that headers are where copies expect them. */
static __always_inline int trim(struct xdp_md *ctx, const struct datagram *d)
{
	__u32 frame = ETH_HLEN + network_length(d->packet.family) + sizeof(struct udphdr) +
		      d->payload_length;
	__u32 tags = d->packet.l3 - ETH_HLEN;
	__u32 length = bpf_xdp_get_buff_len(ctx);

	if (length - tags != frame && bpf_xdp_adjust_tail(ctx, (int)(frame + tags - length)))
		return -1;
	return tags ? bpf_xdp_adjust_head(ctx, tags) : 0;
}

/* Room for `size` bytes in front of the frame, and no more: a driver may have put its own metadata
 * there, and the other end of a veth another's.
 */
static __always_inline void *make_room(struct xdp_md *ctx, __u32 size)
{
	long present = (long)ctx->data - (long)ctx->data_meta;
	void *room;

	if (bpf_xdp_adjust_meta(ctx, (int)present - (int)size))
		return NULL;
	room = (void *)(long)ctx->data_meta;
	return room + size > (void *)(long)ctx->data ? NULL : room;
}

static __always_inline int attach_tag(struct xdp_md *ctx, const struct ingress *in)
{
	const struct datagram *d = &in->datagram;
	struct tag *tag = make_room(ctx, sizeof(*tag));

	if (!tag)
		return -1;
	tag->nonce = next_nonce();
	tag->group = in->stream->group;
	tag->payload_length = d->payload_length;
	tag->payload_sum = d->payload_sum;
	tag->family = d->packet.family;
	tag->tos = d->packet.tos;
	tag->ttl = d->packet.ttl;
	tag->stream = in->slot;
	return 0;
}

#endif
