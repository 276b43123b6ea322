/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The first rule that holds a five-tuple: a walk through acl's arena, which says in arena.rs what
 * is where. A list without rules is an arena without roots.
 */

#define NO_RULE 0xffffffff
#define FILTER_BITS 8
#define LINE_BITS 26
#define NODE_BIT 0x80000000
#define BOUND_WORDS 16

enum kind {
	CUT,
	SPLIT,
	LONG_LEAF,
};

/* An arena's header. */
struct arena {
	u32 roots;
	u32 shift;
	u32 looks_at_ports;
	u32 rules;
	u32 entries;
	u32 nodes;
	u32 records;
};

struct root {
	u8 lengths[2];
	u8 bits;
	u8 padding;
	u32 base;
	u32 best;
	u32 padding2;
};

struct run {
	u8 word;
	u8 start;
	u8 bits;
	u8 place;
};

struct node {
	u32 base;
	u32 lines;
	u8 kind;
	u8 lane;
	u8 runs;
	u8 padding[5];
	struct run run[10];
	u8 padding2[8];
};

/* What follows the addresses of a rule. */
struct tail {
	u16 source_ports[2];
	u16 destination_ports[2];
	u8 protocol;
	u8 protocol_mask;
	u16 padding;
	u32 order;
};

/* A five-tuple's lanes, four to a word, and how many words its addresses are: 1 or 4. */
struct tuple {
	u64 words[5];
	u32 addresses;
};

/* The first `bits` of a number. */
INLINE u32 first_bits(u32 number, u32 bits)
{
	return bits ? number >> (32 - bits) : 0;
}

INLINE u32 hash4(u64 addresses, GLOBAL const u8 *lengths)
{
	u32 sum = first_bits((u32)addresses, lengths[0]) * 0x9e3779b1u +
		  first_bits((u32)(addresses >> 32), lengths[1]) * 0x85ebca77u;

	return (sum ^ sum >> 15) * 0xc2b2ae3du;
}

/* Mixes the first `bits` of an address. */
INLINE u64 fold(u64 low, u64 high, u32 bits)
{
	u32 rest = 128 - bits;

	if (rest >= 128) {
		low = high = 0;
	} else if (rest >= 64) {
		low = high >> (rest & 63);
		high = 0;
	} else if (rest) {
		low = low >> rest | high << (64 - rest);
		high >>= rest;
	}
	high *= 0x9e3779b185ebca87ull;
	return (low ^ high ^ high >> 29) * 0xc2b2ae3d27d4eb4full;
}

INLINE u32 hash6(const u64 *words, GLOBAL const u8 *lengths)
{
	u64 source = fold(words[0], words[1], lengths[0]);
	u64 sum = (source << 23 | source >> 41) + fold(words[2], words[3], lengths[1]);

	return ((u32)(sum ^ sum >> 32) ^ (u32)(sum >> 47)) * 0xc2b2ae3du;
}

/* The child by chosen bits, which are gathered run by run. */
INLINE u32 cut(const u64 *words, GLOBAL const struct node *node)
{
	u32 child = 0;

	for (u32 i = 0; i < node->runs; i++) {
		struct run run = node->run[i];
		u32 bits = (u32)(words[run.word] >> run.start) & (((u32)1 << run.bits) - 1);

		child |= bits << run.place;
	}
	return child;
}

/* The child by the place of a lane's value among 64 ascending bounds, of which the first is 0. */
INLINE u32 split(const u64 *words, GLOBAL const u64 *entries, GLOBAL const struct node *node)
{
	u32 value = (u32)(words[node->lane >> 2] >> (16 * (node->lane & 3))) & 0xffff;
	GLOBAL const u16 *bounds = (GLOBAL const u16 *)(entries + node->base);
	u32 reached = 0;

	for (u32 step = 32; step; step /= 2)
		reached += bounds[reached + step] <= value ? step : 0;
	return BOUND_WORDS + reached;
}

/* Whether a rule holds the tuple. */
INLINE int holds(const struct tuple *key, GLOBAL const u64 *rule, GLOBAL const struct tail *tail)
{
	u64 last = key->words[key->addresses];
	u32 source = (u32)last & 0xffff;
	u32 destination = (u32)(last >> 16) & 0xffff;
	u32 protocol = (u32)(last >> 32);
	u64 differing = 0;

	for (u32 i = 0; i < key->addresses; i++)
		differing |= (key->words[i] ^ rule[i]) & rule[key->addresses + i];
	return !differing && source >= tail->source_ports[0] && source <= tail->source_ports[1] &&
	       destination >= tail->destination_ports[0] &&
	       destination <= tail->destination_ports[1] &&
	       !((protocol ^ tail->protocol) & tail->protocol_mask);
}

/* The best of what it was and of the first of a leaf's rules that hold the tuple. */
INLINE u32 leaf(const struct tuple *key, GLOBAL const u8 *records, u32 line, u32 lines, u32 best)
{
	int wide = key->addresses > 1;
	u32 at = wide ? line : 2 * line;
	u32 end = at + (wide ? lines : 2 * lines);

	for (; at < end; at++) {
		GLOBAL const u8 *record = records + (u64)at * (wide ? 128 : 32);
		GLOBAL const u64 *rule = (GLOBAL const u64 *)record;
		GLOBAL const struct tail *tail =
			(GLOBAL const struct tail *)(rule + 2 * key->addresses);

		if (tail->order >= best)
			return best;
		if (holds(key, rule, tail))
			return tail->order;
	}
	return best;
}

/* The order of the first rule that holds the tuple, above two bits of its action; or NO_RULE. */
INLINE u32 classify(const struct tuple *key, GLOBAL const u8 *arena)
{
	struct arena head = *(GLOBAL const struct arena *)arena;
	GLOBAL const struct root *roots = (GLOBAL const struct root *)(arena + 64);
	GLOBAL const u64 *entries = (GLOBAL const u64 *)section(arena, head.entries);
	GLOBAL const struct node *nodes = (GLOBAL const struct node *)section(arena, head.nodes);
	GLOBAL const u8 *records = section(arena, head.records);
	u32 best = NO_RULE;

	for (u32 i = 0; i < head.roots && roots[i].best < best >> 2; i++) {
		GLOBAL const struct root *root = roots + i;
		u32 hash = key->addresses > 1 ? hash6(key->words, root->lengths)
					      : hash4(key->words[0], root->lengths);
		u64 entry = entries[root->base + first_bits(hash, root->bits)];
		int open = entry >> (hash >> 4 & 7) & 1;

		/* What comes too late is not looked at. */
		while (open && entry && ((u32)entry >> FILTER_BITS << head.shift) < best >> 2) {
			u32 reference = (u32)(entry >> 32);
			GLOBAL const struct node *node = nodes + (reference & ~NODE_BIT);

			open = 0;
			if (!(reference & NODE_BIT)) {
				best = leaf(key, records, reference & ((1 << LINE_BITS) - 1),
					    reference >> LINE_BITS, best);
			} else if (node->kind == LONG_LEAF) {
				best = leaf(key, records, node->base, node->lines, best);
			} else {
				entry = entries[node->base +
						(node->kind == CUT
							 ? cut(key->words, node)
							 : split(key->words, entries, node))];
				open = 1;
			}
		}
	}
	return best;
}
