/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The protocol and ports of later fragments, remembered from the first fragment of the same packet:
 * twin of features::dissect::Fragments. One table for all CPUs, because a device may spread
 * fragments by their ports, which only the first has.
 */
#ifndef FEATURES_FRAGMENTS_H
#define FEATURES_FRAGMENTS_H

#include "dissect.h"

/* The twin's LIFETIME_NS and MOST. */
#define FRAGMENT_LIFETIME_NS 30000000000LL
#define MOST_FRAGMENTED 8192

/* Identifies the packet of a fragment: RFC 791 section 3.2, RFC 8200 section 4.5. */
struct whole {
	__u64 source[2];
	__u64 destination[2];
	__u32 identification;
	__u16 vlan;
	/* The protocol of the IPv4 header. In IPv6 only the first fragment has the protocol. */
	__u8 ip_protocol;
	__u8 version;
};

struct first_fragment {
	__s64 time_ns;
	__u16 source_port;
	__u16 destination_port;
	__u8 protocol;
	__u8 padding[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MOST_FRAGMENTED);
	__type(key, struct whole);
	__type(value, struct first_fragment);
} first_fragments SEC(".maps");

/*
 * Remembers a first fragment; gives a later one the protocol and ports of its first. Whether the
 * packet has its ports now: all but later fragments whose first is not known.
 */
__noinline int complete_fragment(struct packet *p)
{
	struct first_fragment *found, first = {};
	struct endpoints e = {};
	struct whole whole = {};
	__u32 source, destination;

	if (!p)
		return 0;
	source = p->sender & 1;
	destination = !source;
	whole.source[0] = p->key.addresses[source][0];
	whole.source[1] = p->key.addresses[source][1];
	whole.destination[0] = p->key.addresses[destination][0];
	whole.destination[1] = p->key.addresses[destination][1];
	whole.identification = p->identification;
	whole.vlan = p->key.vlan;
	whole.ip_protocol = p->ip_protocol;
	whole.version = p->key.version;
	if (p->fragment == FRAGMENT_FIRST) {
		first.time_ns = p->time_ns;
		first.source_port = p->key.ports[source];
		first.destination_port = p->key.ports[destination];
		first.protocol = p->key.protocol;
		bpf_map_update_elem(&first_fragments, &whole, &first, BPF_ANY);
		return 1;
	}
	found = bpf_map_lookup_elem(&first_fragments, &whole);
	if (!found || p->time_ns - found->time_ns > FRAGMENT_LIFETIME_NS)
		return 0;
	__builtin_memcpy(e.source, whole.source, sizeof(e.source));
	__builtin_memcpy(e.destination, whole.destination, sizeof(e.destination));
	e.source_port = found->source_port;
	e.destination_port = found->destination_port;
	set_key(p, &e);
	p->key.protocol = found->protocol;
	return 1;
}

#endif
