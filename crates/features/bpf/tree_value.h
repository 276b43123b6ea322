/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A column of tree.v1, read from a flow: twin of features::schema::tree. */
#ifndef FEATURES_TREE_VALUE_H
#define FEATURES_TREE_VALUE_H

#include "flow.h"

/* No place in a flow that a node names is beyond; a power of two, for the verifier. */
#define TREE_PLACES 1024

enum tree_load {
	/* What is there. */
	LOAD_PLAIN = 0,
	/* Forward and backward together; the place is forward's. */
	LOAD_BOTH = 1,
	/* From one time to the one behind it. */
	LOAD_SPAN = 2,
	/* The mean of the struct lengths there, with 8 binary digits; that of the struct times. */
	LOAD_MEAN_LENGTH = 3,
	LOAD_MEAN_TIME = 4,
	LOAD_SOURCE_PORT = 5,
	LOAD_DESTINATION_PORT = 6,
	/* No question. */
	LOAD_LEAF = 255,
};

struct tree_node {
	/* At most this goes left. */
	__s64 threshold;
	__u16 offset;
	/* enum tree_load. */
	__u8 load;
	/* Bits of the 64 at that place that are of something else. */
	__u8 shift;
	__u16 left;
	__u16 right;
};

_Static_assert(sizeof(struct flow) >= TREE_PLACES + sizeof(__u64), "every place can be read");

static __always_inline __u64 tree_word(const struct flow *f, __u32 offset)
{
	return *(const __u64 *)((const void *)f + (offset & (TREE_PLACES - 1)));
}

static __always_inline __u64 tree_mean(const struct tree_node *n, const struct flow *f)
{
	__u64 count = tree_word(f, n->offset);
	bool is_length = n->load == LOAD_MEAN_LENGTH;
	__u64 sum = tree_word(f, n->offset + (is_length ? __builtin_offsetof(struct lengths, sum)
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

static __always_inline __s64 tree_value(const struct tree_node *n, const struct flow *f)
{
	__u64 mask = ~0ULL >> (n->shift & 63);
	__u64 word = tree_word(f, n->offset);
	__u64 value;

	if (n->load == LOAD_PLAIN)
		value = word & mask;
	else if (n->load == LOAD_BOTH)
		value = (word & mask) + (tree_word(f, n->offset + sizeof(struct direction)) & mask);
	else if (n->load == LOAD_SPAN)
		value = gap_between(word, tree_word(f, n->offset + sizeof(__s64)));
	else if (n->load == LOAD_MEAN_LENGTH || n->load == LOAD_MEAN_TIME)
		value = tree_mean(n, f);
	else
		value = tree_port(n, f);
	return value >> 63 ? ~0ULL >> 1 : value;
}

#endif
