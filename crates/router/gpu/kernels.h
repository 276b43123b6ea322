/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The packet functions: one work item for each key of a batch. Keys of IPv4 are 16 bytes, of IPv6
 * 40, as acl's `Key`; destinations are as packets carry them. Both begin `at` bytes into the input,
 * and decisions, as the engine's `Decision`, at the number `to` of the output. `matches` has a
 * number for each rule, and a last one for packets that none matches.
 */

/* The engine's `Verdict`, where decisions have it. */
#define FORWARD 0
#define DROP (1 << 16)
#define PUNT (2 << 16)
#define NO_ROUTE (3 << 16)
#define KEY4 16
#define KEY6 40

INLINE u32 routed(u32 hop)
{
	return hop ? FORWARD | hop : NO_ROUTE;
}

/* What rules say: what none matches is accepted. */
INLINE u32 filtered(u32 action)
{
	return action == 1 ? DROP : action == 2 ? PUNT : FORWARD;
}

/* A drop wins, then a punt, then the route. */
INLINE u32 combined(u32 action, u32 hop)
{
	return action ? filtered(action) | hop : routed(hop);
}

/* The action of the first rule that holds the tuple, which is counted. */
INLINE u32 action(GLOBAL const u8 *arena, GLOBAL u32 *matches, const struct tuple *tuple)
{
	u32 rules = ((GLOBAL const struct arena *)arena)->rules;
	u32 rule = rules ? classify(tuple, arena) : NO_RULE;

	if (rules)
		COUNT(matches + (rule == NO_RULE ? rules : rule >> 2));
	return rule == NO_RULE ? 0 : rule & 3;
}

INLINE u64 ports_and_protocol(GLOBAL const u8 *key, u32 ports)
{
	return big16(key + ports) | big16(key + ports + 2) << 16 | (u64)key[0] << 32;
}

INLINE u32 action4(GLOBAL const u8 *arena, GLOBAL u32 *matches, GLOBAL const u8 *key)
{
	struct tuple tuple;

	tuple.words[0] = (u64)big32(key + 8) << 32 | big32(key + 4);
	tuple.words[1] = ports_and_protocol(key, 12);
	tuple.addresses = 1;
	return action(arena, matches, &tuple);
}

INLINE u32 action6(GLOBAL const u8 *arena, GLOBAL u32 *matches, GLOBAL const u8 *key)
{
	struct tuple tuple;

	tuple.words[0] = big64(key + 12);
	tuple.words[1] = big64(key + 4);
	tuple.words[2] = big64(key + 28);
	tuple.words[3] = big64(key + 20);
	tuple.words[4] = ports_and_protocol(key, 36);
	tuple.addresses = 4;
	return action(arena, matches, &tuple);
}

INLINE u32 hop4(GLOBAL const u8 *routes, GLOBAL const u8 *address)
{
	return lpm4(routes, big32(address));
}

INLINE u32 hop6(GLOBAL const u8 *routes, GLOBAL const u8 *address)
{
	return lpm6(routes, big64(address), big64(address + 8));
}

KERNEL void lpm_v4(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count,
		   GLOBAL const u8 *routes)
{
	u32 i = ITEM();

	if (i < count)
		output[to + i] = routed(hop4(routes, input + at + 4 * i));
}

KERNEL void lpm_v6(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count,
		   GLOBAL const u8 *routes)
{
	u32 i = ITEM();

	if (i < count)
		output[to + i] = routed(hop6(routes, input + at + 16 * i));
}

KERNEL void acl_v4(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count,
		   GLOBAL const u8 *arena, GLOBAL u32 *matches)
{
	u32 i = ITEM();

	if (i < count)
		output[to + i] = filtered(action4(arena, matches, input + at + KEY4 * i));
}

KERNEL void acl_v6(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count,
		   GLOBAL const u8 *arena, GLOBAL u32 *matches)
{
	u32 i = ITEM();

	if (i < count)
		output[to + i] = filtered(action6(arena, matches, input + at + KEY6 * i));
}

KERNEL void both_v4(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count,
		    GLOBAL const u8 *arena, GLOBAL u32 *matches, GLOBAL const u8 *routes)
{
	u32 i = ITEM();
	GLOBAL const u8 *key = input + at + KEY4 * i;

	if (i < count)
		output[to + i] = combined(action4(arena, matches, key), hop4(routes, key + 8));
}

KERNEL void both_v6(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count,
		    GLOBAL const u8 *arena, GLOBAL u32 *matches, GLOBAL const u8 *routes)
{
	u32 i = ITEM();
	GLOBAL const u8 *key = input + at + KEY6 * i;

	if (i < count)
		output[to + i] = combined(action6(arena, matches, key), hop6(routes, key + 20));
}
