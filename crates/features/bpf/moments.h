/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Sums that are exact in integers: twin of features::flow::moments. */
#ifndef FEATURES_MOMENTS_H
#define FEATURES_MOMENTS_H

struct lengths {
	__u64 count;
	__u64 sum;
	__u64 squares;
	__u32 min;
	__u32 max;
};

/* In nanoseconds. The square of a gap of 4.3 s is beyond 64 bits. */
struct times {
	__u64 count;
	__u64 min;
	__u64 max;
	__u64 sum;
	__u64 squares_low;
	__u64 squares_high;
};

static __always_inline __u64 saturating_add(__u64 one, __u64 other)
{
	__u64 sum = one + other;

	return sum < one ? ~0ULL : sum;
}

static __always_inline void lengths_add(struct lengths *l, __u32 value)
{
	if (!l->count || value < l->min)
		l->min = value;
	if (value > l->max)
		l->max = value;
	l->count++;
	l->sum += value;
	l->squares = saturating_add(l->squares, (__u64)value * value);
}

/* Adds a square of 128 bits, by the halves of its root: (h * 2^32 + l)^2. */
static __always_inline void times_add_square(struct times *t, __u64 value)
{
	__u64 high = value >> 32, low = value & 0xffffffff;
	__u64 middle = high * low;
	__u64 square_low = low * low, square_high = high * high + (middle >> 31);
	__u64 added = middle << 33;
	__u64 sum_low, sum_high;

	square_low += added;
	square_high += square_low < added;
	sum_low = t->squares_low + square_low;
	square_high += sum_low < square_low;
	sum_high = t->squares_high + square_high;
	if (sum_high < square_high) {
		sum_low = ~0ULL;
		sum_high = ~0ULL;
	}
	t->squares_low = sum_low;
	t->squares_high = sum_high;
}

static __always_inline void times_add(struct times *t, __u64 value)
{
	if (!t->count || value < t->min)
		t->min = value;
	if (value > t->max)
		t->max = value;
	t->count++;
	t->sum = saturating_add(t->sum, value);
	times_add_square(t, value);
}

/* Nanoseconds from one packet to the next; none when the clock went back. */
static __always_inline __u64 gap_between(__s64 earlier, __s64 later)
{
	__u64 gap = (__u64)later - (__u64)earlier;

	if (later <= earlier)
		return 0;
	/* Beyond any clock: times of either sign. */
	return gap >> 63 ? ~0ULL >> 1 : gap;
}

#endif
