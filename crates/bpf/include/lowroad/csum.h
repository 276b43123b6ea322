/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Internet checksums (RFC 1071) and their incremental update (RFC 1624), without a kernel helper
 * to fix them up afterwards: XDP has none.
 *
 * A sum is a __u32 of 16-bit words added as they lie in memory, so it needs no byte swaps; a
 * checksum field holds the complement of a folded sum.
 */
#ifndef LOWROAD_CSUM_H
#define LOWROAD_CSUM_H

#include "lowroad/parse.h"

/* The longest run csum_bytes() adds: a jumbo frame. */
#define CSUM_MAX_BYTES 9216
/* The longest run bpf_csum_diff() takes. */
#define CSUM_CHUNK 512

static __always_inline __u32 csum_add(__u32 sum, __u32 addend)
{
	sum += addend;
	return sum + (sum < addend);
}

/* The 16-bit one's complement sum; zero only when every word was. */
static __always_inline __u16 csum_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* The checksum after a 16-bit word changed (RFC 1624, equation 3). */
static __always_inline __sum16 csum_replace2(__sum16 check, __be16 from, __be16 to)
{
	return ~csum_fold((__u16)~check + (__u32)(__u16)~from + to);
}

/* The checksum after an aligned 32-bit word changed. */
static __always_inline __sum16 csum_replace4(__sum16 check, __be32 from, __be32 to)
{
	return ~csum_fold(csum_add(csum_add((__u16)~check, ~from), to));
}

/* A computed UDP checksum as it is sent: zero would say that there is none (RFC 768). */
static __always_inline __sum16 csum_udp_nonzero(__sum16 check)
{
	return check ? check : 0xffff;
}

/* As csum_replace2() for UDP: an absent checksum stays absent. */
static __always_inline __sum16 udp_csum_replace2(__sum16 check, __be16 from, __be16 to)
{
	return check ? csum_udp_nonzero(csum_replace2(check, from, to)) : 0;
}

static __always_inline __sum16 udp_csum_replace4(__sum16 check, __be32 from, __be32 to)
{
	return check ? csum_udp_nonzero(csum_replace4(check, from, to)) : 0;
}

static __always_inline __u32 csum_address(__u32 sum, const struct in6_addr *address)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		sum = csum_add(sum, address->in6_u.u6_addr32[i]);
	return sum;
}

/* UDP and TCP pseudo-header sum over IPv4 or IPv6; `length` is the transport's, in host order.
 * One function serves both: the two 0xffff words of mapped addresses add nothing to a one's
 * complement sum.
 */
static __always_inline __u32 csum_pseudo(const struct in6_addr *source,
					 const struct in6_addr *destination, __u8 protocol,
					 __u32 length)
{
	__u32 sum = csum_address(csum_address(0, source), destination);

	return csum_add(csum_add(sum, bpf_htonl(length)), bpf_htons(protocol));
}

/*
 * Whether a sender left the checksum to its device (CHECKSUM_PARTIAL): the field then holds the
 * folded pseudo-header sum, not complemented. Veth hands such frames on as they are, and an
 * incremental update of the field would never become right: sum the datagram instead.
 *
 * One complete checksum in 65536 looks the same; summing is right for those too.
 */
static __always_inline bool udp_csum_is_partial(__sum16 check, __u32 pseudo)
{
	return check == csum_fold(pseudo);
}

/* Adds bytes [offset, offset + length) to `sum`, or returns -1 when they are not all in the
 * packet or too many. The result is folded.
 *
 * bpf_csum_diff() wants constant sizes, so the run is taken in chunks, then by halves. Each call
 * costs the verifier some thousand states: put it in a global function (xdp_csum_bytes below), so
 * that it is looked at once and not per path that leads to it.
 */
static __always_inline int csum_bytes(void *data, void *end, __u32 offset, __u32 length, __u32 sum)
{
	void *at;

	if (length > CSUM_MAX_BYTES)
		return -1;
	for (int i = 0; i < CSUM_MAX_BYTES / CSUM_CHUNK && length >= CSUM_CHUNK; i++) {
		at = packet_at(data, end, offset, CSUM_CHUNK);
		if (!at)
			return -1;
		sum = bpf_csum_diff(NULL, 0, at, CSUM_CHUNK, sum);
		offset += CSUM_CHUNK;
		length -= CSUM_CHUNK;
	}
#pragma unroll
	for (__u32 size = CSUM_CHUNK / 2; size >= 4; size /= 2) {
		if (!(length & size))
			continue;
		at = packet_at(data, end, offset, size);
		if (!at)
			return -1;
		sum = bpf_csum_diff(NULL, 0, at, size, sum);
		offset += size;
	}
	if (length & 2) {
		at = packet_at(data, end, offset, 2);
		if (!at)
			return -1;
		sum = csum_add(sum, *(__u16 *)at);
		offset += 2;
	}
	if (length & 1) {
		at = packet_at(data, end, offset, 1);
		if (!at)
			return -1;
		/* The odd byte is the first of a word whose second is zero. */
		sum = csum_add(sum, bpf_htons(*(__u8 *)at << 8));
	}
	return csum_fold(sum);
}

/* The UDP checksum of the whole datagram, from its folded csum_bytes(): that counted the field's
 * present value, which is taken out here.
 */
static __always_inline __sum16 udp_csum_finish(__u32 bytes, __u32 pseudo, __sum16 check)
{
	return csum_udp_nonzero(~csum_fold(csum_add(csum_add(bytes, pseudo), (__u16)~check)));
}

#endif
