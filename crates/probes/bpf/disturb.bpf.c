// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Decides which of our packets are held up for a known time or lost, so that the probes can be
 * checked against a disturbance of known size.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "lowroad/license.h"
#include "lowroad/payload.h"

/* Clock readings that fill the longest delay, with room: one takes about 30 ns. */
#define MOST_READINGS (1 << 16)

const volatile __u32 delay_ns;
const volatile __u32 lose_every;

struct wait {
	__u64 until_ns;
};

static long read_clock(__u32 index, void *context)
{
	struct wait *wait = context;

	return bpf_ktime_get_ns() >= wait->until_ns;
}

/* Spins on the clock: a sleeping timer would add what waking up costs. */
static __always_inline void hold_up(__u64 now)
{
	struct wait wait = { .until_ns = now + delay_ns };

	bpf_loop(MOST_READINGS, read_clock, &wait, 0);
}

/* The payload header of an IPv4 datagram without options: what the check's generator sends. */
static __always_inline struct payload *own_payload(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(udp + 1) > end || skb->protocol != bpf_htons(ETH_P_IP))
		return NULL;
	if (ip->protocol != IPPROTO_UDP || ip->ihl != 5)
		return NULL;
	return payload_at(udp + 1, end);
}

SEC("tc")
int disturb(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns();
	struct payload *payload;

	/* Header and payload header lie in the linear part unless GRO merged datagrams. */
	bpf_skb_pull_data(skb, sizeof(struct ethhdr) + sizeof(struct iphdr) +
				       sizeof(struct udphdr) + sizeof(struct payload));
	payload = own_payload(skb);
	if (!payload)
		return TC_ACT_UNSPEC;
	if (lose_every && payload->sequence % lose_every == 0)
		return TC_ACT_SHOT;
	if (delay_ns)
		hold_up(now);
	return TC_ACT_UNSPEC;
}
