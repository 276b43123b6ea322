/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What userspace writes and the program reads. Userspace has these structures from the skeleton,
 * which needs padding to be explicit.
 */
#ifndef ROUTER_LAYOUT_H
#define ROUTER_LAYOUT_H

#include <bpf/bpf_helpers.h>

/* What became of a frame. Everything but FORWARDED and the DROP_ ones goes up to the kernel. */
enum end {
	FORWARDED = 0,
	DROP_RULE,
	DROP_ROUTE,
	/* The device is gone, down or takes no such frames, or there is no room for a tag. */
	DROP_DEVICE,
	/* The device's driver did not take it. */
	DROP_TRANSMIT,
	/* A rule may drop it, and neither this program nor the kernel can ask the rules. */
	DROP_UNFILTERED,
	PUNT_LOCAL,
	PUNT_REFUSED,
	PUNT_UNRESOLVED,
	PUNT_ROUTE_DEVICE,
	PUNT_NO_ROUTE,
	/* The route's next hop was never given a meaning. */
	PUNT_NO_MEANING,
	PUNT_RULE,
	/* Rules look at ports, and this packet does not show them. */
	PUNT_UNKEYED,
	/* More steps than a lookup may take. */
	PUNT_RULES_UNFINISHED,
	PUNT_TTL,
	PUNT_TOO_LONG,
	PUNT_OPTIONS,
	PUNT_NOT_UNICAST,
	PUNT_NOT_IP,
	PUNT_MALFORMED,
	PUNT_MARTIAN,
	/* The kernel looks whether the source is reached by the device, and this program found that
	 * it may not be. */
	PUNT_REVERSE_PATH,
	/* The kernel's own rules decide about it. */
	PUNT_POLICY,
	/* Not for this router's link-layer address, or by a VLAN that it has not. */
	PUNT_NOT_OURS,
	/* The table changed during each of several lookups. */
	PUNT_BUSY,
	ENDS,
};

struct traffic {
	__u64 packets;
	/* Frames' bytes, as they came. */
	__u64 bytes;
};

/* No number ever falls: FORWARDED has all frames that were sent, also those that were lost after
 * that. */
struct ends {
	struct traffic end[ENDS];
	/* Of those that were sent: the device was down, or took none. */
	__u64 refused;
};

/* Where packets for the router come in; tags are outermost first, 0 for none. */
struct port_key {
	__u32 ifindex;
	__u16 tag[2];
};

struct port {
	__u8 mac[6];
	/* Of enum port_flags. */
	__u8 flags;
	/* Of enum reverse_path, for IPv4. */
	__u8 reverse_path;
};

enum port_flags {
	/* All packets of the IP version are the kernel's. */
	PORT_KERNEL_V4 = 1,
	PORT_KERNEL_V6 = 2,
	/* Those are fast that leave by a device of `pairs`. */
	PORT_PAIRS_V4 = 4,
	PORT_PAIRS_V6 = 8,
	/* The kernel puts fragments together before its rules see them. */
	PORT_FRAGMENTS = 16,
};

enum reverse_path {
	REVERSE_PATH_OFF = 0,
	REVERSE_PATH_STRICT = 1,
	REVERSE_PATH_LOOSE = 2,
};

/* Where packets come in and leave, with VLAN ids, NO_VLAN for none. */
struct pair {
	__u32 from;
	__u32 to;
	__u16 from_vlan;
	__u16 to_vlan;
	__u32 v6;
};

enum meaning_kind {
	MEANING_NONE = 0,
	MEANING_NEIGHBOUR = 1,
	MEANING_GROUP = 2,
	MEANING_DROP = 3,
	/* `index` is the end. */
	MEANING_PUNT = 4,
};

/*
 * What a next hop stands for: kind in the low half, index in the high half. One word, so that it
 * changes at once: what it refers to was written before it, and is not written again while a
 * program may look at it.
 */
static __always_inline __u32 meaning_kind(__u64 meaning)
{
	return meaning;
}

static __always_inline __u32 meaning_index(__u64 meaning)
{
	return meaning >> 32;
}

#define NO_VLAN 0xffff

struct adjacency {
	/* As they lie in the frame. */
	__u8 destination[6];
	__u8 source[6];
	__u32 ifindex;
	/* The longest IP packet. */
	__u32 mtu;
	__u16 vlan;
	__u16 padding;
};

#define HOPS 32768
#define BUCKETS 256

/* The next hop of each part of a group's flows. */
struct group {
	__u16 bucket[BUCKETS];
};

/* Decided when the program is loaded. */
struct settings {
	/* Of the hash by which flows are shared out among the members of groups. */
	__u64 seed;
	/* IPv4 next hops beyond a byte: the second table and the groups have words. */
	__u8 v4_words;
	/* Packets whose source is this router's own address are martians. */
	__u8 check_source;
	__u16 padding;
	/* The inode of the router's network namespace. */
	__u32 netns;
};

#endif
