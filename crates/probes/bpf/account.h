/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which state a CPU's time belongs to: a base state (what the current task does) under a small
 * stack of interrupts. An interrupt may come between any two statements here, run the same code,
 * and leave everything as it found it; so what is saved is stored before the depth that covers
 * it, and read before the depth that uncovers it.
 */
#ifndef PROBES_ACCOUNT_H
#define PROBES_ACCOUNT_H

#include <bpf/bpf_helpers.h>

enum account_state {
	ACCOUNT_IDLE = 0,
	ACCOUNT_USER = 1,
	ACCOUNT_SYSCALL = 2,
	ACCOUNT_KTHREAD = 3,
	ACCOUNT_KSOFTIRQD = 4,
	ACCOUNT_HARDIRQ = 5,
	/* The kernel's ten vectors follow, in the kernel's order. */
	ACCOUNT_SOFTIRQ = 6,
	ACCOUNT_STATES = 16,
};

/* Chosen groups of tasks; group 0 is everything else. */
#define ACCOUNT_GROUPS 8
/* Interrupts within interrupts; more than the kernel nests. */
#define ACCOUNT_DEPTH 8

struct account {
	/* Of the last event; 0 before the first. */
	__u64 last_ns;
	__u32 depth;
	__u32 state;
	__u32 group;
	/* The task that the base state is of; kept by who follows tasks. */
	__u32 task;
	__u32 saved[ACCOUNT_DEPTH];
	__u64 events;
	__u64 switches;
	/* Task events that found an interrupt still open: its time is attributed wrongly. */
	__u64 resyncs;
	/* Task events of another task than the one that was switched to. */
	__u64 unseen;
	__u64 ns[ACCOUNT_GROUPS][ACCOUNT_STATES];
};

/* Gives the time since the last event to the state it was spent in. */
static __always_inline void account_charge(struct account *account, __u64 now)
{
	__u32 group = account->group & (ACCOUNT_GROUPS - 1);
	__u32 state = account->state & (ACCOUNT_STATES - 1);
	__s64 spent = now - account->last_ns;

	account->events++;
	/* An interrupt since `now` was read has charged its own time already. */
	if (spent < 0)
		return;
	account->ns[group][state] += spent;
	account->last_ns = now;
}

static __always_inline void account_enter(struct account *account, __u64 now, __u32 state)
{
	__u32 depth = account->depth;

	account_charge(account, now);
	account->saved[depth & (ACCOUNT_DEPTH - 1)] = account->state;
	barrier();
	account->depth = depth + 1;
	barrier();
	account->state = state;
}

static __always_inline void account_leave(struct account *account, __u64 now)
{
	__u32 depth = account->depth;

	account_charge(account, now);
	/* Entered before the first event. */
	if (!depth)
		return;
	account->state = account->saved[(depth - 1) & (ACCOUNT_DEPTH - 1)];
	barrier();
	account->depth = depth - 1;
}

/* A task event: no interrupt can be open, so one that seems to be was missed at its end. */
static __always_inline void account_rebase(struct account *account, __u64 now, __u32 state)
{
	account_charge(account, now);
	if (account->depth) {
		account->resyncs++;
		account->depth = 0;
		barrier();
	}
	account->state = state;
}

static __always_inline void account_switch(struct account *account, __u64 now, __u32 state,
					   __u32 group)
{
	account_rebase(account, now, state);
	account->switches++;
	account->group = group;
}

/* What the CPU did since the last event was this state's: a switch to it was not seen. */
static __always_inline void account_follow(struct account *account, __u32 state, __u32 group)
{
	account->unseen++;
	account->state = state;
	account->group = group;
}

/* The first event of a CPU: what it did until now is nobody's. */
static __always_inline void account_start(struct account *account, __u64 now, __u32 state,
					  __u32 group)
{
	account->state = state;
	account->group = group;
	account->last_ns = now;
}

#endif
