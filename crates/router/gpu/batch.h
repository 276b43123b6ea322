/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * As the packet functions, for kernels whose arguments stay while batches change: what a batch is
 * stands at the beginning of its input, and both families are decided about by one kernel.
 */

/* What numbers of `struct batch` are about: IPv4's, then IPv6's. Twin of gpu/header.rs. */
struct batch {
	u32 at[2];
	u32 keys[2];
	u32 form;
	u32 padding[3];
};

/* Numbers of the engine's `Function`. */
enum function {
	LPM,
	ACL,
	BOTH,
};

/* Tables of both families. */
struct tables {
	GLOBAL const u8 *arenas[2];
	GLOBAL u32 *matches[2];
	GLOBAL const u8 *routes;
};

INLINE u32 batch_keys(GLOBAL const u8 *input)
{
	GLOBAL const struct batch *batch = (GLOBAL const struct batch *)input;

	return batch->keys[0] + batch->keys[1];
}

INLINE u32 decide4(GLOBAL const u8 *input, u32 at, u32 i, u32 form, u32 function,
		   const struct tables *tables)
{
	struct tuple tuple;
	u32 rule;

	if (function == LPM)
		return routed(lpm4(tables->routes, big32(destination4(input, at, i, form))));
	read4(&tuple, input, at, i, form);
	rule = action(tables->arenas[0], tables->matches[0], &tuple);
	return function == ACL ? filtered(rule) : combined(rule, hop4(tables->routes, &tuple));
}

INLINE u32 decide6(GLOBAL const u8 *input, u32 at, u32 i, u32 form, u32 function,
		   const struct tables *tables)
{
	struct tuple tuple;
	u32 rule;

	if (function == LPM) {
		GLOBAL const u8 *address = destination6(input, at, i, form);

		return routed(lpm6(tables->routes, big64(address), big64(address + 8)));
	}
	read6(&tuple, input, at, i, form);
	rule = action(tables->arenas[1], tables->matches[1], &tuple);
	return function == ACL ? filtered(rule) : combined(rule, hop6(tables->routes, &tuple));
}

/* About the key of this place among a batch's, IPv4's first. */
INLINE u32 decide(GLOBAL const u8 *input, u32 i, u32 function, const struct tables *tables)
{
	GLOBAL const struct batch *batch = (GLOBAL const struct batch *)input;
	GLOBAL const u8 *content = input + sizeof(struct batch);
	u32 first = batch->keys[0];

	if (i < first)
		return decide4(content, batch->at[0], i, batch->form, function, tables);
	return decide6(content, batch->at[1], i - first, batch->form, function, tables);
}

KERNEL void batch_decide(GLOBAL const u8 *input, u32 function, GLOBAL u32 *output, u32 to,
			 GLOBAL const u8 *arena4, GLOBAL u32 *matches4, GLOBAL const u8 *arena6,
			 GLOBAL u32 *matches6, GLOBAL const u8 *routes)
{
	struct tables tables = { { arena4, arena6 }, { matches4, matches6 }, routes };
	u32 i = ITEM();

	if (i < batch_keys(input))
		output[to + i] = decide(input, i, function, &tables);
}

KERNEL void batch_combine(GLOBAL const u8 *input, u32 apart, GLOBAL const u32 *parts,
			  GLOBAL u32 *output)
{
	u32 i = ITEM();

	if (i < batch_keys(input))
		output[i] = joined(parts[i], parts[apart + i]);
}

KERNEL void batch_narrow(GLOBAL const u8 *input, u32 bits, GLOBAL const u32 *decisions,
			 GLOBAL u32 *output)
{
	u32 count = batch_keys(input);
	u32 word = ITEM();

	if (word < (count * bits + 31) / 32)
		output[word] = narrowed(decisions, count, bits, word);
}
