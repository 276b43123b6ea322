// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Looks addresses up by the XDP router's arrays and by the kernel's LPM trie: the same keys, in the
 * same loop. A run's packet says where to begin and how many; the sum comes back in its place.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "../../router/bpf/lpm4.h"

TABLE(keys);
TABLE(answers);

struct prefix {
	__u32 len;
	/* As packets carry it. */
	__u32 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u32);
} trie SEC(".maps");

/* The first bytes of the packet, in and out. */
struct run {
	__u64 begin;
	__u64 count;
	__u64 checksum;
	__u64 wrong;
};

struct walk {
	__u64 begin;
	__u64 sum;
	__u64 wrong;
};

static __always_inline __u32 by_arrays(__u32 address)
{
	return lpm4(address);
}

static __always_inline __u32 by_trie(__u32 address)
{
	struct prefix key = { .len = 32, .address = __builtin_bswap32(address) };
	const __u32 *hop = bpf_map_lookup_elem(&trie, &key);

	return hop ? *hop : 0;
}

static __always_inline long look_up(__u32 (*by)(__u32), __u32 at, struct walk *walk)
{
	walk->sum += by(number(&keys, walk->begin + at, 4));
	return 0;
}

static __always_inline long check(__u32 (*by)(__u32), __u32 at, struct walk *walk)
{
	__u64 place = walk->begin + at;
	__u32 hop = by(number(&keys, place, 4));

	walk->sum += (place + 1) * hop;
	walk->wrong += hop != number(&answers, place, 2);
	return 0;
}

static long arrays_timed(__u32 at, struct walk *walk)
{
	return look_up(by_arrays, at, walk);
}

static long trie_timed(__u32 at, struct walk *walk)
{
	return look_up(by_trie, at, walk);
}

static long arrays_checked(__u32 at, struct walk *walk)
{
	return check(by_arrays, at, walk);
}

static long trie_checked(__u32 at, struct walk *walk)
{
	return check(by_trie, at, walk);
}

static __always_inline int over_all(struct xdp_md *ctx, void *step)
{
	struct run *run = (void *)(long)ctx->data;
	struct walk walk = {};

	if ((void *)(run + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	walk.begin = run->begin;
	bpf_loop(run->count, step, &walk, 0);
	run = (void *)(long)ctx->data;
	if ((void *)(run + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	run->checksum = walk.sum;
	run->wrong = walk.wrong;
	return XDP_PASS;
}

SEC("xdp")
int time_arrays(struct xdp_md *ctx)
{
	return over_all(ctx, arrays_timed);
}

SEC("xdp")
int time_trie(struct xdp_md *ctx)
{
	return over_all(ctx, trie_timed);
}

SEC("xdp")
int check_arrays(struct xdp_md *ctx)
{
	return over_all(ctx, arrays_checked);
}

SEC("xdp")
int check_trie(struct xdp_md *ctx)
{
	return over_all(ctx, trie_checked);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
