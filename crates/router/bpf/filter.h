/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the rules say of a packet that is to be forwarded. */
#ifndef ROUTER_FILTER_H
#define ROUTER_FILTER_H

#include "acl_walk.h"
#include "ingress.h"
#include "lpm6.h"

#define IPPROTO_DCCP 33
#define IPPROTO_UDPLITE 136

static __always_inline bool has_other_ports(const struct packet *p)
{
	return p->protocol == IPPROTO_SCTP || p->protocol == IPPROTO_DCCP ||
	       p->protocol == IPPROTO_UDPLITE;
}

/* Ports of protocols that the parser leaves alone lie where UDP's do. False: they are not there. */
static __always_inline bool read_other_ports(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data;
	__be16 *ports = packet_at(data, (void *)(long)ctx->data_end, p->l4, 2 * sizeof(*ports));

	if (!ports || p->l3 + p->ip_length - p->l4 < 2 * sizeof(*ports))
		return false;
	p->source_port = bpf_ntohs(ports[0]);
	p->destination_port = bpf_ntohs(ports[1]);
	return true;
}

/* Of IPv4 the first two words are used, of IPv6 five. */
static __always_inline void fill_key(struct walk *w, const struct packet *p, bool v6)
{
	__u64 last =
		(__u64)p->source_port | (__u64)p->destination_port << 16 | (__u64)p->protocol << 32;

	if (v6) {
		struct address6 source = address6(&p->source);
		struct address6 destination = address6(&p->destination);

		w->words[0] = source.low;
		w->words[1] = source.high;
		w->words[2] = destination.low;
		w->words[3] = destination.high;
		w->words[4] = last;
	} else {
		w->words[0] = bpf_ntohl(p->source.in6_u.u6_addr32[3]) |
			      (__u64)bpf_ntohl(p->destination.in6_u.u6_addr32[3]) << 32;
		w->words[1] = last;
	}
}

/*
 * Whether there are rules, and how to walk them. Before Linux 6.7 the verifier looks at the first
 * step of a loop only, and takes out what that one cannot reach: so it must not know what steps
 * change.
 */
static __always_inline const struct acl_header *begin_walk(struct walk *w, bool v6)
{
	__u32 in_force = number(&acl_in_force, v6, 8);
	const struct acl_header *header;

	if (!in_force)
		return NULL;
	w->slot = (v6 ? 2 : 0) + (in_force - 1 & 1);
	header = acl_at(w, 0, 0, 64);
	if (!header)
		return NULL;
	w->best = ~header->zero[0];
	w->mode = header->zero[1];
	w->root = header->zero[2];
	w->at = header->zero[3];
	w->left = header->zero[4];
	w->roots = header->roots;
	w->shift = header->shift;
	w->entries = header->entries;
	w->nodes = header->nodes;
	w->records = header->records;
	return header;
}

static __always_inline void count_rule(const struct walk *w, const struct acl_header *header)
{
	__u32 rule = w->best == ACL_NONE ? header->rules : w->best >> 2;
	__u32 section = header->counters + bpf_get_smp_processor_id() * header->stride;
	__u64 *packets = acl_at(w, section, rule, sizeof(*packets));

	if (packets)
		(*packets)++;
}

/* The end of a packet that no rule could be asked about: the kernel asks them, if it has them. What
 * is for this host alone meets no rules, but of a packet that is damaged that is not looked for.
 */
static __always_inline __u32 without_rules(const struct packet *p, __u32 end)
{
	__u64 sole_filter = number(&acl_in_force, ACL_SOLE_FILTER, 8);

	return sole_filter >> (p->family == AF_INET6) & 1 ? DROP_UNFILTERED : end;
}

/* ADMITTED, or the end that the rules decide. */
static __always_inline __u32 filter(struct xdp_md *ctx, struct packet *p, bool v6)
{
	struct walk w = {};
	const struct acl_header *header = begin_walk(&w, v6);

	if (!header)
		return ADMITTED;
	if (header->looks_at_ports) {
		if (p->fragment != FRAGMENT_NONE)
			return without_rules(p, PUNT_UNKEYED);
		if (has_other_ports(p) && !read_other_ports(ctx, p))
			return without_rules(p, PUNT_UNKEYED);
	}
	fill_key(&w, p, v6);
	if (!walk(&w, v6))
		return without_rules(p, PUNT_RULES_UNFINISHED);
	count_rule(&w, header);
	if (w.best == ACL_NONE)
		return ADMITTED;
	switch (w.best & 3) {
	case ACL_DROP:
		return DROP_RULE;
	case ACL_PUNT:
		return PUNT_RULE;
	default:
		return ADMITTED;
	}
}

/* Functions of their own: the verifier looks at each once, not for each way that leads to it. */
__noinline __u32 filter4(struct xdp_md *ctx, struct packet *p)
{
	return p ? filter(ctx, p, false) : PUNT_MALFORMED;
}

__noinline __u32 filter6(struct xdp_md *ctx, struct packet *p)
{
	return p ? filter(ctx, p, true) : PUNT_MALFORMED;
}

static __always_inline bool has_rules(const struct packet *p)
{
	return number(&acl_in_force, p->family == AF_INET6, 8);
}

#endif
