/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The hashes of roots: twins of acl's address.rs. */
#ifndef ROUTER_ACL_HASH_H
#define ROUTER_ACL_HASH_H

#include <bpf/bpf_helpers.h>

#define ACL_MIX0 0x9e3779b1U
#define ACL_MIX1 0x85ebca77U
#define ACL_MIX2 0xc2b2ae3dU
#define ACL_WIDE0 0x9e3779b185ebca87ULL
#define ACL_WIDE1 0xc2b2ae3d27d4eb4fULL

/* The first `bits` of a number. */
static __always_inline __u32 shifted(__u32 number, __u32 bits)
{
	return bits ? number >> ((32 - bits) & 31) : 0;
}

static __always_inline __u32 acl_hash4(__u64 addresses, const __u8 *lengths)
{
	__u32 sum = shifted(addresses, lengths[0]) * ACL_MIX0 +
		    shifted(addresses >> 32, lengths[1]) * ACL_MIX1;

	return (sum ^ sum >> 15) * ACL_MIX2;
}

/* Mixes the first `bits` of an address: words[0] is its low half. Without branches, each of which
 * the verifier would follow for everything that comes after.
 */
static __always_inline __u64 acl_fold(const __u64 *words, __u32 bits)
{
	__u64 rest = 128 - bits;
	__u64 halves = rest >> 6 & 3;
	/* All ones where no half is shifted out, and where one is. */
	__u64 none = (__s64)(halves - 1) >> 63;
	__u64 one = 0 - (halves & 1);
	__u64 low, high;

	rest &= 63;
	high = words[1] >> rest;
	low = words[0] >> rest | words[1] << 1 << (63 - rest);
	low = (low & none) | (high & one);
	high &= none;
	high *= ACL_WIDE0;
	return (low ^ high ^ high >> 29) * ACL_WIDE1;
}

static __always_inline __u32 acl_hash6(const __u64 *words, const __u8 *lengths)
{
	__u64 source = acl_fold(words, lengths[0]);
	__u64 sum = (source << 23 | source >> 41) + acl_fold(words + 2, lengths[1]);

	return ((__u32)(sum ^ sum >> 32) ^ (__u32)(sum >> 47)) * ACL_MIX2;
}

#endif
