/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What becomes of decisions before they go back: those of one function are joined with those of the
 * other, and all are cut to as many bits as there are to tell.
 */

/* A drop by the rules wins, then a punt, then the route. */
INLINE u32 joined(u32 route, u32 rules)
{
	u32 verdict = rules & NO_ROUTE;

	return verdict == FORWARD ? route : verdict | (route & 0xffff);
}

/* The next hop above the verdict: twin of gpu/width.rs. */
INLINE u32 cut_short(u32 decision)
{
	return (decision >> 16 & 3) | (decision & 0xffff) << 2;
}

/* A word of decisions that have so many bits each, one after the other from the lowest on. */
INLINE u32 narrowed(GLOBAL const u32 *decisions, u32 count, u32 bits, u32 word)
{
	u32 first = 32 * word;
	u32 all = 0;

	for (u32 i = first / bits; i < count && i * bits < first + 32; i++) {
		u32 cut = cut_short(decisions[i]);

		all |= i * bits < first ? cut >> (first - i * bits) : cut << (i * bits - first);
	}
	return all;
}

/* Routes are the first decisions of `parts`, what rules say those from `apart` on. */
KERNEL void combine(GLOBAL const u32 *parts, u32 apart, GLOBAL u32 *output, u32 count)
{
	u32 i = ITEM();

	if (i < count)
		output[i] = joined(parts[i], parts[apart + i]);
}

KERNEL void narrow(GLOBAL const u32 *decisions, u32 count, GLOBAL u32 *output, u32 bits)
{
	u32 word = ITEM();

	if (word < (count * bits + 31) / 32)
		output[word] = narrowed(decisions, count, bits, word);
}
