// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Decides which stacks were seen how often, when a clock asks every CPU what it is doing. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "lowroad/license.h"

#define STACK_DEPTH 127

/* Stack ids, or a negative errno where there is none. */
struct stack_key {
	__s32 kernel;
	__s32 user;
	__u32 tgid;
	__u32 zero;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, STACK_DEPTH * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct stack_key);
	__type(value, __u64);
} counts SEC(".maps");

/* [0]: all samples; [1]: those that found the table full. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} samples SEC(".maps");

static __always_inline void count(__u32 index)
{
	__u64 *counter = bpf_map_lookup_elem(&samples, &index);

	if (counter)
		(*counter)++;
}

SEC("perf_event")
int sample_stack(struct bpf_perf_event_data *ctx)
{
	struct stack_key key = {};
	__u64 *seen, one = 1;

	count(0);
	key.tgid = bpf_get_current_pid_tgid() >> 32;
	key.kernel = bpf_get_stackid(ctx, &stacks, 0);
	key.user = key.tgid ? bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK) : -1;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	seen = bpf_map_lookup_elem(&counts, &key);
	if (seen)
		__sync_fetch_and_add(seen, 1);
	else if (bpf_map_update_elem(&counts, &key, &one, BPF_NOEXIST))
		count(1);
	return 0;
}
