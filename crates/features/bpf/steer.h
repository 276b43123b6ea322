/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Brings both directions of a flow to one CPU, whose table then has all of it: a program where
 * frames come in sends each to the CPU that its flow's key names, by that CPU's queue in a CPUMAP,
 * and another counts it there.
 *
 * Also a frame whose flow is this CPU's own goes by the queue: those of the other direction wait
 * there, and would be overtaken.
 */
#ifndef FEATURES_STEER_H
#define FEATURES_STEER_H

#include "flow_hash.h"
#include "flow_table.h"

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_cpumap_val));
} queues SEC(".maps");

/* The CPUs that count, side by side. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} counting_cpus SEC(".maps");

const volatile __u32 counting_cpu_count = 0;

/* The settings from userspace. */
struct steering {
	/* To whose queue a mark goes. */
	__u32 marked_cpu;
	/* The identifier of the map of queues. */
	__u32 queues;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steering);
} steering SEC(".maps");

#define MARK_MAGIC 0x6b72616dU

/* The CPU that counts this packet's flow; what is no packet has an empty key. */
static __always_inline __u32 counting_cpu(const struct packet *p)
{
	__u32 index = share(hash_key(&p->key), counting_cpu_count);
	__u32 *cpu = bpf_map_lookup_elem(&counting_cpus, &index);

	return cpu ? *cpu : 0;
}

/* Notes when and where a frame came, in front of it; a driver may have no room for that. */
static __always_inline void note_arrival(context *ctx, const struct packet *p)
{
	struct metadata *metadata;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*metadata)))
		return;
	metadata = (void *)(long)ctx->data_meta;
	if ((void *)(metadata + 1) > (void *)(long)ctx->data)
		return;
	metadata->time_ns = p->time_ns;
	metadata->wire_length = p->wire_length;
	metadata->magic = METADATA_MAGIC;
	metadata->queue = p->queue;
	metadata->padding = 0;
}

/* Sends a frame to the CPU that counts it. */
static __always_inline int steer(context *ctx, struct packet *p, struct account *a)
{
	int sent;

	meet(ctx, p);
	a->packets++;
	a->bytes += p->wire_length;
	/* Only its key is of interest: who counts it looks again. */
	if (dissect(ctx, p) == DISSECTED && by_vlan)
		p->key.vlan = p->vlan;
	if (p->fragment != FRAGMENT_NONE)
		complete_fragment(p);
	if (!from_metadata)
		note_arrival(ctx, p);
	sent = bpf_redirect_map(&queues, counting_cpu(p), frame_verdict);
	if (sent == XDP_REDIRECT)
		a->sent++;
	else
		a->lost_cpu++;
	return sent;
}

/* Whether what has come by this CPU's queue is a frame: not so a mark. */
static __always_inline bool arrive(context *ctx, struct packet *p, struct account *a)
{
	__u32 magic;

	p->wire_length = frame_length(ctx);
	p->queue = frame_queue(ctx);
	magic = take_metadata(ctx, p);
	if (magic == MARK_MAGIC) {
		a->marks++;
		return false;
	}
	if (magic != METADATA_MAGIC)
		p->time_ns = now();
	a->arrived++;
	return true;
}

/* The kernel tells which map's queue has taken so many frames, and refused so many. */
static __always_inline void refuse(const __u64 *args)
{
	__u32 zero = 0;
	struct steering *order = bpf_map_lookup_elem(&steering, &zero);
	struct account *a = account();

	if (order && a && (__u32)args[0] == order->queues)
		a->refused_by_queue += (__u32)args[2];
}

/* Sends a mark to the CPU that userspace has named. */
static __always_inline int mark(context *ctx)
{
	struct metadata *metadata;
	__u32 zero = 0;
	struct steering *order = bpf_map_lookup_elem(&steering, &zero);

	if (!order || bpf_xdp_adjust_meta(ctx, -(int)sizeof(*metadata)))
		return XDP_DROP;
	metadata = (void *)(long)ctx->data_meta;
	if ((void *)(metadata + 1) > (void *)(long)ctx->data)
		return XDP_DROP;
	__builtin_memset(metadata, 0, sizeof(*metadata));
	metadata->magic = MARK_MAGIC;
	return bpf_redirect_map(&queues, order->marked_cpu, XDP_DROP);
}

/* Takes that away again: frames of a connection are merged only where nothing of it differs. */
static __always_inline void forget_arrival(context *ctx)
{
	bpf_xdp_adjust_meta(ctx, (void *)(long)ctx->data - (void *)(long)ctx->data_meta);
}

#endif
