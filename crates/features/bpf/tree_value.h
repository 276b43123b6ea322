/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A column of tree.v1, read from a flow: twin of features::schema::tree. */
#ifndef FEATURES_TREE_VALUE_H
#define FEATURES_TREE_VALUE_H

#include "flow.h"

/* No place in a flow that a node names is beyond; a power of two, for the verifier. */
#define TREE_PLACES 1024

enum tree_load {
	/* The 64 bits that end where the column does: those below are ones in the threshold. */
	LOAD_PLAIN = 0,
	/* No question. */
	LOAD_LEAF = 1,
	/* Forward and backward together; the place is forward's. */
	LOAD_BOTH = 2,
	/* From one time to the one behind it. */
	LOAD_SPAN = 3,
	/* The mean of the struct lengths there, with 8 binary digits; that of the struct times. */
	LOAD_MEAN_LENGTH = 4,
	LOAD_MEAN_TIME = 5,
	LOAD_SOURCE_PORT = 6,
	LOAD_DESTINATION_PORT = 7,
};

struct tree_node {
	/* At most this goes left. */
	__u64 threshold;
	__u16 place;
	/* enum tree_load. */
	__u8 load;
	/* Bits of the 64 below those of the column. */
	__u8 shift;
	/* Where the left child is, in bytes; the right one is behind it. */
	__u32 left;
};

_Static_assert(sizeof(struct flow) >= TREE_PLACES + sizeof(__u64), "every place can be read");

static __always_inline __u64 tree_word(const struct flow *f, __u32 place)
{
	return *(const __u64 *)((const void *)f + (place & (TREE_PLACES - 1)));
}

static __always_inline __u64 tree_both(const struct tree_node *n, const struct flow *f)
{
	__u64 backward = tree_word(f, n->place + sizeof(struct direction));

	return (tree_word(f, n->place) >> (n->shift & 63)) + (backward >> (n->shift & 63));
}

static __always_inline __u64 tree_mean(const struct tree_node *n, const struct flow *f)
{
	__u64 count = tree_word(f, n->place);
	bool is_length = n->load == LOAD_MEAN_LENGTH;
	__u64 sum = tree_word(f, n->place + (is_length ? __builtin_offsetof(struct lengths, sum)
						       : __builtin_offsetof(struct times, sum)));

	if (is_length)
		sum = sum >> 56 ? ~0ULL : sum << 8;
	return count ? sum / count : 0;
}

static __always_inline __u64 tree_port(const struct tree_node *n, const struct flow *f)
{
	__u32 backward = n->load == LOAD_DESTINATION_PORT;

	return f->key.ports[(f->initiator ^ backward) & 1];
}

/* What is not there as it is. */
static __always_inline __u64 tree_made(const struct tree_node *n, const struct flow *f)
{
	if (n->load == LOAD_BOTH)
		return tree_both(n, f);
	if (n->load == LOAD_SPAN)
		return gap_between(tree_word(f, n->place), tree_word(f, n->place + sizeof(__s64)));
	if (n->load >= LOAD_SOURCE_PORT)
		return tree_port(n, f);
	return tree_mean(n, f);
}

#endif
