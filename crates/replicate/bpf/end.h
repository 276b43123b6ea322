/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a system call has touched, told when it ends. */
#ifndef REPLICATE_END_H
#define REPLICATE_END_H

#include "operation.h"
#include "overlay.h"

/*
 * Of a write, folios tell only those pages that it was the first to write. Where functions are to
 * tell its bytes, nothing tells which they were once one was passed over.
 */
static __always_inline bool range_known(const struct touched *touched, __u32 call)
{
	return (touched->from < touched->to || touched->flags & HOOK_APPENDED) &&
	       (!(kind_of(call) & (CALL_FIRST | CALL_THIRD)) || touched->flags & HOOK_DIRECT ||
		touched->flags & (HOOK_PLACED | HOOK_APPENDED) ||
		(!functions && touched->flags & (HOOK_BUFFERED | HOOK_EXTENT)));
}

static __always_inline bool may_be_stored_to(const struct touched *touched)
{
	struct inode *inode = touched->inode;

	if (overlay)
		inode = upper_of(inode);
	return !inode || mapped(inode);
}

/*
 * Whether the range is one that a call has written, and each later change of it is told by itself:
 * the file is not mapped, and to map it is told.
 */
static __always_inline bool only_written(const struct touched *touched, __u32 call)
{
	__u8 kind = kind_of(call);

	if (!(kind & (CALL_FIRST | CALL_THIRD)) || kind & CALL_WHOLE || may_be_stored_to(touched))
		return false;
	return touched->flags & HOOK_PLACED || (!functions && !(touched->flags & HOOK_DIRECT) &&
						touched->flags & (HOOK_BUFFERED | HOOK_EXTENT));
}

/*
 * Whether functions told each byte of what the call says that it wrote: one whose program the
 * kernel has passed over leaves too few.
 */
static __always_inline bool wholly_told(const struct touched *touched, __u32 call, long result)
{
	return result > 0 && touched->told == (__u64)result &&
	       kind_of(call) & (CALL_FIRST | CALL_THIRD);
}

struct ending {
	struct operation *operation;
	long result;
	__u32 call;
	__u32 zero;
};

static long next_touched(__u32 i, void *context)
{
	struct ending *ending = context;
	struct operation *operation = ending->operation;
	struct touched *touched = &operation->touched[i & (TOUCHED - 1)];
	__u32 call = ending->call;

	if (wholly_told(touched, call, ending->result)) {
		if (!(touched->flags & FLAG_EXTENDED))
			touched->flags &= ~FLAG_VAGUE;
	} else if (vague && anywhere(call, range_known(touched, call))) {
		touched->from = 0;
		touched->to = END;
	}
	/* Of pages that are dirty already, no store is told. */
	if (touched->flags & HOOK_APPENDED && may_be_stored_to(touched)) {
		touched->from = 0;
		touched->to = END;
	} else if (touched->flags & HOOK_APPENDED)
		tell(&touched->file, EVENT_WRITTEN, touched->flags, END, 0);
	if (touched->from < touched->to)
		tell(&touched->file, only_written(touched, call) ? EVENT_WRITTEN : EVENT_RANGE,
		     touched->flags, touched->from, touched->to - touched->from);
	tell_state(touched->inode, &touched->file, touched->flags | operation->flags, call,
		   i + 1 == operation->count);
	touched->inode = NULL;
	return 0;
}

/* The system call ends: what it touched is now as it leaves it. */
static __always_inline void end(struct operation *operation, __u32 call, long result)
{
	struct ending ending = { .operation = operation, .result = result, .call = call };

	if (__sync_lock_test_and_set(&operation->begun, 0) == PASSED) {
		__sync_fetch_and_add(&operations, 1);
		__sync_fetch_and_add(&passed, -1ULL);
	}
	/* The last state that is told ends it, where there is one. */
	if (operation->count)
		/* The verifier of Linux 6.1 gives up on a loop. */
		bpf_loop(operation->count, next_touched, &ending, 0);
	else
		__sync_fetch_and_add(&operations, -1ULL);
	operation->count = 0;
	operation->flags = 0;
	operation->wrote = NULL;
}

/* Whoever would wait for a call that never ends, because its task does, would wait for ever. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(task_ends)
{
	struct operation *operation = NULL;

	if (any_begun())
		operation = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), NULL, 0);
	if (operation && operation->begun)
		end(operation, CALLS, 0);
	return 0;
}

struct bpf_iter__task {
	void *meta;
	struct task_struct *task;
};

static long next_waiting(__u32 i, void *context)
{
	struct operation *operation = *(struct operation **)context;
	struct touched *touched = &operation->touched[i & (TOUCHED - 1)];
	struct inode *inode = touched->inode;
	struct file_key file = touched->file;
	__u64 from = touched->from, to = touched->to;
	__u32 flags = touched->flags | FLAG_MIDDLE;

	if (!inode)
		return 0;
	tell_state(inode, &file, flags, 0, false);
	if (vague) {
		from = 0;
		to = END;
	}
	if (from < to)
		tell(&file, EVENT_RANGE, flags, from, to - from);
	return 0;
}

/*
 * A call may touch a file and then wait, for a peer or for another ring's request: what it has
 * touched is told as far as it is, and nobody waits for it until it goes on.
 */
SEC("iter/task")
int waiting(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct operation *operation;

	if (!task)
		return 0;
	operation = bpf_task_storage_get(&tasks, task, NULL, 0);
	if (!operation || operation->begun != BEGUN)
		return 0;
	bpf_loop(TOUCHED, next_waiting, &operation, 0);
	if (__sync_val_compare_and_swap(&operation->begun, BEGUN, PASSED) == BEGUN) {
		__sync_fetch_and_add(&passed, 1);
		__sync_fetch_and_add(&operations, -1ULL);
	}
	return 0;
}

#endif
