/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Tells a broadcast's copies apart: which of a device's members each one is for. */
#ifndef RELAY_ORDINAL_H
#define RELAY_ORDINAL_H

#include "tag.h"

struct cursor {
	__u64 nonce;
	__u32 ordinal;
	__u32 zero;
};

/*
 * How far a CPU is through a datagram's copies, for each device by itself: a driver takes copies in
 * batches of one device, so those of two devices come in turns that one counter cannot follow.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_DEVICES);
	__type(key, __u32);
	__type(value, struct cursor);
} cursors SEC(".maps");

/* Which of a device's members this copy is for: the order of the keys is the order of the copies.
 */
static __always_inline struct member *next_member(const struct tag *tag, __u32 ifindex)
{
	__u32 slot = tag->group;
	struct group *group = bpf_map_lookup_elem(&groups, &slot);
	struct cursor *cursor;
	__u32 at = 0;

	if (!group)
		return NULL;
	/* One device is the rule: a scan beats a hash of (group, device). */
	for (; at < MAX_GROUP_DEVICES - 1 && at + 1 < group->devices; at++)
		if (group->device[at].ifindex == ifindex)
			break;
	at &= MAX_GROUP_DEVICES - 1;
	if (group->device[at].ifindex != ifindex)
		return NULL;
	slot = group->device[at].slot;
	cursor = bpf_map_lookup_elem(&cursors, &slot);
	if (!cursor)
		return NULL;
	if (cursor->nonce != tag->nonce) {
		cursor->nonce = tag->nonce;
		cursor->ordinal = 0;
	}
	if (cursor->ordinal >= group->device[at].count)
		return NULL;
	return member_at(tag->group, group->device[at].first + cursor->ordinal++);
}

#endif
