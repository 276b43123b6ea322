// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Flows in the kernel, of what devices send as well and of devices without XDP: flow.bpf.c at tc.
 * What is sent passes here with softirqs off, too: no two packets of a CPU are counted at a time.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "lowroad/license.h"
#include "access_tc.h"
#include "evict.h"
#include "flow_table.h"
#include "frame.h"
#include "verdict.h"

SEC("tc")
int count_flows(context *ctx)
{
	struct packet packet = {};
	struct account *a = account();
	struct flow *f = NULL;

	/* Segments that the device is left to cut, or has put together. */
	if (ctx->gso_segs > 1)
		packet.marks |= PACKET_AGGREGATED;
	if (a && read_packet(ctx, &packet, a))
		f = track(&packet, a);
	if (with_models && f)
		return flow_verdict(ctx, &packet, f);
	return frame_verdict;
}

SEC("xdp")
int evict_flows(struct xdp_md *ctx)
{
	evict();
	return XDP_DROP;
}
