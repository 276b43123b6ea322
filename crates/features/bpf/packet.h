/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a frame's headers say: twin of features::dissect::Packet without the payload, and as it is
 * the record that a ring of packets carries. Numbers are in host order.
 */
#ifndef FEATURES_PACKET_H
#define FEATURES_PACKET_H

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Twin of features::Key. */
struct flow_key {
	/* The high and the low half of each; IPv4 mapped into IPv6. */
	__u64 addresses[2][2];
	__u16 ports[2];
	/* 0 unless flows are told apart by it. */
	__u16 vlan;
	__u8 protocol;
	/* 4 or 6. */
	__u8 version;
};

enum packet_mark {
	/* A TCP header was read; an ICMP header was read. */
	PACKET_TCP = 1 << 0,
	PACKET_ICMP = 1 << 1,
	PACKET_WINDOW_SCALE = 1 << 2,
	PACKET_HEADLESS = 1 << 3,
	PACKET_TRUNCATED = 1 << 4,
	PACKET_MALFORMED = 1 << 5,
	PACKET_AGGREGATED = 1 << 6,
};

enum packet_fragment {
	FRAGMENT_NONE = 0,
	FRAGMENT_FIRST = 1,
	FRAGMENT_LATER = 2,
};

enum tcp_flag {
	TCP_FIN = 0x01,
	TCP_SYN = 0x02,
	TCP_RST = 0x04,
	TCP_ACK = 0x10,
};

/* Lengths in bytes, with features::dissect::Packet's meanings. */
struct packet {
	struct flow_key key;
	__s64 time_ns;
	__u32 wire_length;
	__u32 ip_length;
	__u32 ip_header;
	__u32 l4_header;
	/* Until the transport is read: what the packet has behind its IP header. */
	__u32 payload_length;
	__u32 identification;
	__u32 sequence;
	__u32 acknowledgement;
	__u32 marks;
	__u16 l3;
	__u16 ethertype;
	/* The outermost tag's VLAN id. */
	__u16 vlan;
	__u16 window;
	__u16 icmp_identifier;
	/* The device's, by which it came in. */
	__u16 queue;
	__u8 icmp_kind;
	__u8 icmp_code;
	__u8 source_mac[ETH_ALEN];
	__u8 destination_mac[ETH_ALEN];
	__u8 vlan_tags;
	__u8 tcp_flags;
	__u8 window_scale;
	__u8 ttl;
	__u8 tos;
	__u8 fragment;
	/* The endpoint of the key that sent it: 0 or 1. */
	__u8 sender;
	/* The protocol field of the IPv4 header; 0 of IPv6. */
	__u8 ip_protocol;
	/* The four bits before the TCP flags. */
	__u8 tcp_reserved;
	__u8 padding;
};

_Static_assert(sizeof(struct flow_key) == 40, "no implicit padding");
_Static_assert(sizeof(struct packet) == 120, "no implicit padding");

/* Why a frame has no packet: features::counters::Rejection in its order, less what no device sends,
 * then what only this dissector refuses.
 */
enum refusal {
	REFUSED_TRUNCATED_LINK = 0,
	REFUSED_TOO_DEEP = 1,
	REFUSED_NOT_IP = 2,
	REFUSED_TRUNCATED_IP = 3,
	REFUSED_BAD_IP = 4,
	/* More than MOST_EXTENSIONS. */
	REFUSED_TOO_MANY_EXTENSIONS = 5,
	REFUSALS = 6,
	DISSECTED = 6,
};

/*
 * What a loop's rounds change lies in the upper part of 8 bytes of the stack: from there the
 * verifier reads an unknown number back, and one round is like another. Of what lies at their start
 * it keeps what it knew, and would look at the loop once for each number that can be there.
 */
struct walk {
	__u16 padding;
	/* From the frame's start. */
	__u16 at;
	__u16 end;
	__u8 value;
	__u8 verdict;
};

static __always_inline __u32 least(__u32 one, __u32 other)
{
	return one < other ? one : other;
}

#endif
