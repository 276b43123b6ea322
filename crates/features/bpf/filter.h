/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Evaluates a filter on a dissected packet: twin of features::filter::program. Steps are tests that
 * each name the next; jumps go forward only, so that a packet takes each step at most once.
 */
#ifndef FEATURES_FILTER_H
#define FEATURES_FILTER_H

#include "packet.h"
#include "transport.h"

/* The twin's MAX_STEPS. */
#define FILTER_MAX_STEPS 2048
#define FILTER_PORT_WORDS 1024

/* Set in a target that is an end: of a class of packets, or of those that the filter is false for.
 */
#define FILTER_END 0x8000
#define FILTER_OUT 0x7fff

enum filter_test {
	FILTER_VERSION = 0,
	FILTER_PROTOCOL = 1,
	FILTER_LENGTH = 2,
	FILTER_VLAN = 3,
	FILTER_PORT = 4,
	FILTER_PORT_SET = 5,
	FILTER_NETWORK = 6,
	FILTER_NETWORK_SET = 7,
};

struct filter_step {
	__u8 test;
	/* The side of the address or port: 0 for the sender, 1 for the receiver. */
	__u8 end;
	__u16 set;
	/* The targets for false and for true. */
	__u16 targets[2];
	/* The first and the last value, or a network's address and mask, by halves. */
	__u64 low[2];
	__u64 high[2];
};

/* One bit per port. */
struct filter_ports {
	__u64 words[FILTER_PORT_WORDS];
};

/* All sets of networks in one trie: a set's number and the IP version are the first bits. */
struct filter_network {
	__u32 prefix;
	__u16 set;
	__u16 version;
	/* In network byte order. */
	__u64 address[2];
};

_Static_assert(sizeof(struct filter_step) == 40, "no implicit padding");
_Static_assert(sizeof(struct filter_network) == 24, "no implicit padding");

/* Sized as the filter asks; userspace fills them before the first packet. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_step);
} filter_steps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_ports);
} filter_port_sets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct filter_network);
	__type(value, __u8);
} filter_networks SEC(".maps");

struct filtering {
	const struct packet *packet;
	/* `at` is the next step, or an end. */
	struct walk walk;
};

/* Not in packets of other protocols, nor where the transport header is cut off or elsewhere. */
static __always_inline bool filter_has_ports(const struct packet *p)
{
	__u8 protocol = p->key.protocol;

	if (p->marks & PACKET_HEADLESS && !p->key.ports[0] && !p->key.ports[1])
		return false;
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP ||
	       protocol == IPPROTO_DCCP || protocol == IPPROTO_UDPLITE;
}

static __always_inline bool filter_port_set(const struct filter_step *s, __u16 port)
{
	__u32 set = s->set;
	struct filter_ports *ports = bpf_map_lookup_elem(&filter_port_sets, &set);

	return ports && ports->words[port >> 6] >> (port & 63) & 1;
}

static __always_inline bool filter_network(const struct filter_step *s, const struct packet *p,
					   const __u64 *address)
{
	struct filter_network network = {
		.prefix = 8 * (sizeof(network) - offsetof(struct filter_network, set)),
		.set = s->set,
		.version = p->key.version,
	};

	if (s->test == FILTER_NETWORK)
		return s->set == p->key.version && (address[0] & s->high[0]) == s->low[0] &&
		       (address[1] & s->high[1]) == s->low[1];
	network.address[0] = bpf_cpu_to_be64(address[0]);
	network.address[1] = bpf_cpu_to_be64(address[1]);
	return bpf_map_lookup_elem(&filter_networks, &network);
}

static __always_inline bool filter_holds(const struct filter_step *s, const struct packet *p)
{
	__u32 end = (p->sender ^ s->end) & 1;
	__u64 value;

	if (s->test >= FILTER_NETWORK)
		return filter_network(s, p, p->key.addresses[end]);
	if (s->test >= FILTER_PORT && !filter_has_ports(p))
		return false;
	if (s->test == FILTER_PORT_SET)
		return filter_port_set(s, p->key.ports[end]);
	if (s->test == FILTER_VLAN && !p->vlan_tags)
		return false;
	value = s->test == FILTER_VERSION    ? p->key.version
		: s->test == FILTER_PROTOCOL ? p->key.protocol
		: s->test == FILTER_LENGTH   ? p->wire_length
		: s->test == FILTER_VLAN     ? p->vlan
					     : p->key.ports[end];
	return value >= s->low[0] && value <= s->high[0];
}

static long next_filter_step(__u32 index, void *context)
{
	struct filtering *f = context;
	__u32 at = f->walk.at;
	struct filter_step *step = bpf_map_lookup_elem(&filter_steps, &at);

	if (!step)
		return 1;
	f->walk.at = step->targets[filter_holds(step, f->packet)];
	return f->walk.at >= FILTER_END;
}

/* The index of the packet's class, or FILTER_OUT if the filter rejects it. */
static __always_inline __u32 filter_class(const struct packet *p)
{
	struct filtering f = { .packet = p };

	bpf_loop(FILTER_MAX_STEPS, next_filter_step, &f, 0);
	return f.walk.at & ~FILTER_END;
}

#endif
