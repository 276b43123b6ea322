/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Whether a rule of a leaf holds the key. */
#ifndef ROUTER_ACL_RULE_H
#define ROUTER_ACL_RULE_H

#include "acl.h"

static __always_inline bool walk_holds(const struct walk *w, const struct acl_tail *rule,
				       __u64 last_word)
{
	__u16 source = last_word;
	__u16 destination = last_word >> 16;
	__u8 protocol = last_word >> 32;

	return source >= rule->source_ports[0] && source <= rule->source_ports[1] &&
	       destination >= rule->destination_ports[0] &&
	       destination <= rule->destination_ports[1] &&
	       !((protocol ^ rule->protocol) & rule->protocol_mask);
}

/* Whether the rules of a leaf come to an end with this one: it holds the key, or comes too late. */
static __always_inline bool walk_rule4(struct walk *w)
{
	const struct acl_record4 *rule = acl_at(w, w->records, w->at, sizeof(*rule));

	if (!rule || rule->tail.order >= w->best)
		return true;
	if ((w->words[0] ^ rule->value) & rule->mask || !walk_holds(w, &rule->tail, w->words[1]))
		return false;
	w->best = rule->tail.order;
	return true;
}

static __always_inline bool walk_rule6(struct walk *w)
{
	const struct acl_record6 *rule = acl_at(w, w->records, w->at, sizeof(*rule));
	__u64 differing = 0;

	if (!rule || rule->tail.order >= w->best)
		return true;
#pragma unroll
	for (int i = 0; i < 4; i++)
		differing |= (w->words[i] ^ rule->value[i]) & rule->mask[i];
	if (differing || !walk_holds(w, &rule->tail, w->words[4]))
		return false;
	w->best = rule->tail.order;
	return true;
}

#endif
