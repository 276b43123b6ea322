/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the delay probes share between namespaces and with userspace: knobs, structures, maps. */
#ifndef PROBES_DELAY_H
#define PROBES_DELAY_H

#include <bpf/bpf_helpers.h>

#include "lowroad/histogram.h"

/* Final receivers; one program each, because interface indices repeat across namespaces. */
#define DELAY_RECEIVERS 4
/* The sender's index among `devices`. */
#define DELAY_SENDER DELAY_RECEIVERS
#define DELAY_FLOWS 16
#define DELAY_ENDPOINTS_LOG2 13

enum delay_key {
	DELAY_KEY_LOWROAD = 0,
	DELAY_KEY_RTP = 1,
	DELAY_KEY_PAYLOAD = 2,
};

/* When one packet of one flow left the sender. */
struct stamp {
	__u32 tag;
	__u32 sequence;
	__u64 ns;
};

/* Where a subscriber's packets go; userspace chooses a multiplier under which no two collide. */
struct endpoint {
	/* IPv4 as IPv4-mapped IPv6; network byte order. */
	__u64 address[2];
	__be16 port;
	__u16 used;
	__u32 subscriber;
	__u32 flow;
	__u32 zero;
};

/* Exact counts of one subscriber, by CPU. received = unique + duplicates + foreign + beyond. */
struct tally {
	__u64 received;
	__u64 unique;
	__u64 duplicates;
	/* Of another flow or run, or (by payload) never sent. */
	__u64 foreign;
	/* Sequence past what the bitmap holds: the trial was longer than planned. */
	__u64 beyond;
	/* RFC 4737: after a packet that was sent later. */
	__u64 reordered;
	/* Without a delay, because the stamp was overwritten before the packet arrived. */
	__u64 unmatched;
	/* Arrived before it was sent: the clocks or the key are wrong. */
	__u64 negative;
};

/* The order of one subscriber's arrivals: written by the one CPU its packets arrive on. */
struct arrival {
	__u64 last_ns;
	__u64 max_gap_ns;
	/* RFC 3550 section 6.4.1, in 1/16 ns as its appendix A.8 keeps it. */
	__u64 jitter_16;
	__s64 last_delay_ns;
	__u32 next_sequence;
	__u32 zero;
};

/* What passed one device, by CPU. */
struct device {
	__u64 packets;
	/* Ours, by the match key. */
	__u64 matched;
	/* Ours, to an address that is no subscriber's. */
	__u64 foreign;
	/* Ours by magic, of another run. */
	__u64 stale;
	/* GSO: several datagrams in one packet, seen as its first. */
	__u64 superframes;
	/* By payload: the key of a packet still under way, or of an identical one. */
	__u64 collisions;
};

/* What left the sender in one flow. */
struct departure {
	__u32 first;
	__u32 highest;
	__u32 started;
	__u32 zero;
};

const volatile __u32 match_key = DELAY_KEY_LOWROAD;
const volatile __u32 run;
const volatile __u32 flow_count = 1;
/* RTP: the SSRC of each flow. */
const volatile __u32 sources[DELAY_FLOWS];
/* Stamps kept of each flow, a power of two. */
const volatile __u32 window_log2 = 16;
const volatile __u64 endpoint_multiplier = 1;
/* Sequence numbers the bitmap of one subscriber holds, a multiple of 64. */
const volatile __u32 capacity;
/* A histogram for each subscriber instead of one for all. */
const volatile __u8 split_histograms;
/* Take the time of sending from the payload: the sender bypasses tc. */
const volatile __u8 stamp_in_payload;
/* The null probe: attached and parsing, but neither stamping nor matching. */
const volatile __u8 null_probe;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stamp);
} stamps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << DELAY_ENDPOINTS_LOG2);
	__type(key, __u32);
	__type(value, struct endpoint);
} endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct arrival);
} arrivals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DELAY_RECEIVERS + 1);
	__type(key, __u32);
	__type(value, struct device);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DELAY_FLOWS);
	__type(key, __u32);
	__type(value, __u64);
} sent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DELAY_FLOWS);
	__type(key, __u32);
	__type(value, struct departure);
} departures SEC(".maps");

/* One bit a sequence number, `capacity` bits a subscriber. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} bitmap SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct histogram);
} histograms SEC(".maps");

#endif
