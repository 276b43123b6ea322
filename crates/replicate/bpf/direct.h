/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Writes past the page cache: their range is told when they begin, and again when they have ended.
 */
#ifndef REPLICATE_DIRECT_H
#define REPLICATE_DIRECT_H

#include "operation.h"

/* IOCB_WRITE */
#define REQUEST_WRITES (1 << 6)

struct direct {
	struct file_key file;
	__u64 from;
	__u64 to;
};

/* Those under way, by their request; while a function ends one, by the task. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct direct);
} directs SEC(".maps");

static __always_inline int direct_begins(struct kiocb *request, struct iov_iter *data)
{
	struct inode *inode = BPF_CORE_READ(request, ki_filp, f_inode);
	__u64 offset = BPF_CORE_READ(request, ki_pos), key = (__u64)request;
	struct direct direct = { .from = offset, .to = offset + BPF_CORE_READ(data, count) };

	if (!BPF_CORE_READ(data, data_source) || !in_scope(inode))
		return 0;
	direct.file = file_of(inode);
	bpf_map_update_elem(&directs, &key, &direct, BPF_ANY);
	touch_range(inode, HOOK_DIRECT, direct.from, direct.to);
	return 0;
}

/* Of which nobody saw the beginning: it may have changed anything, if it is a write. */
static __always_inline bool began_unseen(struct kiocb *request, struct direct *direct)
{
	struct inode *inode = BPF_CORE_READ(request, ki_filp, f_inode);

	if (!(BPF_CORE_READ(request, ki_flags) & REQUEST_WRITES) || !in_scope(inode))
		return false;
	direct->file = file_of(inode);
	direct->from = 0;
	direct->to = END;
	return true;
}

/* The call may have ended long before. */
static __always_inline int direct_ends(__u64 key)
{
	struct direct *direct = bpf_map_lookup_elem(&directs, &key);

	if (!direct)
		return 0;
	tell(&direct->file, EVENT_RANGE, HOOK_DIRECT, direct->from, direct->to - direct->from);
	bpf_map_delete_elem(&directs, &key);
	return 0;
}

SEC("tp_btf/iomap_dio_rw_begin")
int BPF_PROG(direct_write, struct kiocb *request, struct iov_iter *data)
{
	return direct_begins(request, data);
}

SEC("tp_btf/iomap_dio_complete")
int BPF_PROG(direct_written, struct kiocb *request)
{
	struct direct direct;
	__u64 key = (__u64)request;

	if (!bpf_map_lookup_elem(&directs, &key) && began_unseen(request, &direct))
		bpf_map_update_elem(&directs, &key, &direct, BPF_ANY);
	return direct_ends(key);
}

/* Kernels that have no such events; of a function with so many arguments others tell nothing. */
SEC("kprobe/__iomap_dio_rw")
int BPF_KPROBE(direct_write_called, struct kiocb *request, struct iov_iter *data)
{
	return direct_begins(request, data);
}

SEC("fentry/iomap_dio_complete")
int BPF_PROG(direct_write_ends, struct iomap_dio *write)
{
	__u64 key = (__u64)BPF_CORE_READ(write, iocb), task = bpf_get_current_task();
	struct direct *begun = bpf_map_lookup_elem(&directs, &key), direct;

	if (begun)
		direct = *begun;
	else if (!began_unseen(BPF_CORE_READ(write, iocb), &direct))
		return 0;
	bpf_map_update_elem(&directs, &task, &direct, BPF_ANY);
	bpf_map_delete_elem(&directs, &key);
	return 0;
}

/* What it was called with is freed by now. */
SEC("fexit/iomap_dio_complete")
int BPF_PROG(direct_write_ended)
{
	return direct_ends(bpf_get_current_task());
}

#endif
