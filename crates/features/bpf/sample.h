/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which packets are kept, by a hash: twin of features::filter::sample, and chooses the same flows,
 * and of the same times the same packets.
 */
#ifndef FEATURES_SAMPLE_H
#define FEATURES_SAMPLE_H

#include "filter.h"
#include "flow_hash.h"
#include "limit.h"

/* The twin's MAX_TIERS. */
#define MAX_TIERS 15

/* The sampling rate as a fraction. */
struct rate {
	__u32 kept;
	__u32 of;
};

enum fate {
	FATE_KEPT = 0,
	FATE_FILTERED = 1,
	FATE_SAMPLED_OUT = 2,
	FATE_RATE_LIMITED = 3,
};

/* Whether anything is left out at all; whether there is a program of steps. */
const volatile __u8 selecting = 0;
const volatile __u8 filtering = 0;
/* Whole flows, or packet by packet. */
const volatile __u8 sample_flows = 1;
const volatile __u64 sample_seed = 0;
/* Of packets of no tier, then of each tier. */
const volatile struct rate sample_rates[1 + MAX_TIERS] = {};

/* A hash that is the same for both directions, and independent of VLAN ids in the key. */
static __always_inline __u64 sample_flow_hash(const struct flow_key *key, __u64 seed)
{
	__u64 hash = mix_addresses(seed, key);

	hash = mix(hash, key->ports[0] | (__u64)key->ports[1] << 16 | (__u64)key->protocol << 48 |
				 (__u64)key->version << 56);
	/* Where the twin has a tunnel. */
	return mix(hash, 0);
}

static __always_inline __u64 sample_packet_hash(const struct packet *p, __u64 seed)
{
	__u64 hash = sample_flow_hash(&p->key, seed);

	hash = mix(hash, p->time_ns);
	hash = mix(hash, (__u64)p->identification << 32 | p->wire_length);
	hash = mix(hash, (__u64)p->sequence << 32 | p->acknowledgement);
	return mix(hash, 0);
}

/* Whether a rate keeps this hash. */
static __always_inline bool sample_keeps(__u32 kept, __u32 of, __u64 hash)
{
	return (hash >> 32) * of >> 32 < kept;
}

static __always_inline __u64 sample_hash(const struct packet *p)
{
	return sample_flows ? sample_flow_hash(&p->key, sample_seed)
			    : sample_packet_hash(p, sample_seed);
}

/* The enum fate of a packet. Global, so that the verifier checks it only once. */
__noinline int select_packet(struct packet *p)
{
	__u32 class = 0, kept, of;

	if (!p)
		return FATE_FILTERED;
	if (filtering)
		class = filter_class(p);
	if (class > MAX_TIERS)
		return FATE_FILTERED;
	kept = sample_rates[class].kept;
	of = sample_rates[class].of;
	if (kept != of && !sample_keeps(kept, of, sample_hash(p)))
		return FATE_SAMPLED_OUT;
	if (limit_gap_ns && !limit_admits(p->time_ns))
		return FATE_RATE_LIMITED;
	return FATE_KEPT;
}

#endif
