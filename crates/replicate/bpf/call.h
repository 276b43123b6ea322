/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a system call may do, by its number: userspace knows how this machine numbers them. */
#ifndef REPLICATE_CALL_H
#define REPLICATE_CALL_H

#define CALLS 512
#define END (~0ULL)
#define TASK_EXITS 0x4
#define TASK_DUMPS 0x200
#define TASK_KILLED 0x400
#define TASK_IO_WORKER 0x10
#define TASK_WORKQUEUE 0x20
#define NO_CALL -1
#define EPERM 1
#define EBADF 9
#define EXDEV 18
#define ENOTTY 25
#define ENOSYS 38
#define EOPNOTSUPP 95

enum call_kind {
	/* It changes names or attributes, but no bytes. */
	CALL_NAMES = 1,
	/* It may change bytes of all that it touches, and nothing else says which. */
	CALL_WHOLE = 2,
	/* It may change the file behind its first argument, or its third. */
	CALL_FIRST = 4,
	CALL_THIRD = 8,
	/* It takes files from one directory to another. */
	CALL_MOVES = 16,
	/* It writes the file behind its first argument to the disk, or the whole file system. */
	CALL_SYNC = 32,
	CALL_SYNC_ALL = 64,
	/* It opens a file, and returns its descriptor. */
	CALL_OPENS = 128,
};

const volatile __u8 calls[CALLS];
const volatile __u32 call_mmap;
const volatile __u32 call_ioctl;
const volatile __u32 call_io_submit;
const volatile __u32 call_sync_file_range;
const volatile __u32 call_madvise;

/* The file system tells that files change, but not how: all of it is read. */
const volatile bool vague;
/* It tells nothing of stores through memory either. */
const volatile bool silent;
/* But programs at its functions see what calls put into the page cache. */
const volatile bool functions;

static __always_inline __u8 kind_of(__u32 call)
{
	__u32 place = call & (CALLS - 1);

	/* The compiler would look at another register than it uses. */
	asm volatile("" : "+r"(place));
	return call < CALLS ? calls[place] : 0;
}

#if defined(__TARGET_ARCH_x86)
#define OTHER_NUMBERS 0x2
#define OTHER_MMAP 192
#define OTHER_OLD_MMAP 90
#define OTHER_MADVISE 219
/* Of calls with pointers of 32 bits in 64-bit registers. */
#define SHORT_POINTERS 0x40000000

/* Whether the task is in a call of 32-bit programs, which number calls otherwise and have other
 * registers for what they take. */
static __always_inline bool in_other_call(struct task_struct *task)
{
	return task->thread_info.status & OTHER_NUMBERS;
}
#else
#define OTHER_MMAP END
#define OTHER_OLD_MMAP END
#define OTHER_MADVISE END
#define SHORT_POINTERS 0

static __always_inline bool in_other_call(struct task_struct *task)
{
	return false;
}
#endif

/* Whether a system call runs, whose end will be seen. Until it returns, its result is this one; it
 * may be afterwards, in a task that is killed then. */
static __always_inline bool in_call(struct task_struct *task)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);

	if (task->flags & (PF_KTHREAD | TASK_EXITS | TASK_DUMPS | TASK_KILLED | TASK_IO_WORKER))
		return false;
	if (in_other_call(task))
		return false;
	return (long)regs->orig_ax != NO_CALL && (long)regs->ax == -ENOSYS;
}

/* Whether names may be changing right now, by this task or by whom it works for. */
static __always_inline bool changes_names(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return !in_call(task) ||
	       kind_of(((struct pt_regs *)bpf_task_pt_regs(task))->orig_ax) & CALL_NAMES;
}

/* Some calls fail half way, as where there is no room; others are refused before they begin. */
static __always_inline bool may_have_begun(long result)
{
	return result != -EPERM && result != -EBADF && result != -EXDEV && result != -ENOTTY &&
	       result != -ENOSYS && result != -EOPNOTSUPP;
}

/* Whether a call may have changed any bytes of a regular file that it touched. */
static __always_inline bool anywhere(__u32 call, bool range_known)
{
	__u8 kind = kind_of(call);

	return kind & CALL_WHOLE || !(range_known || kind & CALL_NAMES);
}

#endif
