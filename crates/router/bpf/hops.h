/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What next hops stand for, and which of a group a flow takes. */
#ifndef ROUTER_HOPS_H
#define ROUTER_HOPS_H

#include "layout.h"
#include "lowroad/parse.h"
#include "lpm4.h"
#include "tables.h"

/* Of IPv4's next hops, then of IPv6's. */
TABLE(meanings);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct adjacency);
} adjacencies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct group);
} groups SEC(".maps");

static __always_inline __u64 meaning_of(const struct packet *p, __u32 hop)
{
	__u32 family = p->family == AF_INET6 ? HOPS : 0;

	return number(&meanings, family | (hop & (HOPS - 1)), 8);
}

/* Odd multipliers with well spread bits: the golden ratio's, and one of xxHash's primes. */
static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b185ebca87ULL;
	return hash ^ hash >> 29;
}

/* Of addresses, protocol and ports, by the seed; all fragments of a packet go one way, so theirs
 * are not looked at.
 */
static __always_inline __u32 flow_bucket(const struct packet *p)
{
	const __u32 *source = p->source.in6_u.u6_addr32;
	const __u32 *destination = p->destination.in6_u.u6_addr32;
	__u64 hash = settings.seed ^ p->protocol;

	if (p->fragment == FRAGMENT_NONE)
		hash ^= (__u64)p->source_port << 8 | (__u64)p->destination_port << 24;
	hash = mix(hash, (__u64)source[3] << 32 | destination[3]);
	if (p->family == AF_INET6) {
		hash = mix(hash, (__u64)source[0] << 32 | source[1]);
		hash = mix(hash, (__u64)destination[0] << 32 | destination[1]);
		hash = mix(hash, (__u64)source[2] << 32 | destination[2]);
	}
	return (hash * 0xc2b2ae3d27d4eb4fULL) >> 56;
}

/* The meaning of the group's next hop for this flow. */
static __always_inline __u64 member_meaning(const struct packet *p, __u32 index)
{
	const struct group *group = bpf_map_lookup_elem(&groups, &index);

	if (!group)
		return MEANING_NONE;
	return meaning_of(p, group->bucket[flow_bucket(p) & (BUCKETS - 1)]);
}

#endif
