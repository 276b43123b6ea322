/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The next hop of an address, by lpm's arrays as they are: twin of its fib4/dir24.rs and
 * fib6/trie.rs. Nobody changes them meanwhile. 0: no prefix holds the address.
 */

/* The first numbers of the routes: how the IPv4 table is laid out, and where arrays begin. */
enum routes {
	LAYOUT4,
	FIRST,
	PROJECTION,
	PAGE_OF4,
	PAGES4,
	GROUPS,
	SHORT,
	PAGE_OF6,
	PAGES6,
	CELLS,
	LINES,
	DEEP,
	STEPS,
	ANSWERS,
};

enum layout4 {
	BYTES,
	MIXED,
	WORDS,
};

#define ESCAPE_BYTE 0xff
#define ESCAPE_WORD 0xffff
#define LINE_NUMBERS 32
#define LINE_ANSWERS 16
#define DEEP_BIT 0x8000

INLINE GLOBAL const u8 *array(GLOBAL const u8 *routes, u32 which)
{
	return section(routes, ((GLOBAL const u32 *)routes)[which]);
}

INLINE u32 byte_at(GLOBAL const u8 *routes, u32 which, u64 index)
{
	return array(routes, which)[index];
}

INLINE u32 word_at(GLOBAL const u8 *routes, u32 which, u64 index)
{
	return ((GLOBAL const u16 *)array(routes, which))[index];
}

INLINE u32 double_at(GLOBAL const u8 *routes, u32 which, u64 index)
{
	return ((GLOBAL const u32 *)array(routes, which))[index];
}

INLINE u64 quad_at(GLOBAL const u8 *routes, u32 which, u64 index)
{
	return ((GLOBAL const u64 *)array(routes, which))[index];
}

/* Of an address whose /24 holds longer prefixes. */
INLINE u32 lpm4_escaped(GLOBAL const u8 *routes, u32 layout, u32 address)
{
	u32 page = word_at(routes, PAGE_OF4, address >> 16);
	u32 group = double_at(routes, PAGES4, page * 256 + (address >> 8 & 255));
	u64 at = (u64)group * 256 + (address & 255);

	return layout == BYTES ? byte_at(routes, GROUPS, at) : word_at(routes, GROUPS, at);
}

INLINE u32 lpm4(GLOBAL const u8 *routes, u32 address)
{
	u32 layout = ((GLOBAL const u32 *)routes)[LAYOUT4];
	u32 hop;

	if (layout != WORDS) {
		hop = byte_at(routes, layout == BYTES ? FIRST : PROJECTION, address >> 8);
		if (hop != ESCAPE_BYTE)
			return hop;
	}
	if (layout != BYTES) {
		hop = word_at(routes, FIRST, address >> 8);
		if (hop != ESCAPE_WORD)
			return hop;
	}
	return lpm4_escaped(routes, layout, address);
}

INLINE u32 lpm6_target(u32 entry, u32 x)
{
	return (entry + (x << (entry >> 26 & 15) >> 16)) & ((1 << 26) - 1);
}

/* How many of the 15 ascending bounds are below x, step by step of a search. */
INLINE u32 lpm6_line(GLOBAL const u8 *routes, u32 target, u32 x)
{
	GLOBAL const u16 *line =
		(GLOBAL const u16 *)array(routes, LINES) + (u64)target * LINE_NUMBERS;
	u32 below = 0;

	for (u32 step = 8; step; step /= 2)
		below += line[below + step - 1] < x ? step : 0;
	return line[LINE_ANSWERS + below];
}

/* The answer of prefixes longer than /16: 0, a next hop, or a deep block. */
INLINE u32 lpm6_found(GLOBAL const u8 *routes, u64 high)
{
	u32 slash32 = (u32)(high >> 32);
	u32 x = (u32)(high >> 16) & 0xffff;
	u32 page = double_at(routes, PAGE_OF6, slash32 >> 12);
	u32 entry = double_at(routes, PAGES6, (u64)page * 4096 + (slash32 & 4095));

	if (entry >> 30 == 3)
		entry = double_at(routes, CELLS, lpm6_target(entry, x));
	if (!(entry >> 31))
		return entry & 0xffff;
	return lpm6_line(routes, lpm6_target(entry, x), x);
}

/* The answer of the last step of a block that is not beyond the address. */
INLINE u32 lpm6_deep(GLOBAL const u8 *routes, u32 block, u64 high, u64 low)
{
	u64 place = quad_at(routes, DEEP, block);
	u64 from = place >> 32;
	u64 to = from + (place & 0xffffffff);

	while (to - from > 1) {
		u64 middle = from + (to - from) / 2;
		u64 first = quad_at(routes, STEPS, 2 * middle);

		if (first < high ||
		    (first == high && quad_at(routes, STEPS, 2 * middle + 1) <= low))
			from = middle;
		else
			to = middle;
	}
	return word_at(routes, ANSWERS, from);
}

INLINE u32 lpm6(GLOBAL const u8 *routes, u64 high, u64 low)
{
	u32 answer = lpm6_found(routes, high);

	if (answer & DEEP_BIT)
		answer = lpm6_deep(routes, answer ^ DEEP_BIT, high, low);
	return answer ? answer : word_at(routes, SHORT, high >> 48);
}
