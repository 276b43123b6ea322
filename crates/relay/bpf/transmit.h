/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Takes back what was counted as delivered when the device turns out to have no room for it.
 *
 * A driver is handed batches of up to 16 copies, each addressed just before, and says how many of
 * them it took: those at the front. So the rest is known copy by copy. What happens to a frame that
 * a driver took is not: the other end of a veth, for one, drops without telling this one.
 */
#ifndef RELAY_TRANSMIT_H
#define RELAY_TRANSMIT_H

#include <bpf/bpf_tracing.h>
#include "tag.h"

/* The kernel's bulk queue. */
#define BATCH_MAX 16

struct addressed {
	__u32 subscriber;
	__u32 bytes;
};

_Static_assert(sizeof(struct addressed) < sizeof(struct tag), "what tells them apart");

/* Copies addressed since this CPU last handed a batch to a driver. */
struct batch {
	__u32 ifindex;
	__u32 count;
	struct addressed copies[BATCH_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct batch);
} batches SEC(".maps");

/* In front of a frame that is addressed already, instead of a tag. */
static __always_inline int attach_addressed(struct xdp_md *ctx, const struct member *member,
					    __u32 bytes)
{
	struct addressed *copy = make_room(ctx, sizeof(*copy));

	if (!copy)
		return -1;
	copy->subscriber = member->subscriber;
	copy->bytes = bytes;
	return 0;
}

static __always_inline void note(__u32 ifindex, __u32 subscriber, __u32 bytes)
{
	__u32 zero = 0;
	struct batch *batch = bpf_map_lookup_elem(&batches, &zero);
	__u32 at;

	if (!batch)
		return;
	at = batch->count;
	if (at >= BATCH_MAX)
		return;
	batch->ifindex = ifindex;
	batch->copies[at].subscriber = subscriber;
	batch->copies[at].bytes = bytes;
	batch->count = at + 1;
}

static __always_inline void take_back(const struct addressed *copy)
{
	__u32 subscriber = copy->subscriber;
	struct subscriber_counters *counters =
		bpf_map_lookup_elem(&subscriber_counters, &subscriber);

	if (!counters)
		return;
	counters->delivered.packets--;
	counters->delivered.bytes -= copy->bytes;
	counters->drops[DROP_TRANSMIT]++;
}

/* `sent`: how many of a batch's copies the driver took. */
static __always_inline void settle(const struct net_device *device, int sent)
{
	__u32 zero = 0;
	struct batch *batch = bpf_map_lookup_elem(&batches, &zero);

	/* Most batches are others', or went whole. */
	if (!batch || !batch->count)
		return;
	if (batch->ifindex == device->ifindex)
		for (__u32 i = 0; i < BATCH_MAX; i++)
			if ((int)i >= sent && i < batch->count)
				take_back(&batch->copies[i]);
	batch->count = 0;
}

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(relay_transmitted, const struct net_device *from, const struct net_device *to,
	     int sent)
{
	settle(to, sent);
	return 0;
}

#endif
