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
#include "filter.h"
#include "egress.h"
#include "count.h"
#include "lost.h"

/* Whether the frame is to be forwarded, and the packet in it. */
static __always_inline __u32 admit(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	int verdict = parse_packet(data, end, p);
	__u32 admitted = admit_parsed(verdict, p);

	if (admitted != ADMITTED)
		return admitted;
	if (data + sizeof(struct ethhdr) > end)
		return PUNT_MALFORMED;
	admitted = admit_frame(data, ctx->ingress_ifindex, p);
	if (admitted != ADMITTED)
		return admitted;
	if (p->family == AF_INET) {
		struct iphdr *ip = packet_at(data, end, p->l3, sizeof(*ip));

		return ip ? admit_ipv4(ip, p) : PUNT_MALFORMED;
	} else {
		struct ipv6hdr *ip = packet_at(data, end, p->l3, sizeof(*ip));

		return ip ? admit_ipv6(ip, p) : PUNT_MALFORMED;
	}
}

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

/* What is done with a packet that no rule has decided. */
static __always_inline int follow(struct xdp_md *ctx, const struct packet *p, __u64 meaning,
				  __u32 *end)
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
		return send(ctx, p, meaning_index(meaning), end);
	*end = meaning_kind(meaning) == MEANING_PUNT ? meaning_index(meaning) : PUNT_NO_MEANING;
	return XDP_PASS;
}

static __always_inline int route(struct xdp_md *ctx, __u32 *end)
{
	struct packet p;
	__u64 meaning;
	__u32 hop;

	*end = admit(ctx, &p);
	if (*end != ADMITTED)
		return XDP_PASS;
	hop = next_hop(&p, &p.destination);
	*end = PUNT_BUSY;
	if (hop == LPM_BUSY)
		return XDP_PASS;
	meaning = meaning_of(&p, hop);
	*end = PUNT_LOCAL;
	if (is_local(meaning))
		return XDP_PASS;
	*end = PUNT_MARTIAN;
	if (settings.check_source && is_local(meaning_of(&p, next_hop(&p, &p.source))))
		return XDP_PASS;
	*end = p.family == AF_INET ? filter(ctx, &p, false) : filter(ctx, &p, true);
	if (*end != ADMITTED)
		return *end == DROP_RULE ? XDP_DROP : XDP_PASS;
	if (!hop) {
		*end = PUNT_NO_ROUTE;
		return XDP_PASS;
	}
	return follow(ctx, &p, meaning, end);
}

SEC("xdp") int route_frame(struct xdp_md *ctx)
{
	__u32 bytes = ctx->data_end - ctx->data;
	__u32 end;
	int verdict = route(ctx, &end);

	count(end, bytes);
	return verdict;
}
