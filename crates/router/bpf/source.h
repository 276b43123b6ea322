/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where the source of a packet is, as the kernel's fib_validate_source() looks. */
#ifndef ROUTER_SOURCE_H
#define ROUTER_SOURCE_H

#include "hops.h"
#include "ingress.h"
#include "lpm4.h"
#include "lpm6.h"

static __always_inline __u32 next_hop(const struct packet *p, const struct in6_addr *address)
{
	if (p->family == AF_INET)
		return lpm4(bpf_ntohl(address->in6_u.u6_addr32[3]));
	return lpm6(address);
}

static __always_inline bool is_local(__u64 meaning)
{
	return meaning_kind(meaning) == MEANING_PUNT && meaning_index(meaning) == PUNT_LOCAL;
}

/* The VLAN by which a packet came, NO_VLAN for none. */
static __always_inline __u16 vlan_of(const struct packet *p)
{
	__u16 vlan = p->vlan_tci[0] & VLAN_VID_MASK;

	return vlan ? vlan : NO_VLAN;
}

/* Whether the kernel surely finds the source where it wants it. */
static __always_inline bool is_reached(struct xdp_md *ctx, const struct packet *p,
				       const struct entrance *in, __u64 meaning)
{
	bool loose = in->reverse_path == REVERSE_PATH_LOOSE;
	__u32 index = meaning_index(meaning);
	const struct adjacency *to;

	switch (meaning_kind(meaning)) {
	case MEANING_NEIGHBOUR:
		if (loose)
			return true;
		to = bpf_map_lookup_elem(&adjacencies, &index);
		return to && to->ifindex == ctx->ingress_ifindex && to->vlan == vlan_of(p);
	case MEANING_GROUP:
		return loose;
	case MEANING_PUNT:
		return loose && (index == PUNT_UNRESOLVED || index == PUNT_ROUTE_DEVICE);
	default:
		return false;
	}
}

/* 0, or why the kernel has to look at the source. */
static __always_inline __u32 admit_source(struct xdp_md *ctx, const struct packet *p,
					  const struct entrance *in)
{
	bool reverse_path = p->family == AF_INET && in->reverse_path != REVERSE_PATH_OFF;
	__u64 meaning;

	if (!settings.check_source && !reverse_path)
		return 0;
	meaning = meaning_of(p, next_hop(p, &p->source));
	if (settings.check_source && is_local(meaning))
		return PUNT_MARTIAN;
	return !reverse_path || is_reached(ctx, p, in, meaning) ? 0 : PUNT_REVERSE_PATH;
}

#endif
