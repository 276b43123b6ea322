/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What class a flow is of by a model of trees, and what that means for its packets: twin of
 * features::model::IntegerForest. A node names what it asks for by its place in struct flow, so
 * that only what a walk needs is read.
 */
#ifndef FEATURES_TREE_H
#define FEATURES_TREE_H

#include "flow.h"
#include "frame.h"
#include "tree_value.h"

/* Splits from a root to a leaf; trees; their nodes together. */
#define TREE_DEPTH 16
#define TREES 32
#define TREE_NODES 16384
#define TREE_VALUES 16384
#define TREE_CLASSES 8

/* features::model::ACTIONS in its order. */
enum tree_action {
	ACTION_PASS = 0,
	ACTION_DROP = 1,
	ACTION_SAMPLE = 2,
	ACTION_MARK = 3,
	ACTIONS = 4,
};

struct tree_class {
	__u8 action;
	__u8 padding;
	/* One in so many, or the DSCP. */
	__u16 argument;
};

struct tree {
	__u16 root;
	/* The outputs that its leaves add to. What a leaf has in place of a threshold: for one
	 * output its value, for several where its values are; in a tree that is alone its class.
	 */
	__u8 output;
	__u8 width;
};

struct model_head {
	__s64 base[TREE_CLASSES];
	/* Of two classes, it is the second where the sum is above. */
	__s64 bound;
	__u32 outputs;
	__u32 trees;
	/* It is asked after these packets of a flow. */
	__u32 first_packet;
	__u32 last_packet;
	/* Which of `tree_accounts`. */
	__u32 account;
	/* Nothing becomes of packets; it is only counted what would. */
	__u16 shadow;
	/* No model for long before or after has the same; never 0. */
	__u16 generation;
	struct tree_class classes[TREE_CLASSES];
};

struct model {
	struct model_head head;
	struct tree trees[TREES];
	struct tree_node nodes[TREE_NODES];
	__s64 values[TREE_VALUES];
};

struct tree_account {
	/* How often the model was asked. */
	__u64 asked;
	/* Flows by the class that they got. */
	__u64 flows[TREE_CLASSES];
	/* Packets of flows that have a class, by its action. */
	__u64 packets[ACTIONS];
};

_Static_assert(sizeof(struct tree_node) == 16, "no implicit padding");
_Static_assert(sizeof(struct model_head) == 128, "no implicit padding");

/* Sizes in place of types, as for the tables of flows. */
struct model_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct model));
};

/* The model in force, if any. Another takes its place between two packets. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct model_map);
} models SEC(".maps");

/* For the model in force and the one before, in turns. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct tree_account);
} tree_accounts SEC(".maps");

/* What is in the leaf that a flow comes to. Global, so that the verifier looks at it once. */
__noinline __s64 tree_leaf(const struct model *m, const struct flow *f, __u32 root)
{
	__u32 at = root * sizeof(struct tree_node);

	if (!m || !f)
		return 0;
	for (int level = 0; level <= TREE_DEPTH; level++) {
		const struct tree_node *n =
			(const void *)m->nodes + (at & (TREE_NODES - 1) * sizeof(*n));
		__u64 value;

		/* Or the compiler makes the address anew for each of its parts. */
		barrier_var(n);
		value = tree_word(f, n->place);
		if (n->load) {
			if (n->load == LOAD_LEAF)
				return n->threshold;
			value = tree_made(n, f);
		}
		at = n->left;
		if (value > n->threshold)
			at += sizeof(*n);
	}
	return 0;
}

static __always_inline void tree_add(const struct model *m, const struct tree *t, __s64 leaf,
				     __s64 *sums)
{
	if (t->width == 1) {
		sums[t->output & (TREE_CLASSES - 1)] += leaf;
		return;
	}
	for (__u32 i = 0; i < TREE_CLASSES; i++) {
		if (i >= t->width)
			break;
		sums[i] += m->values[(leaf + i) & (TREE_VALUES - 1)];
	}
}

/* The class of a flow, by the sums of several trees. */
__noinline int forest_class(const struct model *m, const struct flow *f)
{
	__s64 sums[TREE_CLASSES];
	int best = 0;

	if (!m || !f)
		return 0;
	for (__u32 i = 0; i < TREE_CLASSES; i++)
		sums[i] = m->head.base[i];
	for (__u32 i = 0; i < TREES; i++) {
		const struct tree *t = &m->trees[i];

		if (i >= m->head.trees)
			break;
		tree_add(m, t, tree_leaf(m, f, t->root), sums);
	}
	if (m->head.outputs == 1)
		return sums[0] > m->head.bound;
	for (__u32 i = 1; i < TREE_CLASSES; i++) {
		if (i < m->head.outputs && sums[i] > sums[best & (TREE_CLASSES - 1)])
			best = i;
	}
	return best;
}

/* The class of a flow. The leaves of a tree that is alone are classes. */
static __always_inline __u32 tree_class(const struct model *m, const struct flow *f)
{
	return m->head.trees == 1 ? tree_leaf(m, f, m->trees[0].root) : (__u32)forest_class(m, f);
}

#endif
