/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* When the reader of a ring is woken: see features::kernel::Wakeup. */
#ifndef FEATURES_WAKE_H
#define FEATURES_WAKE_H

/* In a cache line of its own. */
struct alarm {
	/* Where in the ring the record starts whose writer wakes the reader; 0: nobody does. */
	__u64 position;
	__u64 padding[7];
};

/* The reader sets one before it sleeps, and whoever wakes it takes it away. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct alarm);
} alarms SEC(".maps");

/* A reader that has caught up is woken for each record. */
const volatile __u8 wake_always = 0;

/* The flags with which the next record is written to the ring that has this alarm. */
static __always_inline __u64 wakeup_flags(void *ring, __u32 index)
{
	struct alarm *alarm;
	__u64 position;

	if (wake_always)
		return 0;
	alarm = bpf_map_lookup_elem(&alarms, &index);
	if (!alarm)
		return BPF_RB_NO_WAKEUP;
	position = alarm->position;
	if (!position || bpf_ringbuf_query(ring, BPF_RB_PROD_POS) < position)
		return BPF_RB_NO_WAKEUP;
	/* A wake-up for each record until the reader runs would cost more than it helps. */
	if (__sync_val_compare_and_swap(&alarm->position, position, 0) != position)
		return BPF_RB_NO_WAKEUP;
	return BPF_RB_FORCE_WAKEUP;
}

#endif
