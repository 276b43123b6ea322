/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The rules in force: for each family a whole classifier in one array, made by acl's arena.rs,
 * which says what is where. Another list takes its place between two packets: a packet reads once
 * which of two arrays is in force, and the other is not touched while a program may look at it.
 */
#ifndef ROUTER_ACL_H
#define ROUTER_ACL_H

#include "layout.h"
#include "tables.h"

#define ACL_NONE 0xffffffff
#define ACL_ROOTS_AT 4
#define ACL_FILTER_BITS 8
#define ACL_LINE_BITS 26
#define ACL_NODE 0x80000000
#define ACL_RUNS 10
#define ACL_BOUND_WORDS 16
/* 1 and 2 of a verdict's action. */
#define ACL_DROP 1
#define ACL_PUNT 2

enum acl_kind {
	ACL_CUT = 0,
	ACL_SPLIT = 1,
	ACL_LONG = 2,
};

struct acl_header {
	__u32 roots;
	__u32 shift;
	__u32 looks_at_ports;
	__u32 rules;
	/* Where sections begin, in chunks, and the chunks of a CPU's counters. */
	__u32 entries;
	__u32 nodes;
	__u32 records;
	__u32 counters;
	__u32 stride;
	/* Always: the verifier does not know. */
	__u32 zero[5];
};

struct acl_root {
	__u8 lengths[2];
	__u8 bits;
	__u8 padding;
	__u32 base;
	__u32 best;
	__u32 padding2;
};

struct acl_run {
	__u8 word;
	__u8 start;
	__u8 bits;
	__u8 place;
};

struct acl_node {
	__u32 base;
	__u32 lines;
	__u8 kind;
	__u8 lane;
	__u8 runs;
	__u8 padding[5];
	struct acl_run run[ACL_RUNS];
	__u8 padding2[8];
};

/* What follows the addresses of a rule. */
struct acl_tail {
	__u16 source_ports[2];
	__u16 destination_ports[2];
	__u8 protocol;
	__u8 protocol_mask;
	__u16 padding;
	__u32 order;
};

struct acl_record4 {
	__u64 value;
	__u64 mask;
	struct acl_tail tail;
};

struct acl_record6 {
	__u64 value[4];
	__u64 mask[4];
	struct acl_tail tail;
	__u64 padding[6];
};

_Static_assert(sizeof(struct acl_root) == 16, "arena::ROOT");
_Static_assert(sizeof(struct acl_node) == 64, "arena::NODE");
_Static_assert(sizeof(struct acl_record4) == 32, "arena::record");
_Static_assert(sizeof(struct acl_record6) == 128, "arena::record");

struct acl_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	/* By size: the types of an inner map reach the object as mere declarations. */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, CHUNK);
};

/* IPv4's two arrays, then IPv6's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4);
	__type(key, __u32);
	__array(values, struct acl_map);
} acls SEC(".maps");

/*
 * Of each family: 0 without rules, else 1 or 2. Then a bit for each family: the kernel lacks its
 * rules, one of which drops packets.
 */
TABLE(acl_in_force);
#define ACL_SOLE_FILTER 2

/* A key's way through the classifier. */
struct walk {
	/* Lanes, four to a word: source, destination, ports, protocol. */
	__u64 words[8];
	/* The order of the best rule so far, and its action. */
	__u32 best;
	/* Of `acls`. */
	__u32 slot;
	__u32 root;
	/* What is next: ROOT, or an element. */
	__u32 mode;
	__u32 at;
	__u32 left;
	__u32 roots;
	__u32 shift;
	__u32 entries;
	__u32 nodes;
	__u32 records;
	__u32 padding;
};

/* An element of a section that begins at `section`. */
static __always_inline void *acl_at(const struct walk *w, __u32 section, __u32 index, __u32 size)
{
	__u32 slot = w->slot;
	__u32 chunk = section + index / (CHUNK / size);
	void *acl = bpf_map_lookup_elem(&acls, &slot);
	__u8 *at;

	if (!acl)
		return NULL;
	at = bpf_map_lookup_elem(acl, &chunk);
	return at ? at + place_in_chunk(index, size) : NULL;
}

#endif
