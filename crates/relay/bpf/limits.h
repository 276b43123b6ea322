/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Decides whether a datagram's sender may send it, and whether it comes within the rates. */
#ifndef RELAY_LIMITS_H
#define RELAY_LIMITS_H

#include "datagram.h"
#include "table.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_STREAMS);
	__type(key, __u32);
	__type(value, struct latch);
} latches SEC(".maps");

/*
 * A bucket is the time at which it will be full again: one word, so that CPUs share it without a
 * lock. Empty ones are 0, which has long passed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_STREAMS);
	__type(key, __u32);
	__type(value, __u64);
} stream_buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_SOURCES);
	__type(key, struct source_key);
	__type(value, __u64);
} source_buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source_prefix);
	__type(value, __u32);
} source_prefixes SEC(".maps");

static __always_inline bool same(const struct in6_addr *a, const struct in6_addr *b)
{
	const __u32 *left = a->in6_u.u6_addr32, *right = b->in6_u.u6_addr32;

	return left[0] == right[0] && left[1] == right[1] && left[2] == right[2] &&
	       left[3] == right[3];
}

static __always_inline bool contains(const struct prefix *prefix, const struct in6_addr *address)
{
	const __u32 *mask = prefix->mask.in6_u.u6_addr32;

#pragma unroll
	for (int i = 0; i < 4; i++)
		if ((address->in6_u.u6_addr32[i] & mask[i]) != prefix->address.in6_u.u6_addr32[i])
			return false;
	return true;
}

static __always_inline bool allowed_by_trie(__u32 slot, const struct packet *p)
{
	struct source_prefix key = {
		.length = (sizeof(key) - sizeof(key.length)) * 8,
		.stream = slot,
		.family = p->family,
		.address = p->source,
	};

	return bpf_map_lookup_elem(&source_prefixes, &key);
}

static __always_inline bool allowed(const struct stream *stream, __u32 slot, const struct packet *p)
{
	if (stream->prefixes == PREFIXES_IN_TRIE)
		return allowed_by_trie(slot, p);
	for (__u32 i = 0; i < MAX_PREFIXES && i < stream->prefixes; i++) {
		const struct prefix *prefix = &stream->allowed[i];

		/* Of the prefixes that contain mapped addresses, those of IPv6 mean IPv6 only. */
		if (p->family == AF_INET && prefix->mask.in6_u.u6_addr32[2] != 0xffffffff)
			continue;
		if (contains(prefix, &p->source))
			return true;
	}
	return false;
}

static __always_inline bool latched(const struct stream *stream, __u32 slot, const struct packet *p)
{
	struct latch *latch = bpf_map_lookup_elem(&latches, &slot);
	__be16 port = bpf_htons(p->source_port);
	__u64 now = bpf_ktime_get_ns();
	bool ours;

	if (!latch)
		return false;
	bpf_spin_lock(&latch->lock);
	if (!latch->held || now - latch->seen > stream->latch_timeout) {
		latch->address = p->source;
		latch->port = port;
		latch->held = 1;
	}
	ours = same(&latch->address, &p->source) && latch->port == port;
	if (ours)
		latch->seen = now;
	bpf_spin_unlock(&latch->lock);
	return ours;
}

static __always_inline bool source_accepted(const struct stream *stream, __u32 slot,
					    const struct packet *p)
{
	switch (stream->source_policy) {
	case SOURCE_ANY:
		return true;
	case SOURCE_ALLOW:
		return allowed(stream, slot, p);
	default:
		return latched(stream, slot, p);
	}
}

/*
 * Takes `packets` tokens if there is one: `depth` is the bucket's in nanoseconds, `interval` one
 * token's worth. A superframe cannot be sent in part. Those of its tokens that the bucket lacks are
 * owed, so that the rate holds beyond it.
 */
static __always_inline bool take(__u64 *bucket, __u64 interval, __u64 depth, __u32 packets,
				 __u64 now)
{
	for (int attempt = 0; attempt < 8; attempt++) {
		__u64 before = *(volatile __u64 *)bucket;
		__u64 full = before > now ? before : now;

		if (full + interval > now + depth)
			return false;
		if (__sync_val_compare_and_swap(bucket, before, full + interval * packets) ==
		    before)
			return true;
	}
	/* Eight others were faster in one go: over any rate worth limiting to. */
	return false;
}

static __always_inline bool source_within(const struct stream *stream, __u32 slot,
					  const struct packet *p, __u32 packets, __u64 now)
{
	struct source_key key = { .address = p->source, .stream = slot };
	__u64 *bucket = bpf_map_lookup_elem(&source_buckets, &key);
	__u64 empty = 0;

	if (!bucket) {
		bpf_map_update_elem(&source_buckets, &key, &empty, BPF_NOEXIST);
		bucket = bpf_map_lookup_elem(&source_buckets, &key);
	}
	return bucket && take(bucket, stream->source_interval, stream->source_depth, packets, now);
}

/* Both buckets: what the source's refuses, the stream's gets back. */
static __always_inline bool within_rates(const struct stream *stream, __u32 slot,
					 const struct packet *p, __u32 packets)
{
	__u64 *bucket = bpf_map_lookup_elem(&stream_buckets, &slot);
	__u64 now;

	if (!stream->stream_interval && !stream->source_interval)
		return true;
	if (!bucket)
		return false;
	now = bpf_ktime_get_ns();
	if (stream->stream_interval &&
	    !take(bucket, stream->stream_interval, stream->stream_depth, packets, now))
		return false;
	if (!stream->source_interval || source_within(stream, slot, p, packets, now))
		return true;
	if (stream->stream_interval)
		__sync_fetch_and_sub(bucket, stream->stream_interval * packets);
	return false;
}

#endif
