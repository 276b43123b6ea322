/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Hashes of a flow's key, equal for both directions, as their keys are. */
#ifndef FEATURES_FLOW_HASH_H
#define FEATURES_FLOW_HASH_H

#include "packet.h"

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 32;
}

static __always_inline __u64 mix_addresses(__u64 hash, const struct flow_key *key)
{
	hash = mix(mix(hash, key->addresses[0][0]), key->addresses[0][1]);
	return mix(mix(hash, key->addresses[1][0]), key->addresses[1][1]);
}

/* The high half: a word's high bits reach it by a second round only. */
static __always_inline __u32 finish(__u64 hash)
{
	return mix(hash, 0) >> 32;
}

static __always_inline __u32 hash_addresses(const struct flow_key *key)
{
	return finish(mix_addresses(0, key));
}

static __always_inline __u32 hash_key(const struct flow_key *key)
{
	__u64 ports = (__u64)key->ports[0] << 48 | (__u64)key->ports[1] << 32 | key->vlan << 16 |
		      key->protocol << 8 | key->version;

	return finish(mix(mix_addresses(0, key), ports));
}

/* The index, below the given number, for the flow with this hash. */
static __always_inline __u32 share(__u32 hash, __u32 count)
{
	return (__u64)hash * count >> 32;
}

#endif
