// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Forwards IP packets by the tables of routes and rules, as the kernel would: drops what a rule
 * drops, sends what it knows how to send, and leaves everything else to the kernel.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "lowroad/license.h"
#include "lowroad/parse.h"
#include "layout.h"
#include "tables.h"
#include "lpm4.h"
#include "lpm6.h"
#include "hops.h"
#include "ingress.h"
#include "source.h"
#include "filter.h"
#include "egress.h"
#include "count.h"
#include "lost.h"

/* Whether the frame is to be forwarded, and the packet in it. */
static __always_inline __u32 admit(struct xdp_md *ctx, struct packet *p, struct entrance *in)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 parsed = admit_parsed(parse_packet(data, end, p));
	__u32 admitted;

	if (parsed == PUNT_NOT_IP || parsed == PUNT_NOT_OURS)
		return parsed;
	if (data + sizeof(struct ethhdr) > end)
		return PUNT_MALFORMED;
	admitted = admit_frame(data, ctx->ingress_ifindex, p, in);
	if (admitted != ADMITTED)
		return admitted;
	if (parsed != ADMITTED)
		return without_rules(p, parsed);
	if (p->family == AF_INET) {
		struct iphdr *ip = packet_at(data, end, p->l3, sizeof(*ip));

		in->may_be_fragment = p->fragment != FRAGMENT_NONE;
		return ip ? admit_ipv4(ip, in) : PUNT_MALFORMED;
	} else {
		struct ipv6hdr *ip = packet_at(data, end, p->l3, sizeof(*ip));

		if (!ip)
			return PUNT_MALFORMED;
		/* Of a packet that is its only fragment the parser tells nothing. */
		in->may_be_fragment = ip->nexthdr != p->protocol;
		return admit_ipv6(ip, in);
	}
}

/* Whether the kernel's own rules decide about all packets that come this way. */
static __always_inline bool is_kernels(const struct packet *p, const struct entrance *in)
{
	__u8 flags = p->family == AF_INET6 ? PORT_KERNEL_V6 : PORT_KERNEL_V4;

	if (in->may_be_fragment)
		flags |= PORT_FRAGMENTS;
	return in->flags & flags;
}

/* ADMITTED, or what the rules come to and what the kernel has to see whatever they say. */
static __always_inline __u32 decide(struct xdp_md *ctx, struct packet *p, struct entrance *in)
{
	__u32 end;

	if (!in->later)
		in->later = admit_source(ctx, p, in);
	if (has_rules(p)) {
		end = p->family == AF_INET ? filter4(ctx, p) : filter6(ctx, p);
		if (end != ADMITTED)
			return end;
	}
	if (in->later)
		return in->later;
	return is_kernels(p, in) ? PUNT_POLICY : ADMITTED;
}

/* What is done with a packet that no rule has decided. */
static __always_inline int follow(struct xdp_md *ctx, const struct packet *p,
				  const struct entrance *in, __u64 meaning, __u32 *end)
{
	if (meaning_kind(meaning) == MEANING_DROP) {
		*end = DROP_ROUTE;
		return XDP_DROP;
	}
	*end = PUNT_TTL;
	if (p->ttl <= 1)
		return XDP_PASS;
	if (meaning_kind(meaning) == MEANING_GROUP)
		meaning = member_meaning(p, meaning_index(meaning));
	if (meaning_kind(meaning) == MEANING_NEIGHBOUR)
		return send(ctx, p, in, meaning_index(meaning), end);
	*end = meaning_kind(meaning) == MEANING_PUNT ? meaning_index(meaning) : PUNT_NO_MEANING;
	return XDP_PASS;
}

static __always_inline int route(struct xdp_md *ctx, __u32 *end)
{
	struct entrance in = {};
	struct packet p;
	__u64 meaning;
	__u32 hop;

	*end = admit(ctx, &p, &in);
	if (*end != ADMITTED)
		return *end == DROP_UNFILTERED ? XDP_DROP : XDP_PASS;
	hop = next_hop(&p, &p.destination);
	if (hop == LPM_BUSY) {
		*end = without_rules(&p, PUNT_BUSY);
		return *end == DROP_UNFILTERED ? XDP_DROP : XDP_PASS;
	}
	meaning = meaning_of(&p, hop);
	*end = PUNT_LOCAL;
	if (is_local(meaning))
		return XDP_PASS;
	*end = decide(ctx, &p, &in);
	if (*end != ADMITTED)
		return *end == DROP_RULE || *end == DROP_UNFILTERED ? XDP_DROP : XDP_PASS;
	if (!hop) {
		*end = PUNT_NO_ROUTE;
		return XDP_PASS;
	}
	return follow(ctx, &p, &in, meaning, end);
}

SEC("xdp") int route_frame(struct xdp_md *ctx)
{
	__u32 bytes = ctx->data_end - ctx->data;
	__u32 end;
	int verdict = route(ctx, &end);

	count(end, bytes);
	return verdict;
}
