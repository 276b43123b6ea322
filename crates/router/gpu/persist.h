/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A persistent kernel, which decides about a batch whenever the host writes the doorbell. Its first
 * group polls the doorbell, which is in the host's memory, and forwards it to the others through
 * broadcast words in the device's memory: if all groups polled over the bus, each read would wait
 * for those of the others. Otherwise groups are independent: each has a part of a batch and reports
 * by itself that it is done. A batch's word has the number of groups that take part, and the host
 * waits for those. A group that waits for a batch too long exits, so that it does not block others,
 * and makes the other groups exit as well. The host launches the kernel again, and no group does a
 * batch twice.
 */
#ifdef __OPENCL_VERSION__
typedef volatile GLOBAL atomic_uint *doorbell_word;
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
typedef volatile u32 *doorbell_word;
#ifdef __CUDACC__
/* Orders nothing: whoever found something there fences. */
INLINE u32 look(doorbell_word at)
{
	return *at;
}
INLINE void tell(doorbell_word at, u32 number)
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
 * Words of the doorbell, each in a cache line of its own: twin of gpu's persistent.rs. The
 * broadcast words are the first two. EXIT holds the number of a launch, so a value of an earlier
 * launch has no effect.
 */
#define REQUEST 0
#define EXIT 16
#define LAUNCH 32
#define DONE(group) (48 + 16 * (group))
/* Of a batch's word. */
#define GROUP_COUNT(word) ((word)&0xffff)

/* The other groups poll this many times as often as the first: their reads take less time. */
#define OTHERS 16

/* The next batch's word; 0, which none has, to leave. */
INLINE u32 await_batch(doorbell_word doorbell, u32 last, u32 launch, u32 polls)
{
	while (polls--) {
		u32 word = LOOK(doorbell + REQUEST);

		if (word != last) {
			FENCE();
			return word;
		}
		if (LOOK(doorbell + EXIT) == launch)
			return 0;
	}
	return 0;
}

/* As `await_batch`, from where the group polls. The first group forwards the word. */
INLINE u32 next_batch(doorbell_word doorbell, doorbell_word broadcast, u32 last, u32 launch,
		      u32 polls)
{
	u32 word = GROUP() ? await_batch(broadcast, last, launch, polls * OTHERS)
			   : await_batch(doorbell, last, launch, polls);

	if (!word) {
		TELL(doorbell + EXIT, launch);
		TELL(broadcast + EXIT, launch);
	} else if (GROUP() == 0) {
		TELL(broadcast + REQUEST, word);
	}
	return word;
}

/* The word of the last batch that is none of the group's business any more. */
INLINE u32 last_batch(doorbell_word doorbell, doorbell_word broadcast)
{
	u32 forwarded = LOOK(broadcast + REQUEST);

	/* A word from before the launch: another batch is on the way and not forwarded yet. */
	if (GROUP() && forwarded != LOOK(doorbell + REQUEST))
		return forwarded;
	return LOOK(doorbell + DONE(GROUP()));
}

KERNEL void persist(doorbell_word doorbell, doorbell_word broadcast, GLOBAL const u8 *input,
		    GLOBAL u32 *output, u32 function, u32 bits, u32 polls, GLOBAL u32 *scratch,
		    GLOBAL const u8 *arena4, GLOBAL u32 *matches4, GLOBAL const u8 *arena6,
		    GLOBAL u32 *matches6, GLOBAL const u8 *routes)
{
	struct tables tables = { { arena4, arena6 }, { matches4, matches6 }, routes };
	GLOBAL u32 *decisions = bits < 32 ? scratch : output;
	/* Whole words, whatever the bits. */
	u32 chunk = (PLACES() + 31) / 32 * 32;
	u32 words = chunk * bits / 32;
	LOCAL u32 word[1];
	u32 launch = LOOK(doorbell + LAUNCH);
	u32 last = last_batch(doorbell, broadcast);

	for (;;) {
		if (PLACE() == 0)
			word[0] = next_batch(doorbell, broadcast, last, launch, polls);
		MEET();
		FENCE();
		last = word[0];
		if (!last)
			break;
		int takes_part = GROUP() < GROUP_COUNT(last);
		/* What the others would read may be the next batch already. */
		u32 count = takes_part ? batch_keys(input) : 0;
		u32 stride = GROUP_COUNT(last) * chunk;

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
			TELL(doorbell + DONE(GROUP()), last);
	}
}
