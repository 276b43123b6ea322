// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Decides which task, interrupt or softirq every nanosecond of every CPU was spent in. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "lowroad/license.h"
#include "account.h"
#include "task.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* Chosen tasks, by thread or by process id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} groups SEC(".maps");

/* Set once every program is attached: an entry without its exit would be a wrong state. */
__u32 counting;

static __always_inline __u32 group_of(const struct task_struct *task)
{
	__u32 id = task->pid;
	const __u32 *group;

	if (!id)
		return 0;
	group = bpf_map_lookup_elem(&groups, &id);
	if (!group) {
		id = task->tgid;
		group = bpf_map_lookup_elem(&groups, &id);
	}
	return group ? *group : 0;
}

/* This CPU's account, started if it was not; NULL while not everything is attached. */
static __always_inline struct account *open_account(__u64 now)
{
	struct task_struct *task;
	struct account *account;
	__u32 zero = 0;

	if (!counting)
		return NULL;
	account = bpf_map_lookup_elem(&accounts, &zero);
	if (account && !account->last_ns) {
		task = bpf_get_current_task_btf();
		account_start(account, now, task_state(task), group_of(task));
		account->task = task->pid;
	}
	return account;
}

/* Some kernels hide the switches of some tasks: then another task runs than was switched to. */
static __always_inline void follow(struct account *account)
{
	struct task_struct *task;

	/* Within an interrupt it was looked at already. */
	if (account->depth)
		return;
	task = bpf_get_current_task_btf();
	if (account->task == (__u32)task->pid)
		return;
	account_follow(account, task_state(task), group_of(task));
	account->task = task->pid;
}

static __always_inline int enter(__u32 state)
{
	__u64 now = bpf_ktime_get_ns();
	struct account *account = open_account(now);

	if (!account)
		return 0;
	follow(account);
	account_enter(account, now, state);
	return 0;
}

static __always_inline int leave(void)
{
	__u64 now = bpf_ktime_get_ns();
	struct account *account = open_account(now);

	if (account)
		account_leave(account, now);
	return 0;
}

static __always_inline int rebase(__u32 state)
{
	__u64 now = bpf_ktime_get_ns();
	struct account *account = open_account(now);

	if (!account)
		return 0;
	follow(account);
	account_rebase(account, now, state);
	return 0;
}

/* Each of these is attached to several tracepoints where there are several. */
SEC("raw_tp")
int enter_hardirq(void *ctx)
{
	return enter(ACCOUNT_HARDIRQ);
}

SEC("raw_tp")
int leave_hardirq(void *ctx)
{
	return leave();
}

SEC("raw_tp")
int enter_softirq(__u64 *ctx)
{
	__u32 vector = ctx[0];

	return enter(ACCOUNT_SOFTIRQ + (vector < ACCOUNT_STATES - ACCOUNT_SOFTIRQ ? vector : 0));
}

SEC("raw_tp")
int leave_softirq(void *ctx)
{
	return leave();
}

SEC("raw_tp")
int enter_syscall(void *ctx)
{
	return rebase(ACCOUNT_SYSCALL);
}

SEC("raw_tp")
int leave_syscall(void *ctx)
{
	return rebase(ACCOUNT_USER);
}

SEC("tp_btf/sched_switch")
int switch_task(__u64 *ctx)
{
	struct task_struct *next = (void *)ctx[2];
	__u64 now = bpf_ktime_get_ns();
	struct account *account = open_account(now);

	if (!account)
		return 0;
	follow(account);
	account_switch(account, now, task_state(next), group_of(next));
	account->task = next->pid;
	return 0;
}
