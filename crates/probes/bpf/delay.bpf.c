// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Decides how long each packet took from the sender's tc egress to the final receiver's tc
 * ingress, and which packets were lost, doubled, reordered or foreign. Changes no packet.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "lowroad/license.h"
#include "delay.h"
#include "delay_account.h"
#include "delay_identify.h"

static __always_inline struct device *count_packet(const struct __sk_buff *skb, __u32 index)
{
	struct device *device = bpf_map_lookup_elem(&devices, &index);

	if (!device)
		return NULL;
	device->packets++;
	if (skb->gso_segs > 1)
		device->superframes++;
	return device;
}

/* Numbers packets that carry no sequence of their own, and extends those of RTP. */
static __always_inline int note_departure(struct device *device, struct identity *identity,
					  const struct datagram *datagram)
{
	struct departure *departure = bpf_map_lookup_elem(&departures, &identity->flow);

	if (!departure)
		return 0;
	if (match_key == DELAY_KEY_PAYLOAD) {
		identity->sequence = __sync_fetch_and_add(&departure->highest, 1);
	} else if (match_key == DELAY_KEY_RTP) {
		const struct rtp_header *rtp = datagram->payload;

		if ((const void *)(rtp + 1) > datagram->end)
			return 0;
		if (!departure->started) {
			departure->first = bpf_ntohs(rtp->sequence);
			departure->highest = departure->first;
			departure->started = 1;
		} else if ((__s32)(departure->first + identity->sequence - departure->highest) >
			   0) {
			departure->highest = departure->first + identity->sequence;
		}
	}
	return 1;
}

static __always_inline struct stamp *slot_for(struct device *device,
					      const struct identity *identity)
{
	struct stamp *equal;

	if (match_key != DELAY_KEY_PAYLOAD)
		return bpf_map_lookup_elem(&stamps, &identity->slot);
	equal = tagged_stamp(identity);
	if (!equal)
		return oldest_stamp(identity);
	device->collisions++;
	return equal;
}

static __always_inline void put_stamp(struct device *device, const struct identity *identity)
{
	struct stamp *stamp = slot_for(device, identity);

	if (!stamp)
		return;
	stamp->tag = identity->tag;
	stamp->sequence = identity->sequence;
	/* Last: what the probe costs here must not be part of the delay. */
	stamp->ns = bpf_ktime_get_ns();
}

SEC("tc")
int stamp_departure(struct __sk_buff *skb)
{
	struct device *device = count_packet(skb, DELAY_SENDER);
	struct identity identity = {};
	struct datagram datagram = {};
	__u64 *count;

	if (!device || !read_datagram(skb, &datagram) || !identify(&datagram, &identity))
		return TC_ACT_UNSPEC;
	if (null_probe)
		return TC_ACT_UNSPEC;
	if (identity.run != run) {
		device->stale++;
		return TC_ACT_UNSPEC;
	}
	device->matched++;
	count = bpf_map_lookup_elem(&sent, &identity.flow);
	if (count && note_departure(device, &identity, &datagram)) {
		(*count)++;
		put_stamp(device, &identity);
	}
	return TC_ACT_UNSPEC;
}

static __always_inline int match(struct __sk_buff *skb, __u32 receiver)
{
	/* First: what the probe costs here must not be part of the delay. */
	__u64 now = bpf_ktime_get_ns();
	struct device *device = count_packet(skb, receiver);
	struct identity identity = {};
	struct datagram datagram = {};
	const struct endpoint *endpoint;

	if (!device || !read_datagram(skb, &datagram) || !identify(&datagram, &identity))
		return TC_ACT_UNSPEC;
	device->matched++;
	if (null_probe)
		return TC_ACT_UNSPEC;
	endpoint = find_endpoint(&datagram);
	if (endpoint)
		account_arrival(endpoint, &identity, now);
	else if (identity.run == run)
		device->foreign++;
	else
		device->stale++;
	return TC_ACT_UNSPEC;
}

SEC("tc")
int match_arrival_0(struct __sk_buff *skb)
{
	return match(skb, 0);
}

SEC("tc")
int match_arrival_1(struct __sk_buff *skb)
{
	return match(skb, 1);
}

SEC("tc")
int match_arrival_2(struct __sk_buff *skb)
{
	return match(skb, 2);
}

SEC("tc")
int match_arrival_3(struct __sk_buff *skb)
{
	return match(skb, 3);
}
