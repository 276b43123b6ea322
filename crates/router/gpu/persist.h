/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A kernel that stays, and decides about batch after batch whenever the host rings. Its groups know
 * nothing of each other: each looks at the bell by itself, has a part of every batch, and says by
 * itself that it is done. A group that waited in vain for long leaves, lest it be in somebody's
 * way, and has the others leave as well: a batch then waits for none that still looks. The host
 * launches the kernel again, and no group does a batch twice.
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
#define GROUPS() ((u32)get_num_groups(0))
#define PLACE() ((u32)get_local_id(0))
#define PLACES() ((u32)get_local_size(0))
#else
typedef volatile u32 *bell_number;
#ifdef __CUDACC__
INLINE u32 look(bell_number at)
{
	u32 number = *at;

	__threadfence_system();
	return number;
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
#define GROUPS() gridDim.x
#define PLACE() threadIdx.x
#define PLACES() blockDim.x
#else
/* Groups of one. Whoever calls the kernel says how many. */
extern u32 items;
#define LOCAL
#define LOOK(at) __atomic_load_n(at, __ATOMIC_ACQUIRE)
#define TELL(at, number) __atomic_store_n(at, number, __ATOMIC_RELEASE)
#define FENCE()
#define MEET()
#define GROUP() item
#define GROUPS() items
#define PLACE() 0
#define PLACES() 1
#endif
#endif

/* Numbers of the bell: twin of gpu's standing.rs. Each in a cache line of its own. */
#define RUNG 0
#define LEAVE 16
#define DONE(group) (32 + 16 * (group))

/* The next batch's number; 0, which none has, to leave. */
INLINE u32 await_batch(bell_number bell, u32 last, u32 patience)
{
	while (patience--) {
		u32 number = LOOK(bell + RUNG);

		if (number != last)
			return number;
		if (LOOK(bell + LEAVE))
			return 0;
	}
	TELL(bell + LEAVE, 1);
	return 0;
}

KERNEL void persist(bell_number bell, GLOBAL const u8 *input, GLOBAL u32 *output, u32 function,
		    u32 bits, u32 patience, GLOBAL u32 *scratch, GLOBAL const u8 *arena4,
		    GLOBAL u32 *matches4, GLOBAL const u8 *arena6, GLOBAL u32 *matches6,
		    GLOBAL const u8 *routes)
{
	struct tables tables = { { arena4, arena6 }, { matches4, matches6 }, routes };
	GLOBAL u32 *decisions = bits < 32 ? scratch : output;
	/* Whole words, whatever the bits. */
	u32 chunk = (PLACES() + 31) / 32 * 32;
	u32 words = chunk * bits / 32;
	LOCAL u32 number[1];
	u32 last = LOOK(bell + DONE(GROUP()));

	for (;;) {
		if (PLACE() == 0)
			number[0] = await_batch(bell, last, patience);
		MEET();
		FENCE();
		last = number[0];
		if (!last)
			break;
		u32 count = batch_keys(input);

		for (u32 start = GROUP() * chunk; start < count; start += GROUPS() * chunk) {
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
		if (PLACE() == 0)
			TELL(bell + DONE(GROUP()), last);
	}
}
