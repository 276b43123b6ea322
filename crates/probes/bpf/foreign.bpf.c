// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Decides how long each process held each CPU; cheap enough to run in every trial. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "lowroad/license.h"

/* What runs on a CPU: tgid 0 is idle or the kernel's own. */
struct occupant {
	__u64 since_ns;
	__u32 tgid;
	__u32 zero;
	/* Time of nobody known: a switch was not seen, or the table was full. */
	__u64 unknown_ns;
};

/* Each CPU has an entry of its own, which only it changes. Not a per-CPU map: one of these is read
 * and emptied in one call by a library that knows how long its values are. */
struct place {
	__u32 tgid;
	__u32 cpu;
};

struct occupancy {
	__u64 ns;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct occupant);
} occupants SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	/* Set when loaded. */
	__uint(max_entries, 1);
	__type(key, struct place);
	__type(value, struct occupancy);
} occupancies SEC(".maps");

static __always_inline __u32 process_of(const struct task_struct *task)
{
	return task->flags & PF_KTHREAD ? 0 : task->tgid;
}

static __always_inline int add(const struct task_struct *task, __u32 tgid, __u64 ns)
{
	struct place place = { .tgid = tgid, .cpu = bpf_get_smp_processor_id() };
	struct occupancy *occupancy = bpf_map_lookup_elem(&occupancies, &place);
	struct occupancy first = { .ns = ns };

	if (occupancy) {
		occupancy->ns += ns;
		return 0;
	}
	bpf_probe_read_kernel(first.comm, sizeof(first.comm), task->group_leader->comm);
	return bpf_map_update_elem(&occupancies, &place, &first, BPF_NOEXIST);
}

/* Some kernels hide the switches of some tasks: who leaves is then not who was seen to come. */
static __always_inline void leave(struct occupant *occupant, const struct task_struct *task,
				  __u64 now)
{
	__u32 tgid = process_of(task);
	__u64 ns = now - occupant->since_ns;

	if (occupant->tgid != tgid || (tgid && add(task, tgid, ns)))
		occupant->unknown_ns += ns;
}

SEC("tp_btf/sched_switch")
int note_switch(__u64 *ctx)
{
	struct task_struct *previous = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	__u64 now = bpf_ktime_get_ns();
	struct occupant *occupant;
	__u32 zero = 0;

	occupant = bpf_map_lookup_elem(&occupants, &zero);
	if (!occupant)
		return 0;
	if (occupant->since_ns)
		leave(occupant, previous, now);
	occupant->since_ns = now;
	occupant->tgid = process_of(next);
	return 0;
}
