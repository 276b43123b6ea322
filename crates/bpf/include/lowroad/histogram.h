/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A log-linear histogram: exact below 256, then 128 buckets an octave up to 2^38; twin of
 * stats::bucket. 4096 counters of 64 bits are the largest value that a per-CPU map takes. One per
 * CPU, so that counting needs no atomic operation.
 */
#ifndef LOWROAD_HISTOGRAM_H
#define LOWROAD_HISTOGRAM_H

#include <bpf/bpf_helpers.h>

#define HISTOGRAM_BUCKETS 4096

struct histogram {
	__u64 counts[HISTOGRAM_BUCKETS];
};

static __always_inline __u32 histogram_log2(__u64 value)
{
	__u32 log = 0;

	if (value >> 32) {
		value >>= 32;
		log += 32;
	}
	if (value >> 16) {
		value >>= 16;
		log += 16;
	}
	if (value >> 8) {
		value >>= 8;
		log += 8;
	}
	if (value >> 4) {
		value >>= 4;
		log += 4;
	}
	if (value >> 2) {
		value >>= 2;
		log += 2;
	}
	return log + (value >> 1 ? 1 : 0);
}

/* The bucket a value belongs to, always below HISTOGRAM_BUCKETS. */
static __always_inline __u32 histogram_bucket(__u64 value)
{
	__u32 log;

	if (value < 256)
		return value;
	log = histogram_log2(value);
	if (log >= 38)
		return HISTOGRAM_BUCKETS - 1;
	return (log - 7) * 128 + (__u32)(value >> (log - 7));
}

static __always_inline void histogram_count(struct histogram *histogram, __u64 value)
{
	/* The verifier cannot see what histogram_bucket() promises; older ones follow a mask, not a
	 * comparison. */
	histogram->counts[histogram_bucket(value) & (HISTOGRAM_BUCKETS - 1)]++;
}

#endif
