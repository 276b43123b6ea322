/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which packet of which flow a frame carries: by lowroad's header, by RTP's, or by its payload. */
#ifndef PROBES_DELAY_IDENTIFY_H
#define PROBES_DELAY_IDENTIFY_H

#include "datagram.h"
#include "delay.h"
#include "lowroad/payload.h"

#define RTP_HEADER_LEN 12
#define RTP_VERSION_2 0x80
#define RTP_VERSION_MASK 0xc0
/* By payload, bytes past this are told apart by their number only. */
#define HASHED_WORDS 16
/* By payload, slots a packet may take: hashes that share one must not cost a packet under way. */
#define STAMP_WAYS 4

struct rtp_header {
	__u8 version;
	__u8 payload_type;
	__be16 sequence;
	__be32 timestamp;
	__be32 ssrc;
};

/*
 * A packet's identity. By payload, `tag` and the first of its slots, `slot`, identify it, and the
 * stamp has its sequence.
 */
struct identity {
	__u32 flow;
	__u32 tag;
	__u32 sequence;
	__u32 slot;
	__u32 run;
	__u64 sent_ns;
};

static __always_inline __u32 stamp_slot(__u32 flow, __u32 number)
{
	return flow << window_log2 | (number & ((1U << window_log2) - 1));
}

static __always_inline int identify_lowroad(const struct datagram *datagram,
					    struct identity *identity)
{
	const struct payload *payload = payload_at(datagram->payload, datagram->end);

	if (!payload)
		return 0;
	identity->flow = payload->flow;
	identity->tag = payload->flow;
	identity->sequence = payload->sequence;
	identity->slot = stamp_slot(payload->flow, payload->sequence);
	identity->run = payload->run;
	identity->sent_ns = payload->sent_ns;
	return 1;
}

/* Extends 16 bits around the flow's highest number, which the sender's side keeps. */
static __always_inline __u32 extend(const struct departure *departure, __u16 sequence)
{
	__s16 distance = sequence - (__u16)departure->highest;

	return departure->highest + distance;
}

static __always_inline int identify_rtp(const struct datagram *datagram, struct identity *identity)
{
	const struct rtp_header *rtp = datagram->payload;
	const struct departure *departure;
	__u32 ssrc, flow;

	if ((const void *)(rtp + 1) > datagram->end ||
	    (rtp->version & RTP_VERSION_MASK) != RTP_VERSION_2)
		return 0;
	ssrc = bpf_ntohl(rtp->ssrc);
	for (flow = 0; flow < DELAY_FLOWS; flow++)
		if (flow < flow_count && sources[flow] == ssrc)
			break;
	departure = bpf_map_lookup_elem(&departures, &flow);
	if (!departure)
		return 0;
	identity->flow = flow;
	identity->tag = ssrc;
	identity->sequence =
		departure->started ? extend(departure, bpf_ntohs(rtp->sequence)) - departure->first
				   : 0;
	identity->slot = stamp_slot(flow, identity->sequence);
	identity->run = run;
	return 1;
}

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

static __always_inline __u64 hash_payload(const struct datagram *datagram)
{
	const __u8 *at = datagram->payload;
	__u32 left = datagram->length;
	__u64 hash = mix(0, left);
	int i;

	for (i = 0; i < HASHED_WORDS && left >= sizeof(__u64); i++) {
		if ((const void *)(at + sizeof(__u64)) > datagram->end)
			break;
		hash = mix(hash, *(const __u64 *)at);
		at += sizeof(__u64);
		left -= sizeof(__u64);
	}
	for (i = 0; i < (int)sizeof(__u64) - 1 && left; i++) {
		if ((const void *)(at + 1) > datagram->end)
			break;
		hash = mix(hash, *at);
		at++;
		left--;
	}
	return hash;
}

static __always_inline int identify_payload(const struct datagram *datagram,
					    struct identity *identity)
{
	__u64 hash = hash_payload(datagram);

	identity->flow = 0;
	identity->tag = hash >> 32;
	identity->sequence = 0;
	identity->slot = stamp_slot(0, hash) & ~(STAMP_WAYS - 1);
	identity->run = run;
	return 1;
}

/* Whether the datagram is one of a probed flow. */
static __always_inline int identify(const struct datagram *datagram, struct identity *identity)
{
	if (match_key == DELAY_KEY_LOWROAD)
		return identify_lowroad(datagram, identity);
	if (match_key == DELAY_KEY_RTP)
		return identify_rtp(datagram, identity);
	return identify_payload(datagram, identity);
}

/* By payload: the stamp with the packet's tag, or NULL. */
static __always_inline struct stamp *tagged_stamp(const struct identity *identity)
{
	int way;

	for (way = 0; way < STAMP_WAYS; way++) {
		__u32 slot = identity->slot + way;
		struct stamp *stamp = bpf_map_lookup_elem(&stamps, &slot);

		if (stamp && stamp->ns && stamp->tag == identity->tag)
			return stamp;
	}
	return NULL;
}

/* By payload: the slot that was not used for longest. */
static __always_inline struct stamp *oldest_stamp(const struct identity *identity)
{
	struct stamp *oldest = NULL;
	int way;

	for (way = 0; way < STAMP_WAYS; way++) {
		__u32 slot = identity->slot + way;
		struct stamp *stamp = bpf_map_lookup_elem(&stamps, &slot);

		if (stamp && (!oldest || stamp->ns < oldest->ns))
			oldest = stamp;
	}
	return oldest;
}

#endif
