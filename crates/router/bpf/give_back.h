/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the router's threads leave to the kernel: frames made again on the device they came by. */
#ifndef LOWROAD_ROUTER_GIVE_BACK_H
#define LOWROAD_ROUTER_GIVE_BACK_H

#include <bpf/bpf_helpers.h>

#define GIVEN 64
#define MAX_FRAME_LEN 3072

struct given {
	__u32 length;
	__u8 frame[MAX_FRAME_LEN];
};

/* What the stack is given back, in order. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GIVEN);
	__type(key, __u32);
	__type(value, struct given);
} back SEC(".maps");

/* Which of them is next. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} turn SEC(".maps");

static __always_inline int give_back(struct xdp_md *ctx)
{
	__u32 zero = 0, *next = bpf_map_lookup_elem(&turn, &zero);
	struct given *given;
	__u32 at, length;

	if (!next)
		return XDP_DROP;
	/* One thread gives back. */
	at = *next;
	*next = at + 1;
	given = bpf_map_lookup_elem(&back, &at);
	if (!given)
		return XDP_DROP;
	length = *(volatile __u32 *)&given->length;
	if (length > MAX_FRAME_LEN)
		return XDP_DROP;
	/* Else both comparisons become one of a difference, which older verifiers do not see
	 * through. */
	asm volatile("" : "+r"(length));
	if (length < sizeof(struct ethhdr))
		return XDP_DROP;
	if (bpf_xdp_adjust_tail(ctx, (int)length - (int)bpf_xdp_get_buff_len(ctx)))
		return XDP_DROP;
	if (bpf_xdp_store_bytes(ctx, 0, given->frame, length))
		return XDP_DROP;
	return XDP_PASS;
}

#endif
