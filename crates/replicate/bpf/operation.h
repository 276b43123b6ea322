/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which inodes a system call touches: what became of them is told when it ends. */
#ifndef REPLICATE_OPERATION_H
#define REPLICATE_OPERATION_H

#include "call.h"
#include "state.h"

/* A rename that replaces touches four, and marks of quota files may come to them. */
#define TOUCHED 8

struct touched {
	struct inode *inode;
	struct file_key file;
	__u64 from;
	__u64 to;
	/* Bytes that a write has put there, and that are told. */
	__u64 told;
	__u32 flags;
	__u32 zero;
};

/* It is under way, or waits for something and is not waited for. */
#define BEGUN 1
#define PASSED 2

struct operation {
	__u32 count;
	__u32 flags;
	__u64 begun;
	/* A file of which it is known whether it belongs to the tree. */
	struct file_key known;
	struct belonging belonging;
	/* The file of the last write, and the pages that it makes dirty by itself. */
	struct inode *wrote;
	__u64 first;
	__u64 last;
	struct touched touched[TOUCHED];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct operation);
} tasks SEC(".maps");

/*
 * Whether the task works for others, so that no end of it is seen; writing back changes nothing,
 * unless all that is told is that something changed.
 */
static __always_inline bool in_the_middle(struct task_struct *task, struct inode *inode)
{
	return task->flags & TASK_IO_WORKER || in_other_call(task) ||
	       (task->flags & PF_KTHREAD &&
		(vague || !(task->flags & TASK_WORKQUEUE) || is_directory(inode)));
}

static __always_inline void tell_at_once(struct inode *inode, __u32 flags, __u64 from, __u64 to)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct file_key file = file_of(inode);

	if (in_the_middle(task, inode)) {
		flags |= FLAG_MIDDLE;
		if (vague && from >= to) {
			from = 0;
			to = END;
		}
	}
	tell_state(inode, &file, flags, 0, false);
	if (from < to)
		tell(&file, EVENT_RANGE, flags, from, to - from);
}

/* The operation that runs, where one does and this can be remembered of it. */
static __always_inline struct operation *running(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!in_call(task))
		return NULL;
	return bpf_task_storage_get(&tasks, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* Whether some task is in one. */
static __always_inline bool any_begun(void)
{
	return *(volatile __u64 *)&operations || *(volatile __u64 *)&passed;
}

static __always_inline void begin(struct operation *operation)
{
	if (operation->begun == BEGUN)
		return;
	__sync_fetch_and_add(&operations, 1);
	if (__sync_lock_test_and_set(&operation->begun, BEGUN) == PASSED)
		__sync_fetch_and_add(&passed, -1ULL);
}

static __always_inline bool add(struct touched *touched, struct inode *inode, __u32 flags,
				__u64 from, __u64 to)
{
	if (touched->inode && touched->inode != inode)
		return false;
	if (!touched->inode) {
		touched->inode = inode;
		touched->file = file_of(inode);
		touched->flags = 0;
		touched->told = 0;
		touched->from = ~0ULL;
		touched->to = 0;
	}
	/* Also once more: it may be long since the call began, and noted no more. */
	remark(&touched->file);
	touched->flags |= flags;
	if (from < touched->from)
		touched->from = from;
	if (to > touched->to)
		touched->to = to;
	return true;
}

static __noinline int remember(struct operation *operation, struct inode *inode, __u32 flags,
			       __u64 from, __u64 to)
{
	int i;

	if (!operation)
		return 0;
	begin(operation);
	for (i = 0; i < TOUCHED; i++) {
		if (!add(&operation->touched[i], inode, flags, from, to))
			continue;
		if (operation->count < i + 1)
			operation->count = i + 1;
		return 0;
	}
	operation->flags |= FLAG_OVERFLOW;
	tell_at_once(inode, flags | FLAG_MIDDLE, from, to);
	return 0;
}

/*
 * Whether what the task does goes on after it is told, and its end tells nothing: there was no
 * memory to remember its call, or it seems to be in none, as where a tracer has set its result, and
 * where the kernel writes in its name its core, what is accounted of it when it exits, and what is
 * left to do after a call. A store through memory is in no call either, and told by its page.
 */
static __always_inline bool ends_untold(struct task_struct *task, struct inode *inode)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);

	if (in_call(task))
		return true;
	/* A file system that tells each change tells it of a file afterwards, of names before. */
	if (!vague && !is_directory(inode))
		return false;
	return task->flags & (TASK_EXITS | TASK_DUMPS | TASK_KILLED) ||
	       (long)regs->orig_ax != NO_CALL;
}

/* Something of the inode changes, and of its bytes those from `from` up to `to`. */
static __noinline int touch_range(struct inode *inode, __u32 flags, __u64 from, __u64 to)
{
	struct operation *operation;

	/* Nobody uses it any more. */
	if (BPF_CORE_READ(inode, i_count.counter) == 0)
		return 0;
	if (vague)
		flags |= FLAG_VAGUE;
	operation = running();
	if (operation)
		return remember(operation, inode, flags, from, to);
	if (ends_untold(bpf_get_current_task_btf(), inode)) {
		flags |= FLAG_MIDDLE;
		if (vague && from >= to) {
			from = 0;
			to = END;
		}
	}
	tell_at_once(inode, flags, from, to);
	return 0;
}

static __always_inline void touch(struct inode *inode, __u32 flags)
{
	touch_range(inode, flags, ~0ULL, 0);
}

#endif
