/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is kept of a flow: twin of features::flow::Flow, which userspace makes from it. It is a
 * table's value and a ring's record, so that a flow leaves by one copy.
 */
#ifndef FEATURES_FLOW_H
#define FEATURES_FLOW_H

#include "moments.h"
#include "packet.h"

/* The maximum number of first packets per flow that are kept individually. */
#define FLOW_STEPS 10
#define FLOW_FLAGS 8

enum flow_mark {
	FLOW_MIDSTREAM = 1 << 0,
	/* The first packet was ICMP. */
	FLOW_ICMP = 1 << 1,
	FLOW_RESET = 1 << 2,
	/* A SYN was seen; `initial` is its sequence number. */
	FLOW_INITIAL = 1 << 3,
	/* Has had a packet since it was put into the queue (flow_queue.h). */
	FLOW_ACTIVE = 1 << 4,
};

enum window_mark {
	WINDOW_SEEN = 1 << 0,
	WINDOW_SCALED = 1 << 1,
};

/* features::flow::End in its order. */
enum flow_end {
	END_IDLE = 0,
	END_ACTIVE = 1,
	END_CLOSED = 2,
	END_STOPPED = 3,
	END_FULL = 4,
	END_EARLY = 5,
	END_NONE = 6,
};

/* Consecutive packets that are a bulk or may become one. */
struct run {
	__u64 packets;
	__u64 bytes;
	__u64 duration_ns;
	__s64 last_ns;
};

struct bulks {
	__u64 count;
	__u64 packets;
	__u64 bytes;
	__u64 duration_ns;
	struct run run;
};

struct direction {
	struct lengths wire;
	struct lengths payload;
	struct times gaps;
	__s64 first_ns;
	__s64 last_ns;
	__u64 ip_bytes;
	__u64 ip_header_bytes;
	__u64 l4_header_bytes;
	__u64 payload_packets;
	struct bulks bulks;
	__u32 flags[FLOW_FLAGS];
	__u32 min_l4_header;
	__u16 first_window;
	__u16 last_window;
	__u8 window_marks;
	__u8 window_scale;
	__u8 min_ttl;
	__u8 max_ttl;
	__u8 tos;
	/* The four bits before the TCP flags of all packets. */
	__u8 reserved;
	__u16 queue; /* by which the last packet came */
};

struct periods {
	struct times closed;
	struct times idle;
	__u64 open_ns;
	__u64 subflow_gaps;
};

struct flow {
	struct flow_key key;
	/* Forward, backward. */
	struct direction directions[2];
	struct times gaps;
	struct periods periods;
	__s64 first_ns;
	__s64 last_ns;
	__u64 out_of_order;
	__u64 truncated;
	__u64 malformed;
	__u64 aggregated;
	__u64 fragments;
	struct lengths headless[2];
	__u64 step_gaps[FLOW_STEPS];
	__s32 step_payloads[FLOW_STEPS];
	__s32 step_wires[FLOW_STEPS];
	__u32 steps;
	__u32 initial;
	__u32 cpu;
	__u16 vlan;
	__u16 icmp_identifier;
	__u8 icmp_kind;
	__u8 icmp_code;
	__u8 source_mac[ETH_ALEN];
	__u8 destination_mac[ETH_ALEN];
	/* The endpoint of the key that sends forward. */
	__u8 initiator;
	/* The one that sent the first packet. */
	__u8 opener;
	__u8 marks;
	__u8 end;
	/* By a model (tree.h): 0 while there is none, else its class + 1, and what that means. */
	__u8 class;
	__u8 action;
	__u16 argument;
	/* The generation of the model that classified the flow last. */
	__u16 generation;
	/* When it was put into the queue (flow_queue.h) for the first time, by the monotonic clock.
	 */
	__u64 entered_ns;
};

_Static_assert(sizeof(struct direction) == 272, "no implicit padding");
_Static_assert(sizeof(struct flow) == 1072, "no implicit padding");

/* Gaps as features::flow::Gaps has them. */
const volatile __u64 active_gap_ns = 5000000000ULL;
const volatile __u64 subflow_gap_ns = 1000000000ULL;
const volatile __u64 bulk_gap_ns = 1000000000ULL;
const volatile __u32 most_steps = FLOW_STEPS;

static __always_inline bool has_flag(const struct packet *p, __u8 flag)
{
	return p->tcp_flags & flag;
}

/* A SYN without ACK: it opens a connection. */
static __always_inline bool is_opening(const struct packet *p)
{
	return (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

static __always_inline __u64 flow_packets(const struct flow *f)
{
	return f->directions[0].wire.count + f->directions[1].wire.count;
}

static __always_inline bool has_fin(const struct flow *f, __u32 direction)
{
	return f->directions[direction].flags[0];
}

#endif
