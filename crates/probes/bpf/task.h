/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a task on a CPU is doing when nothing interrupts it. */
#ifndef PROBES_TASK_H
#define PROBES_TASK_H

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "account.h"

#if defined(__TARGET_ARCH_arm64)
struct pt_regs___arm64 {
	__s32 syscallno;
} __attribute__((preserve_access_index));
#endif

/* Whether the task last entered the kernel by something other than a system call. */
static __always_inline int entered_from_user(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);

	return (long)regs->orig_ax < 0;
#elif defined(__TARGET_ARCH_arm64)
	struct pt_regs___arm64 *regs = (void *)bpf_task_pt_regs(task);

	return BPF_CORE_READ(regs, syscallno) < 0;
#endif
}

static __always_inline int is_ksoftirqd(const struct task_struct *task)
{
	return task->comm[0] == 'k' && task->comm[1] == 's' && task->comm[2] == 'o' &&
	       task->comm[3] == 'f';
}

/* The base state of a task that is about to run, or runs. */
static __always_inline __u32 task_state(struct task_struct *task)
{
	if (!task->pid)
		return ACCOUNT_IDLE;
	if (task->flags & PF_KTHREAD)
		return is_ksoftirqd(task) ? ACCOUNT_KSOFTIRQD : ACCOUNT_KTHREAD;
	return entered_from_user(task) ? ACCOUNT_USER : ACCOUNT_SYSCALL;
}

#endif
