// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Decides which frames are a stream's, and has the driver send a copy to every subscriber. */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "lowroad/license.h"

typedef struct xdp_md context;

#include "copy.h"
#include "rewrite.h"
#include "tag.h"
#include "transmit.h"

struct fanout {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	/* By size: the types of an inner map reach the object as mere declarations. */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

/* The devices of each version of a group: key i is for member i. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, GROUP_SLOTS);
	__type(key, __u32);
	__array(values, struct fanout);
} fanouts SEC(".maps");

struct cursor {
	__u64 nonce;
	__u32 ordinal;
	__u32 zero;
};

/*
 * How far a CPU is through a datagram's copies, for each device by itself: a driver takes copies in
 * batches of one device, so those of two devices come in turns that one counter cannot follow.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_DEVICES);
	__type(key, __u32);
	__type(value, struct cursor);
} cursors SEC(".maps");

/* The frame is too long for a device, which the kernel would skip without a word. */
static __always_inline void refuse_devices(const struct group *group, __u32 slot, __u32 length)
{
	for (__u32 i = 0; i < MAX_GROUP_DEVICES && i < group->devices; i++) {
		const struct device *device = &group->device[i];

		if (length > device->frame_max)
			refuse_members(slot, device->first, device->count, DROP_TOO_BIG, 1);
	}
}

static __always_inline int fan_out(struct xdp_md *ctx, const struct ingress *in)
{
	__u32 slot = in->stream->group;
	struct group *group = bpf_map_lookup_elem(&groups, &slot);
	__u32 length = header_length(in->datagram.packet.family) + in->datagram.payload_length;
	void *fanout;

	if (!group)
		return XDP_DROP;
	if (group->members > group->ready)
		refuse_members(slot, group->ready, group->members - group->ready, DROP_REASONS, 1);
	if (!group->ready)
		return XDP_DROP;
	if (length > group->frame_max)
		refuse_devices(group, slot, length);
	fanout = bpf_map_lookup_elem(&fanouts, &slot);
	if (!fanout)
		return XDP_DROP;
	/* No broadcast to one: it would copy the frame to send the copy. */
	return bpf_redirect_map(fanout, 0, group->ready == 1 ? XDP_DROP : BPF_F_BROADCAST);
}

static __always_inline int relay(struct xdp_md *ctx)
{
	struct ingress in = { .packets = 1 };

	switch (judge(ctx, &in, ctx->ingress_ifindex, TRUST_NONE)) {
	case VERDICT_PASS:
		return XDP_PASS;
	case VERDICT_DIVERT:
		return divert(ctx, &in);
	case VERDICT_FORWARD:
		break;
	default:
		return XDP_DROP;
	}
	if (in.stream->copy_port)
		copy_up(ctx, &in);
	if (trim(ctx, &in.datagram) || attach_tag(ctx, &in))
		return XDP_ABORTED;
	return fan_out(ctx, &in);
}

/* Which of a device's members this copy is for: the order of the keys is the order of the copies.
 */
static __always_inline struct member *next_member(const struct tag *tag, __u32 ifindex)
{
	__u32 slot = tag->group;
	struct group *group = bpf_map_lookup_elem(&groups, &slot);
	struct cursor *cursor;
	__u32 at = 0;

	if (!group)
		return NULL;
	/* One device is the rule: a scan beats a hash of (group, device). */
	for (; at < MAX_GROUP_DEVICES - 1 && at + 1 < group->devices; at++)
		if (group->device[at].ifindex == ifindex)
			break;
	at &= MAX_GROUP_DEVICES - 1;
	if (group->device[at].ifindex != ifindex)
		return NULL;
	slot = group->device[at].slot;
	cursor = bpf_map_lookup_elem(&cursors, &slot);
	if (!cursor)
		return NULL;
	if (cursor->nonce != tag->nonce) {
		cursor->nonce = tag->nonce;
		cursor->ordinal = 0;
	}
	if (cursor->ordinal >= group->device[at].count)
		return NULL;
	return member_at(tag->group, group->device[at].first + cursor->ordinal++);
}

static __always_inline int address_copy(struct xdp_md *ctx)
{
	struct tag *carried = (void *)(long)ctx->data_meta;
	struct origin origin;
	struct member *member;
	struct tag tag;

	if ((void *)(carried + 1) > (void *)(long)ctx->data)
		return XDP_ABORTED;
	tag = *carried;
	member = next_member(&tag, ctx->egress_ifindex);
	if (!member)
		return XDP_ABORTED;
	if (header_length(member->family) - ETH_HLEN + tag.payload_length > member->mtu) {
		refuse(member, DROP_TOO_BIG, 1);
		return XDP_DROP;
	}
	/* The tag ends here: at the far end of a veth it would be read as somebody's metadata. */
	bpf_xdp_adjust_meta(ctx, sizeof(tag));
	if (member->family != tag.family &&
	    bpf_xdp_adjust_head(ctx, (int)header_length(tag.family) -
					     (int)header_length(member->family))) {
		refuse(member, DROP_TRANSMIT, 1);
		return XDP_DROP;
	}
	origin = (struct origin){
		.payload_length = tag.payload_length,
		.payload_sum = tag.payload_sum,
		.tos = tag.tos,
		.ttl = tag.ttl,
	};
	if (write_headers((void *)(long)ctx->data, (void *)(long)ctx->data_end, member, &origin))
		return XDP_ABORTED;
	deliver(member, 1, tag.payload_length);
	note(ctx->egress_ifindex, member, tag.payload_length);
	return XDP_PASS;
}

SEC("xdp") int relay_ingress(struct xdp_md *ctx)
{
	return relay(ctx);
}

SEC("xdp/devmap") int relay_egress(struct xdp_md *ctx)
{
	return address_copy(ctx);
}
