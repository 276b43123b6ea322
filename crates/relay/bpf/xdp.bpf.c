// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Decides which frames are a stream's, and has the driver send a copy to every subscriber. */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "lowroad/license.h"

typedef struct xdp_md context;

#define load_bytes bpf_xdp_load_bytes

#include "ordinal.h"
#include "punt.h"
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

/* The frame is too long for a device, which the kernel would skip without a word. */
static __always_inline void refuse_devices(const struct group *group, __u32 slot, __u32 length)
{
	for (__u32 i = 0; i < MAX_GROUP_DEVICES && i < group->devices; i++) {
		const struct device *device = &group->device[i];

		if (length > device->frame_max)
			refuse_members(slot, device->first, device->count, DROP_TOO_BIG, 1);
	}
}

/* Makes room for the headers of another family, or takes it away. */
static __always_inline int change_family(struct xdp_md *ctx, __u16 from, __u16 to)
{
	if (from == to)
		return 0;
	return bpf_xdp_adjust_head(ctx, (int)header_length(from) - (int)header_length(to));
}

/* Makes the frame itself the copy: a broadcast to one would copy it to send the copy. */
static __always_inline int forward(struct xdp_md *ctx, const struct ingress *in, __u32 slot,
				   void *fanout)
{
	const struct datagram *d = &in->datagram;
	struct member *member = member_at(slot, 0);
	struct origin origin = {
		.payload_length = d->payload_length,
		.payload_sum = d->payload_sum,
		.tos = d->packet.tos,
		.ttl = d->packet.ttl,
	};

	if (!member)
		return XDP_DROP;
	if (header_length(member->family) - ETH_HLEN + d->payload_length > member->mtu) {
		refuse(member, DROP_TOO_BIG, 1);
		return XDP_DROP;
	}
	if (change_family(ctx, d->packet.family, member->family) ||
	    attach_addressed(ctx, member, d->payload_length)) {
		refuse(member, DROP_TRANSMIT, 1);
		return XDP_DROP;
	}
	if (write_headers((void *)(long)ctx->data, (void *)(long)ctx->data_end, member, &origin))
		return XDP_ABORTED;
	return bpf_redirect_map(fanout, 0, XDP_DROP);
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
	fanout = bpf_map_lookup_elem(&fanouts, &slot);
	if (!fanout)
		return XDP_DROP;
	if (length > group->frame_max) {
		refuse_devices(group, slot, length);
		if (group->devices == 1)
			return XDP_DROP;
	}
	if (group->ready == 1)
		return forward(ctx, in, slot, fanout);
	if (attach_tag(ctx, in))
		return XDP_ABORTED;
	return bpf_redirect_map(fanout, 0, BPF_F_BROADCAST);
}

static __always_inline int relay(struct xdp_md *ctx)
{
	struct ingress in = { .ifindex = ctx->ingress_ifindex, .packets = 1 };

	switch (judge(ctx, &in, TRUST_NONE)) {
	case VERDICT_PASS:
		return XDP_PASS;
	case VERDICT_DIVERT:
		divert(ctx, &in);
		return XDP_DROP;
	case VERDICT_FORWARD:
		break;
	default:
		return XDP_DROP;
	}
	if (in.stream->copies)
		copy_up(ctx, &in);
	if (trim(ctx, &in.datagram))
		return XDP_ABORTED;
	return fan_out(ctx, &in);
}

/*
 * What `forward` sends comes here too, where it is only counted: a driver's batch has one program
 * for all its frames, which is that of the first.
 */
static __always_inline int count_forwarded(struct xdp_md *ctx)
{
	struct addressed *carried = (void *)(long)ctx->data_meta;
	struct addressed copy;

	if ((void *)(carried + 1) > (void *)(long)ctx->data)
		return XDP_ABORTED;
	copy = *carried;
	bpf_xdp_adjust_meta(ctx, sizeof(copy));
	deliver(copy.subscriber, 1, copy.bytes);
	note(ctx->egress_ifindex, copy.subscriber, copy.bytes);
	return XDP_PASS;
}

static __always_inline int address_copy(struct xdp_md *ctx)
{
	struct tag *carried = (void *)(long)ctx->data_meta;
	struct origin origin;
	struct member *member;
	struct tag tag;

	if ((void *)(carried + 1) > (void *)(long)ctx->data)
		return count_forwarded(ctx);
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
	if (change_family(ctx, tag.family, member->family)) {
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
	deliver(member->subscriber, 1, tag.payload_length);
	note(ctx->egress_ifindex, member->subscriber, tag.payload_length);
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
