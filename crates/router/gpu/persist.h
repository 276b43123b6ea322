/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A kernel that stays, and decides about batch after batch whenever the host rings. Its first group
 * looks at the bell, which is the host's memory, and tells the others through the relay, which is
 * the device's: if all of them looked over the bus, each look would wait for those of the others.
 * Else groups know nothing of each other: each has a part of a batch, and says by itself that it is
 * done. A batch's word names how many of the groups take part; the host waits for those. A group
 * that waited in vain for long leaves, lest it be in somebody's way, and has the others leave as
 * well. The host launches the kernel again, and no group does a batch twice.
 */
#ifdef __OPENCL_VERSION__
typedef volatile GLOBAL atomic_uint *bell_number;
#define LOCAL __local
#define LOOK(at) atomic_load_explicit(at, memory_order_acquire, memory_scope_all_svm_devices)
#define TELL(at, number)                                                                           \
	atomic_store_explicit(at, number, memory_order_release, memory_scope_all_svm_devices)
#define FENCE()                                                                                    \
	atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel,                         \
			       memory_scope_all_svm_devices)
#define MEET() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define GROUP() ((u32)get_group_id(0))
#define PLACE() ((u32)get_local_id(0))
#define PLACES() ((u32)get_local_size(0))
#else
typedef volatile u32 *bell_number;
#ifdef __CUDACC__
/* Orders nothing: whoever found something there fences. */
INLINE u32 look(bell_number at)
{
	return *at;
}
INLINE void tell(bell_number at, u32 number)
{
	__threadfence_system();
	*at = number;
}
#define LOCAL __shared__
#define LOOK(at) look(at)
#define TELL(at, number) tell(at, number)
#define FENCE() __threadfence_system()
#define MEET() __syncthreads()
#define GROUP() blockIdx.x
#define PLACE() threadIdx.x
#define PLACES() blockDim.x
#else
/* Groups of one. */
#define LOCAL
#define LOOK(at) __atomic_load_n(at, __ATOMIC_ACQUIRE)
#define TELL(at, number) __atomic_store_n(at, number, __ATOMIC_RELEASE)
#define FENCE()
#define MEET()
#define GROUP() item
#define PLACE() 0
#define PLACES() 1
#endif
#endif

/*
 * Numbers of the bell: twin of gpu's standing.rs. Each in a cache line of its own. The relay has
 * the first two. Who leaves is told by the launch's number: what an earlier one left there says
 * nothing.
 */
#define RUNG 0
#define LEAVE 16
#define LAUNCH 32
#define DONE(group) (48 + 16 * (group))
/* Of a batch's word. */
#define TAKING(word) ((word)&0xffff)

/* How many times as patient as the first group the others are, whose looks are shorter. */
#define OTHERS 16

/* The next batch's word; 0, which none has, to leave. */
INLINE u32 await_batch(bell_number bell, u32 last, u32 launch, u32 patience)
{
	while (patience--) {
		u32 word = LOOK(bell + RUNG);

		if (word != last) {
			FENCE();
			return word;
		}
		if (LOOK(bell + LEAVE) == launch)
			return 0;
	}
	return 0;
}

/* As `await_batch`, from where the group looks. What it learns it tells the others. */
INLINE u32 next_batch(bell_number bell, bell_number relay, u32 last, u32 launch, u32 patience)
{
	u32 word = GROUP() ? await_batch(relay, last, launch, patience * OTHERS)
			   : await_batch(bell, last, launch, patience);

	if (!word) {
		TELL(bell + LEAVE, launch);
		TELL(relay + LEAVE, launch);
	} else if (GROUP() == 0) {
		TELL(relay + RUNG, word);
	}
	return word;
}

/* The word of the last batch that is none of the group's business any more. */
INLINE u32 last_batch(bell_number bell, bell_number relay)
{
	u32 told = LOOK(relay + RUNG);

	/* Of before the launch, and another batch is on the way: not yet told. */
	if (GROUP() && told != LOOK(bell + RUNG))
		return told;
	return LOOK(bell + DONE(GROUP()));
}

KERNEL void persist(bell_number bell, bell_number relay, GLOBAL const u8 *input, GLOBAL u32 *output,
		    u32 function, u32 bits, u32 patience, GLOBAL u32 *scratch,
		    GLOBAL const u8 *arena4, GLOBAL u32 *matches4, GLOBAL const u8 *arena6,
		    GLOBAL u32 *matches6, GLOBAL const u8 *routes)
{
	struct tables tables = { { arena4, arena6 }, { matches4, matches6 }, routes };
	GLOBAL u32 *decisions = bits < 32 ? scratch : output;
	/* Whole words, whatever the bits. */
	u32 chunk = (PLACES() + 31) / 32 * 32;
	u32 words = chunk * bits / 32;
	LOCAL u32 word[1];
	u32 launch = LOOK(bell + LAUNCH);
	u32 last = last_batch(bell, relay);

	for (;;) {
		if (PLACE() == 0)
			word[0] = next_batch(bell, relay, last, launch, patience);
		MEET();
		FENCE();
		last = word[0];
		if (!last)
			break;
		int takes_part = GROUP() < TAKING(last);
		/* What the others would read may be the next batch already. */
		u32 count = takes_part ? batch_keys(input) : 0;
		u32 stride = TAKING(last) * chunk;

		for (u32 start = GROUP() * chunk; start < count; start += stride) {
			for (u32 i = PLACE(); i < chunk && start + i < count; i += PLACES())
				decisions[start + i] = decide(input, start + i, function, &tables);
			MEET();
			u32 first = start / 32 * bits;
			u32 end = first + words;
			u32 all = (count * bits + 31) / 32;

			for (u32 i = first + PLACE(); bits < 32 && i < end && i < all;
			     i += PLACES())
				output[i] = narrowed(decisions, count, bits, i);
		}
		FENCE();
		MEET();
		if (PLACE() == 0 && takes_part)
			TELL(bell + DONE(GROUP()), last);
	}
}
