// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Maps of each kind that userspace has typed handles to, and a program that counts in one. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "lowroad/license.h"

struct counters {
	__u64 runs;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__type(key, __u64);
	__type(value, __u32);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u16[2]);
} array SEC(".maps");

SEC("xdp") int count(struct xdp_md *ctx)
{
	__u32 one = 1;
	struct counters *counters = bpf_map_lookup_elem(&counts, &one);

	if (!counters)
		return XDP_ABORTED;
	counters->runs++;
	counters->bytes += ctx->data_end - ctx->data;
	return XDP_DROP;
}
