/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From a frame to its packet: twin of features::dissect, tunnels unopened. What cannot be read
 * beyond a sound IP header is zero, and marked.
 */
#ifndef FEATURES_DISSECT_H
#define FEATURES_DISSECT_H

#include "link.h"
#include "network.h"
#include "packet.h"
#include "transport.h"

static __always_inline bool in_order(const struct endpoints *e)
{
	if (e->source[0] != e->destination[0])
		return e->source[0] < e->destination[0];
	if (e->source[1] != e->destination[1])
		return e->source[1] < e->destination[1];
	return e->source_port <= e->destination_port;
}

/* Orders the endpoints, so that both directions have the same key. */
static __always_inline void set_key(struct packet *p, const struct endpoints *e)
{
	__u32 source = !in_order(e), destination = !source;

	p->sender = source;
	p->key.addresses[source & 1][0] = e->source[0];
	p->key.addresses[source & 1][1] = e->source[1];
	p->key.addresses[destination & 1][0] = e->destination[0];
	p->key.addresses[destination & 1][1] = e->destination[1];
	p->key.ports[source & 1] = e->source_port;
	p->key.ports[destination & 1] = e->destination_port;
}

/*
 * Reads a frame whose time and wire length are in `p` already; a verdict of enum refusal. Global,
 * so that the verifier looks at it once, and forgets at its end which of many paths it took.
 */
__noinline int dissect(context *ctx, struct packet *p)
{
	struct endpoints endpoints = {};
	int verdict;

	if (!p)
		return REFUSED_TRUNCATED_LINK;
	verdict = dissect_link(ctx, p);
	if (verdict == DISSECTED)
		verdict = dissect_network(ctx, p, &endpoints);
	if (verdict != DISSECTED)
		return verdict;
	dissect_transport(ctx, p, &endpoints);
	set_key(p, &endpoints);
	return verdict;
}

#endif
