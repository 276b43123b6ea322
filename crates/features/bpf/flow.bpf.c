// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Flows in the kernel. Each CPU has a table of its own, which only it writes: packets in XDP, and
 * evictions in a program that userspace runs on that CPU.
 *
 * A per-CPU hash would be one table whose entries have a value for each CPU: a flow would cost as
 * many values as there are CPUs, and deleting it would delete them all, also one that another CPU
 * is just adding a packet to. With a table for each CPU, what deletes an entry is never beside what
 * adds to it.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "lowroad/license.h"
#include "access_xdp.h"
#include "evict.h"
#include "flow_table.h"
#include "frame.h"
#include "verdict.h"
#include "steer.h"

EXPORT_STRUCT(account);
EXPORT_STRUCT(filter_network);
EXPORT_STRUCT(filter_step);
EXPORT_STRUCT(flow);
EXPORT_STRUCT(metadata);
EXPORT_STRUCT(model);
EXPORT_STRUCT(queue_entry);
EXPORT_STRUCT(tree_account);
EXPORT_STRUCT(steering);

SEC("xdp.frags")
int count_flows(context *ctx)
{
	struct packet packet = {};
	struct account *a = account();
	struct flow *f = NULL;

	if (a && read_packet(ctx, &packet, a))
		f = track(&packet, a);
	if (with_models && f)
		return flow_verdict(ctx, &packet, f);
	return frame_verdict;
}

/* Instead of it, where both directions of a flow are to meet on one CPU. */
SEC("xdp.frags")
int steer_frames(context *ctx)
{
	struct packet packet = {};
	struct account *a = account();

	return a ? steer(ctx, &packet, a) : frame_verdict;
}

/* Counts what it has sent to this CPU. */
SEC("xdp.frags/cpumap")
int count_steered(context *ctx)
{
	struct packet packet = {};
	struct account *a = account();

	struct flow *f = NULL;
	int fate = frame_verdict;

	if (!a)
		return fate;
	if (!arrive(ctx, &packet, a))
		return XDP_DROP;
	if (judge(&packet, a, dissect(ctx, &packet)))
		f = track(&packet, a);
	if (with_models && f)
		fate = flow_verdict(ctx, &packet, f);
	forget_arrival(ctx);
	return fate;
}

SEC("raw_tp/xdp_cpumap_enqueue")
int count_refused(__u64 *args)
{
	refuse(args);
	return 0;
}

/* Sends a mark after what was sent to a CPU: when it arrives, nothing that was before it waits. */
SEC("xdp.frags")
int mark_queue(context *ctx)
{
	return mark(ctx);
}

SEC("xdp")
int evict_flows(struct xdp_md *ctx)
{
	evict();
	return XDP_DROP;
}
