/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frames that the program sent and the kernel then lost: they are among the forwarded, from which
 * userspace takes them. No event says how long its frames were, so bytes stay with those that were
 * sent.
 */
#ifndef ROUTER_LOST_H
#define ROUTER_LOST_H

#include <bpf/bpf_tracing.h>
#include "count.h"
#include "lpm4.h"

/* The program's id, which userspace writes once it has one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} own SEC(".maps");

/* Devices that the program is attached to: whatever comes by them and is redirected was by it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} attached SEC(".maps");

static __always_inline bool is_own_device(const struct net_device *device)
{
	__u32 ifindex = device->ifindex;

	return device->nd_net.net->ns.inum == settings.netns &&
	       bpf_map_lookup_elem(&attached, &ifindex);
}

static __always_inline bool is_own_program(const struct bpf_prog *program)
{
	__u32 zero = 0;
	const __u32 *id = bpf_map_lookup_elem(&own, &zero);

	return id && program->aux->id == *id;
}

/*
 * Events come on the CPU that sent, before it leaves the device's poll:
 * counters::MonotonicCounters.
 */

/* What a driver did not take of a batch: its ring is full. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(frames_left, const struct net_device *from, const struct net_device *to, int sent,
	     int drops)
{
	struct ends *ends = ends_here();

	if (ends && drops > 0 && is_own_device(from))
		ends->end[DROP_TRANSMIT].packets += drops;
	return 0;
}

/* The device is down, or takes no redirected frames. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(frame_refused, const struct net_device *from, const struct bpf_prog *program)
{
	struct ends *ends = ends_here();

	if (ends && is_own_program(program))
		ends->refused++;
	return 0;
}

#endif
