/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The tables userspace writes and the programs read, and how a copy is counted. */
#ifndef RELAY_TABLE_H
#define RELAY_TABLE_H

#include "layout.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct ingest_key);
	__type(value, struct ingest);
} ingests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_STREAMS);
	__type(key, __u32);
	__type(value, struct stream);
} streams SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GROUP_SLOTS);
	__type(key, __u32);
	__type(value, struct group);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GROUP_SLOTS *MAX_FANOUT);
	__type(key, __u32);
	__type(value, struct member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_STREAMS);
	__type(key, __u32);
	__type(value, struct stream_counters);
} stream_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_SUBSCRIBERS);
	__type(key, __u32);
	__type(value, struct subscriber_counters);
} subscriber_counters SEC(".maps");

/*
 * IPv4 addresses that the kernel accepts packets from under conditions of its own: this machine's,
 * and the broadcast addresses of its networks.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __be32);
	__type(value, __u32);
} kernel_sources SEC(".maps");

static __always_inline void count(struct traffic *traffic, __u32 packets, __u32 bytes)
{
	traffic->packets += packets;
	traffic->bytes += bytes;
}

static __always_inline struct member *member_at(__u32 group, __u32 index)
{
	__u32 key = group * MAX_FANOUT + index;

	return bpf_map_lookup_elem(&members, &key);
}

static __always_inline void refuse(const struct member *member, __u32 reason, __u32 packets)
{
	__u32 subscriber = member->subscriber;
	struct subscriber_counters *counters =
		bpf_map_lookup_elem(&subscriber_counters, &subscriber);

	if (counters && reason < DROP_REASONS)
		counters->drops[reason] += packets;
}

static __always_inline void deliver(__u32 subscriber, __u32 packets, __u32 bytes)
{
	struct subscriber_counters *counters =
		bpf_map_lookup_elem(&subscriber_counters, &subscriber);

	if (counters)
		count(&counters->delivered, packets, bytes);
}

struct refusal {
	__u32 slot;
	__u32 from;
	/* DROP_REASONS: each member's own. */
	__u32 reason;
	__u32 packets;
};

static long refuse_next(__u32 i, struct refusal *refusal)
{
	struct member *member = member_at(refusal->slot, refusal->from + i);
	__u32 reason = refusal->reason;

	if (!member)
		return 1;
	refuse(member, reason == DROP_REASONS ? member->refused : reason, refusal->packets);
	return 0;
}

/* Counts the copies that a group does not make: one for each of so many members. */
static __always_inline void refuse_members(__u32 slot, __u32 from, __u32 members, __u32 reason,
					   __u32 packets)
{
	struct refusal refusal = {
		.slot = slot,
		.from = from,
		.reason = reason,
		.packets = packets,
	};

	bpf_loop(members, refuse_next, &refusal, 0);
}

#endif
