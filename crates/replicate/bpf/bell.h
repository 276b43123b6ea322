/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* When who reads the events is woken: to write at once, and before there is too much. */
#ifndef REPLICATE_BELL_H
#define REPLICATE_BELL_H

/* Who reads the events waits for something in it, or for a pause to pass. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 10);
} bell SEC(".maps");

/* It is rung for each event whose number has none of these bits. */
const volatile __u64 bell_mask;

static __noinline int ring_bell(void)
{
	__u64 yes = 1;

	/* While it rings, it need not again: who hears it takes all of it. */
	if (!bpf_ringbuf_query(&bell, BPF_RB_AVAIL_DATA))
		bpf_ringbuf_output(&bell, &yes, sizeof(yes), BPF_RB_FORCE_WAKEUP);
	return 0;
}

#endif
