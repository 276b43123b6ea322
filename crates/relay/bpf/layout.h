/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the tables hold: streams by ingest, groups of members, and the counters. Userspace has these
 * structures from the skeletons, which needs padding to be explicit. Addresses are 16 bytes
 * everywhere, IPv4 as ::ffff:a.b.c.d.
 */
#ifndef RELAY_LAYOUT_H
#define RELAY_LAYOUT_H

#define MAX_STREAMS 256
#define MAX_FANOUT 256
#define MAX_SUBSCRIBERS 4096
#define MAX_PREFIXES 16
/* Versions of groups: one for each stream, and room for those that wait for a grace period. */
#define GROUP_SLOTS 320
#define MAX_GROUP_DEVICES 32
/* Egress devices of all streams together. */
#define MAX_DEVICES 256
#define MAX_SOURCES 65536

/* relay::handover::ForwardingPath */
enum forwarding_path {
	PATH_PASSING = 0,
	PATH_DIVERTED = 1,
	PATH_FAST = 2,
};

enum source_policy {
	SOURCE_ANY = 0,
	SOURCE_ALLOW = 1,
	SOURCE_LATCH = 2,
};

/* relay::counters::DropReason */
enum drop_reason {
	DROP_MALFORMED = 0,
	DROP_BAD_CHECKSUM = 1,
	DROP_SOURCE_DENIED = 2,
	DROP_RATE_LIMITED = 3,
	DROP_TTL_EXCEEDED = 4,
	DROP_NO_ROUTE = 5,
	DROP_NO_NEIGHBOUR = 6,
	DROP_TOO_BIG = 7,
	DROP_TRANSMIT = 8,
	DROP_QUEUE_FULL = 9,
	DROP_REASONS = 10,
};

struct ingest_key {
	struct in6_addr address;
	__u32 ifindex;
	__be16 port;
	__u16 family;
};

struct ingest {
	__u32 stream;
	/* Frames to all devices, or to a group of them, are meant as well. */
	__u32 groups;
	/* The device's own address as the first eight bytes of a frame have it, zeros after it. */
	__u64 mac;
};

struct prefix {
	struct in6_addr address;
	struct in6_addr mask;
};

struct stream {
	__u32 group;
	__u16 path;
	/* Userspace gets a copy of each datagram, for the subscribers that only it can send to. */
	__u8 copies;
	__u8 source_policy;
	__u8 prefixes;
	__u8 min_ttl;
	/* Some senders that the policy allows may be in `kernel_sources`. */
	__u8 check_source;
	__u8 zero[5];
	/* Nanoseconds between packets at the limit, and the bucket's depth in them; 0: no limit. */
	__u64 stream_interval;
	__u64 stream_depth;
	__u64 source_interval;
	__u64 source_depth;
	__u64 latch_timeout;
	struct prefix allowed[MAX_PREFIXES];
};

/* Of `prefixes`: more than `allowed` has room for are in a trie of all streams'. */
#define PREFIXES_IN_TRIE 255

struct source_prefix {
	/* Bits of what follows that count. */
	__u32 length;
	__u32 stream;
	__u32 family;
	struct in6_addr address;
};

struct latch {
	struct bpf_spin_lock lock;
	__be16 port;
	__u16 held;
	struct in6_addr address;
	__u64 seen;
};

struct divert {
	struct bpf_spin_lock lock;
	__u32 taken_over;
	__u64 diverted;
};

struct source_key {
	struct in6_addr address;
	__u32 stream;
	__u32 zero;
};

/* The members of one version of a group that leave by one device: contiguous, in key order. */
struct device {
	__u32 ifindex;
	/* The longest frame that the device accepts from a redirect. */
	__u32 frame_max;
	__u16 slot;
	__u16 first;
	__u16 count;
	__u16 zero;
};

/* One immutable version of a stream's subscribers: changing them makes another version. */
struct group {
	__u32 stream;
	/* Members ready to be sent to; those that are not come after them. */
	__u32 ready;
	__u32 members;
	__u32 devices;
	/* The smallest frame_max of the devices. */
	__u32 frame_max;
	/* When the last copy last went through a device that it may pass by: enum queued. */
	__u32 queued;
	struct device device[MAX_GROUP_DEVICES];
};

/* The frame that is the last copy may go to the other end of the member's veth directly. */
#define MEMBER_DIRECT 1

struct member {
	__u8 destination_mac[6];
	__u8 source_mac[6];
	__be16 source_port;
	__be16 destination_port;
	struct in6_addr source;
	struct in6_addr destination;
	__u32 subscriber;
	__u32 ifindex;
	__u32 mtu;
	/* Folded sums: of the addresses, and of the ports. */
	__u16 address_sum;
	__u16 port_sum;
	__u16 family;
	/* 0: one less than the datagram arrived with. */
	__u8 ttl;
	/* Why nothing is sent to a member that is not ready. */
	__u8 refused;
	__u32 flags;
};

struct traffic {
	__u64 packets;
	__u64 bytes;
};

struct stream_counters {
	struct traffic received;
	struct traffic forwarded;
	struct traffic passed;
	__u64 copies_lost;
	__u64 drops[DROP_REASONS];
};

struct subscriber_counters {
	struct traffic delivered;
	__u64 drops[DROP_REASONS];
};

#endif
