// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Decides which frames are ours, counts them by flow, and drops them or passes them up. */
#include "vmlinux.h"

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "lowroad/license.h"
#include "lowroad/parse.h"
#include "lowroad/payload.h"

const volatile __u32 flow_count;
const volatile __u32 run_id;
const volatile __u32 verdict;

struct far_count {
	__u64 packets;
	__u64 bytes;
};

/* One entry for each flow, and a last one for everything else, which is always passed. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct far_count);
} counts SEC(".maps");

/* The flow of a frame of ours, else flow_count. */
static __always_inline __u32 flow_of(void *data, void *end)
{
	struct packet packet;
	struct payload *payload;

	if (parse_packet(data, end, &packet) != PARSE_OK || packet.protocol != IPPROTO_UDP)
		return flow_count;
	payload = packet_at(data, end, packet.payload, sizeof(*payload));
	if (!payload || payload->magic != PAYLOAD_MAGIC || payload->run != run_id)
		return flow_count;
	return payload->flow < flow_count ? payload->flow : flow_count;
}

SEC("xdp")
int count(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 flow = flow_of(data, end);
	struct far_count *entry = bpf_map_lookup_elem(&counts, &flow);

	if (!entry)
		return XDP_ABORTED;
	entry->packets++;
	entry->bytes += end - data;
	return flow == flow_count ? XDP_PASS : verdict;
}
