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

static __always_inline bool same(const struct address *a, const struct address *b)
{
	return a->high == b->high && a->low == b->low;
}

static __always_inline bool allowed(const struct stream *stream, const struct datagram *d)
{
	for (__u32 i = 0; i < MAX_PREFIXES && i < stream->prefixes; i++) {
		const struct prefix *prefix = &stream->allowed[i];

		/* Of the prefixes that contain mapped addresses, those of IPv6 mean IPv6 only. */
		if (d->family == AF_INET && (__u32)prefix->mask.low != 0xffffffff)
			continue;
		if ((d->source.high & prefix->mask.high) == prefix->address.high &&
		    (d->source.low & prefix->mask.low) == prefix->address.low)
			return true;
	}
	return false;
}

static __always_inline bool latched(const struct stream *stream, __u32 slot,
				    const struct datagram *d)
{
	struct latch *latch = bpf_map_lookup_elem(&latches, &slot);
	__u64 now = bpf_ktime_get_ns();
	bool ours;

	if (!latch)
		return false;
	bpf_spin_lock(&latch->lock);
	if (!latch->held || now - latch->seen > stream->latch_timeout) {
		latch->address = d->source;
		latch->port = d->source_port;
		latch->held = 1;
	}
	ours = same(&latch->address, &d->source) && latch->port == d->source_port;
	if (ours)
		latch->seen = now;
	bpf_spin_unlock(&latch->lock);
	return ours;
}

static __always_inline bool source_accepted(const struct stream *stream, __u32 slot,
					    const struct datagram *d)
{
	switch (stream->source_policy) {
	case SOURCE_ANY:
		return true;
	case SOURCE_ALLOW:
		return allowed(stream, d);
	default:
		return latched(stream, slot, d);
	}
}

/* Takes a token: `depth` is the bucket's in nanoseconds, `interval` one token's worth. */
static __always_inline bool take(__u64 *bucket, __u64 interval, __u64 depth, __u64 now)
{
	for (int attempt = 0; attempt < 8; attempt++) {
		__u64 before = *(volatile __u64 *)bucket;
		__u64 full = before > now ? before : now;

		if (full + interval > now + depth)
			return false;
		if (__sync_val_compare_and_swap(bucket, before, full + interval) == before)
			return true;
	}
	/* Eight others were faster in one go: over any rate worth limiting to. */
	return false;
}

static __always_inline bool source_within(const struct stream *stream, __u32 slot,
					  const struct datagram *d, __u64 now)
{
	struct source_key key = { .address = d->source, .stream = slot };
	__u64 *bucket = bpf_map_lookup_elem(&source_buckets, &key);
	__u64 empty = 0;

	if (!bucket) {
		bpf_map_update_elem(&source_buckets, &key, &empty, BPF_NOEXIST);
		bucket = bpf_map_lookup_elem(&source_buckets, &key);
	}
	return bucket && take(bucket, stream->source_interval, stream->source_depth, now);
}

/* Both buckets: what the source's refuses, the stream's gets back. */
static __always_inline bool within_rates(const struct stream *stream, __u32 slot,
					 const struct datagram *d)
{
	__u64 *bucket = bpf_map_lookup_elem(&stream_buckets, &slot);
	__u64 now;

	if (!stream->stream_interval && !stream->source_interval)
		return true;
	if (!bucket)
		return false;
	now = bpf_ktime_get_ns();
	if (stream->stream_interval &&
	    !take(bucket, stream->stream_interval, stream->stream_depth, now))
		return false;
	if (!stream->source_interval || source_within(stream, slot, d, now))
		return true;
	if (stream->stream_interval)
		__sync_fetch_and_sub(bucket, stream->stream_interval);
	return false;
}

#endif
