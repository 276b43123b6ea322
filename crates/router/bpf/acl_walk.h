/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The first rule that matches a key, step by step: for each root in order of its best rule, down
 * the nodes, along the rules of a leaf. One loop of small steps, so that the verifier sees each
 * once.
 */
#ifndef ROUTER_ACL_WALK_H
#define ROUTER_ACL_WALK_H

#include "acl.h"
#include "acl_hash.h"
#include "acl_rule.h"

/* Of a walk: beyond what any list needs that is not all wildcards. */
#define ACL_STEPS (1 << 15)
/* Rules compared in a step. */
#define ACL_RULES 4

enum walk_mode {
	WALK_ROOT = 0,
	WALK_NODE,
	WALK_RULES,
};

/* Goes on with what an entry leads to, if that can come before the best so far. */
static __always_inline long walk_entry(struct walk *w, __u64 entry, __u32 rules_in_line)
{
	__u32 bound = (__u32)entry >> ACL_FILTER_BITS << (w->shift & 31);
	__u32 reference = entry >> 32;

	w->mode = WALK_ROOT;
	if (!entry || bound >= w->best >> 2)
		return 0;
	if (reference & ACL_NODE) {
		w->mode = WALK_NODE;
		w->at = reference & ~ACL_NODE;
		return 0;
	}
	w->mode = WALK_RULES;
	w->at = (reference & ((1 << ACL_LINE_BITS) - 1)) * rules_in_line;
	w->left = (reference >> ACL_LINE_BITS) * rules_in_line;
	return 0;
}

static __always_inline __u64 walk_entry_at(const struct walk *w, __u32 index)
{
	const __u64 *entry = acl_at(w, w->entries, index, sizeof(*entry));

	return entry ? *entry : 0;
}

static __always_inline long walk_root(struct walk *w, bool v6)
{
	const struct acl_root *root = acl_at(w, 0, ACL_ROOTS_AT + w->root, sizeof(*root));
	__u32 hash;
	__u64 entry;

	if (w->root >= w->roots || !root || root->best >= w->best >> 2)
		return 1;
	w->root++;
	hash = v6 ? acl_hash6(w->words, root->lengths) : acl_hash4(w->words[0], root->lengths);
	entry = walk_entry_at(w, root->base + shifted(hash, root->bits));
	if (!(entry >> (hash >> 4 & 7) & 1))
		return 0;
	return walk_entry(w, entry, v6 ? 1 : 2);
}

/* The child by chosen bits, which are gathered run by run. */
static __always_inline __u32 walk_cut(const struct walk *w, const struct acl_node *node)
{
	__u32 child = 0;

	for (__u32 i = 0; i < ACL_RUNS; i++) {
		const struct acl_run *run = &node->run[i];
		__u64 bits;

		if (i >= node->runs)
			break;
		bits = w->words[run->word & 7] >> (run->start & 63);
		child |= (bits & ((1ULL << (run->bits & 31)) - 1)) << (run->place & 31);
	}
	return child;
}

/* The child by the place of a lane's value among 64 ascending bounds, of which the first is 0. */
static __always_inline __u32 walk_split(const struct walk *w, const struct acl_node *node)
{
	__u16 value = w->words[node->lane >> 2 & 7] >> (16 * (node->lane & 3));
	__u32 bounds = node->base * 4;
	__u32 reached = 0;

#pragma unroll
	for (__u32 step = 32; step; step /= 2) {
		/* The first is always reached. */
		const __u16 *bound = acl_at(w, w->entries, bounds + reached + step, sizeof(*bound));

		if (bound && *bound <= value)
			reached += step;
	}
	return ACL_BOUND_WORDS + reached;
}

static __always_inline long walk_node(struct walk *w, __u32 rules_in_line)
{
	const struct acl_node *node = acl_at(w, w->nodes, w->at, sizeof(*node));
	__u32 child;

	if (!node)
		return 1;
	if (node->kind == ACL_LONG) {
		w->mode = WALK_RULES;
		w->at = node->base * rules_in_line;
		w->left = node->lines * rules_in_line;
		return 0;
	}
	child = node->kind == ACL_CUT ? walk_cut(w, node) : walk_split(w, node);
	return walk_entry(w, walk_entry_at(w, node->base + child), rules_in_line);
}

static __always_inline long walk_rules(struct walk *w, bool v6)
{
	for (int i = 0; i < ACL_RULES; i++) {
		if (!w->left || (v6 ? walk_rule6(w) : walk_rule4(w))) {
			w->mode = WALK_ROOT;
			return 0;
		}
		w->at++;
		w->left--;
	}
	return 0;
}

static __always_inline long walk_step(struct walk *w, bool v6)
{
	switch (w->mode) {
	case WALK_ROOT:
		return walk_root(w, v6);
	case WALK_NODE:
		return walk_node(w, v6 ? 1 : 2);
	default:
		return walk_rules(w, v6);
	}
}

static long walk_step4(__u32 i, struct walk *w)
{
	return walk_step(w, false);
}

static long walk_step6(__u32 i, struct walk *w)
{
	return walk_step(w, true);
}

/* Whether the walk came to an end. */
static __always_inline bool walk(struct walk *w, bool v6)
{
	long steps =
		v6 ? bpf_loop(ACL_STEPS, walk_step6, w, 0) : bpf_loop(ACL_STEPS, walk_step4, w, 0);

	return steps > 0 && steps < ACL_STEPS;
}

#endif
