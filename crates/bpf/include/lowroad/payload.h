/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The header at the start of every generated datagram's payload; twin of packet::payload.
 * It is a valid RTP header (version 2, payload type 0, magic as timestamp, run as SSRC), because
 * media relays drop what is not RTP. Fields of ours are little-endian, as is every machine this
 * runs on; times are bpf_ktime_get_ns().
 */
#ifndef LOWROAD_PAYLOAD_H
#define LOWROAD_PAYLOAD_H

#include <bpf/bpf_helpers.h>

#define PAYLOAD_MAGIC 0x314f574cU

struct payload {
	__u8 rtp[2]; /* 0x80, 0x00 */
	__be16 rtp_sequence; /* the low 16 bits of `sequence` */
	__u32 magic;
	__u32 run;
	__u32 flow;
	__u64 sequence;
	__u64 intended_ns;
	__u64 sent_ns;
} __attribute__((packed, aligned(1)));

_Static_assert(sizeof(struct payload) == 40, "packet::payload::LEN");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields are little-endian on the wire");

/* The header at `at`, or NULL when the frame is too short or not ours. */
static __always_inline struct payload *payload_at(void *at, void *end)
{
	struct payload *p = at;

	if ((void *)(p + 1) > end || p->magic != PAYLOAD_MAGIC)
		return NULL;
	return p;
}

#endif
