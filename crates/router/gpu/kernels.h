/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The packet functions: one work item for each key of a batch. Keys of IPv4 are 16 bytes, of IPv6
 * 40, as acl's `Key`; destinations are as packets carry them. Both begin `at` bytes into the input;
 * where the input is whole frames, the numbers there say where in it their IP headers begin.
 * Decisions, as the engine's `Decision`, begin at the number `to` of the output. `matches` has a
 * number for each rule, and a last one for packets that none matches.
 */

/* What of packets the input has. */
enum form {
	KEYS,
	FRAMES,
	ADDRESSES,
};

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

/* The IP header of a frame. */
INLINE GLOBAL const u8 *header(GLOBAL const u8 *input, u32 at, u32 i)
{
	return input + ((GLOBAL const u32 *)(input + at))[i];
}

/* Zero of protocols that have no ports. */
INLINE u64 ports_in(u32 protocol, GLOBAL const u8 *ports)
{
	switch (protocol) {
	case 6:
	case 17:
	case 33:
	case 132:
	case 136:
		return big16(ports) | big16(ports + 2) << 16;
	default:
		return 0;
	}
}

INLINE u64 ports_of(GLOBAL const u8 *ports)
{
	return big16(ports) | big16(ports + 2) << 16;
}

INLINE void read4(struct tuple *tuple, GLOBAL const u8 *input, u32 at, u32 i, u32 form)
{
	GLOBAL const u8 *from = form == FRAMES ? header(input, at, i) : input + at + KEY4 * i;
	u32 addresses = form == FRAMES ? 12 : 4;
	u32 protocol = from[form == FRAMES ? 9 : 0];

	tuple->words[0] = (u64)big32(from + addresses + 4) << 32 | big32(from + addresses);
	tuple->words[1] = form == FRAMES ? ports_in(protocol, from + 20) : ports_of(from + 12);
	tuple->words[1] |= (u64)protocol << 32;
	tuple->addresses = 1;
}

INLINE void read6(struct tuple *tuple, GLOBAL const u8 *input, u32 at, u32 i, u32 form)
{
	GLOBAL const u8 *from = form == FRAMES ? header(input, at, i) : input + at + KEY6 * i;
	GLOBAL const u8 *addresses = from + (form == FRAMES ? 8 : 4);
	u32 protocol = from[form == FRAMES ? 6 : 0];

	tuple->words[0] = big64(addresses + 8);
	tuple->words[1] = big64(addresses);
	tuple->words[2] = big64(addresses + 24);
	tuple->words[3] = big64(addresses + 16);
	tuple->words[4] = form == FRAMES ? ports_in(protocol, from + 40) : ports_of(from + 36);
	tuple->words[4] |= (u64)protocol << 32;
	tuple->addresses = 4;
}

INLINE GLOBAL const u8 *destination4(GLOBAL const u8 *input, u32 at, u32 i, u32 form)
{
	if (form == FRAMES)
		return header(input, at, i) + 16;
	return input + at + (form == KEYS ? KEY4 * i + 8 : 4 * i);
}

INLINE GLOBAL const u8 *destination6(GLOBAL const u8 *input, u32 at, u32 i, u32 form)
{
	if (form == FRAMES)
		return header(input, at, i) + 24;
	return input + at + (form == KEYS ? KEY6 * i + 20 : 16 * i);
}

INLINE u32 hop4(GLOBAL const u8 *routes, const struct tuple *tuple)
{
	return lpm4(routes, (u32)(tuple->words[0] >> 32));
}

INLINE u32 hop6(GLOBAL const u8 *routes, const struct tuple *tuple)
{
	return lpm6(routes, tuple->words[3], tuple->words[2]);
}

KERNEL void lpm_v4(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count, u32 form,
		   GLOBAL const u8 *routes)
{
	u32 i = ITEM();

	if (i < count)
		output[to + i] = routed(lpm4(routes, big32(destination4(input, at, i, form))));
}

KERNEL void lpm_v6(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count, u32 form,
		   GLOBAL const u8 *routes)
{
	u32 i = ITEM();

	if (i < count) {
		GLOBAL const u8 *address = destination6(input, at, i, form);

		output[to + i] = routed(lpm6(routes, big64(address), big64(address + 8)));
	}
}

KERNEL void acl_v4(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count, u32 form,
		   GLOBAL const u8 *arena, GLOBAL u32 *matches)
{
	u32 i = ITEM();
	struct tuple tuple;

	if (i < count) {
		read4(&tuple, input, at, i, form);
		output[to + i] = filtered(action(arena, matches, &tuple));
	}
}

KERNEL void acl_v6(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count, u32 form,
		   GLOBAL const u8 *arena, GLOBAL u32 *matches)
{
	u32 i = ITEM();
	struct tuple tuple;

	if (i < count) {
		read6(&tuple, input, at, i, form);
		output[to + i] = filtered(action(arena, matches, &tuple));
	}
}

KERNEL void both_v4(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count, u32 form,
		    GLOBAL const u8 *arena, GLOBAL u32 *matches, GLOBAL const u8 *routes)
{
	u32 i = ITEM();
	struct tuple tuple;

	if (i < count) {
		read4(&tuple, input, at, i, form);
		output[to + i] = combined(action(arena, matches, &tuple), hop4(routes, &tuple));
	}
}

KERNEL void both_v6(GLOBAL const u8 *input, u32 at, GLOBAL u32 *output, u32 to, u32 count, u32 form,
		    GLOBAL const u8 *arena, GLOBAL u32 *matches, GLOBAL const u8 *routes)
{
	u32 i = ITEM();
	struct tuple tuple;

	if (i < count) {
		read6(&tuple, input, at, i, form);
		output[to + i] = combined(action(arena, matches, &tuple), hop6(routes, &tuple));
	}
}
