/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where a call has written, by what it was called with: for files of which nothing else tells it.
 */
#ifndef REPLICATE_PLACE_H
#define REPLICATE_PLACE_H

#include "overlay.h"

/* O_APPEND */
#define OPEN_APPENDS 02000

const volatile __u32 call_write;
const volatile __u32 call_writev;
const volatile __u32 call_pwrite;
const volatile __u32 call_pwritev;

struct file___place {
	struct {
		struct {
			s64 counter;
		} refcnt;
	} f_ref;
	s64 f_pos;
	unsigned int f_flags;
} __attribute__((preserve_access_index));

struct files_struct___shared {
	atomic_t count;
} __attribute__((preserve_access_index));

struct place_of_call {
	__u64 from;
	__u64 to;
	__u32 flags;
	__u32 zero;
};

/* Whether nobody else can move the file's position: no other thread, and no other descriptor. */
static __always_inline bool alone(struct file___place *file)
{
	struct task_struct___files *task = (void *)bpf_get_current_task_btf();
	struct files_struct___shared *files = (void *)task->files;

	return bpf_core_field_exists(file->f_ref) && BPF_CORE_READ(files, count.counter) == 1 &&
	       BPF_CORE_READ(file, f_ref.refcnt.counter) == 0;
}

/* What a call has written, as far as that is certain; without flags where it is not. */
static __always_inline struct place_of_call place_of(struct pt_regs *regs, struct file *at,
						     long result)
{
	struct place_of_call place = { .from = ~0ULL };
	struct file___place *file = (void *)at;
	bool positioned = regs->orig_ax == call_pwrite || regs->orig_ax == call_pwritev;

	if (functions || result <= 0 || !(silent || overlay))
		return place;
	if (!positioned && regs->orig_ax != call_write && regs->orig_ax != call_writev)
		return place;
	if (BPF_CORE_READ(file, f_flags) & OPEN_APPENDS) {
		/* Others may have appended as well since: behind the size that userspace knows. */
		place.flags = HOOK_APPENDED;
		return place;
	}
	if (positioned)
		place.from = regs->r10;
	else if (alone(file))
		place.from = BPF_CORE_READ(file, f_pos) - result;
	else
		return place;
	place.to = place.from + result;
	place.flags = HOOK_PLACED;
	return place;
}

#endif
