/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* One's complement sums (RFC 1071) over packet bytes, in the order they have in memory. */
#ifndef RELAY_CHECKSUM_H
#define RELAY_CHECKSUM_H

#include "table.h"

#define SUM_BLOCK 32
/* The longest payload that is summed here; anything longer is left to userspace. */
#define SUM_MAX 9216

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* The bytes after the last whole block: fewer than SUM_BLOCK. */
static __always_inline int sum_tail(const __u8 *at, const void *end, __u32 length, __u64 *sum)
{
	for (__u32 i = 0; i < SUM_BLOCK / 2 && length >= 2; i++) {
		barrier_var(at);
		if ((void *)(at + 2) > end)
			return -1;
		*sum += *(const __u16 *)at;
		at += 2;
		length -= 2;
	}
	barrier_var(at);
	if (length) {
		if ((void *)(at + 1) > end)
			return -1;
		*sum += bpf_htons((__u16)(*at << 8));
	}
	return 0;
}

/* Adds `length` bytes to *sum; negative when they are not all there. */
static __always_inline int sum_bytes(const void *start, const void *end, __u32 length, __u64 *sum)
{
	const __u32 *at = start;

	for (__u32 i = 0; i < SUM_MAX / SUM_BLOCK && length >= SUM_BLOCK; i++) {
		/* Keeps the compiler from moving `end` instead, which the verifier forbids. */
		barrier_var(at);
		if ((void *)(at + SUM_BLOCK / 4) > end)
			return -1;
		/* 32-bit loads into a 64-bit sum: no carry to watch, two instructions a word. */
		*sum += (__u64)at[0] + at[1] + at[2] + at[3];
		*sum += (__u64)at[4] + at[5] + at[6] + at[7];
		at += SUM_BLOCK / 4;
		length -= SUM_BLOCK;
	}
	return sum_tail((const __u8 *)at, end, length, sum);
}

static __always_inline __u64 sum_address(const struct address *address)
{
	return (address->high & 0xffffffff) + (address->high >> 32) + (address->low & 0xffffffff) +
	       (address->low >> 32);
}

#endif
