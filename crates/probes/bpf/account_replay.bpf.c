// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Decides nothing: runs the accountant's state machine over events that a test wrote down. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "lowroad/license.h"
#include "account.h"

#define REPLAY_EVENTS 64

enum replay_kind {
	REPLAY_START = 0,
	REPLAY_ENTER = 1,
	REPLAY_LEAVE = 2,
	REPLAY_REBASE = 3,
	REPLAY_SWITCH = 4,
	REPLAY_FOLLOW = 5,
};

struct replay_event {
	__u64 at_ns;
	__u32 kind;
	__u32 state;
	__u32 group;
	__u32 zero;
};

_Static_assert(sizeof(struct replay_event) == 24, "account::tests");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REPLAY_EVENTS);
	__type(key, __u32);
	__type(value, struct replay_event);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct account);
} accounts SEC(".maps");

static __always_inline void apply(struct account *account, const struct replay_event *event)
{
	if (event->kind == REPLAY_START)
		account_start(account, event->at_ns, event->state, event->group);
	else if (event->kind == REPLAY_ENTER)
		account_enter(account, event->at_ns, event->state);
	else if (event->kind == REPLAY_LEAVE)
		account_leave(account, event->at_ns);
	else if (event->kind == REPLAY_REBASE)
		account_rebase(account, event->at_ns, event->state);
	else if (event->kind == REPLAY_SWITCH)
		account_switch(account, event->at_ns, event->state, event->group);
	else if (event->kind == REPLAY_FOLLOW)
		account_follow(account, event->state, event->group);
}

SEC("syscall")
int replay(void *ctx)
{
	struct replay_event *event;
	struct account *account;
	__u32 zero = 0;

	account = bpf_map_lookup_elem(&accounts, &zero);
	if (!account)
		return 1;
	for (__u32 i = 0; i < REPLAY_EVENTS; i++) {
		__u32 at = i;

		event = bpf_map_lookup_elem(&events, &at);
		/* Times are never 0: the list ends here. */
		if (!event || !event->at_ns)
			return 0;
		apply(account, event);
	}
	return 0;
}
