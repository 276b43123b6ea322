/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where a file system says nothing of what it writes: every change of an inode passes its times,
 * and writes are known by their system call or by the ring that asked for them.
 */
#ifndef REPLICATE_VAGUE_H
#define REPLICATE_VAGUE_H

#include "mapping.h"
#include "place.h"
#include "unseen.h"

#define RING_FSYNC 3
#define RING_OPENAT 18
#define RING_OPENAT2 28
#define RING_READV 1
#define RING_READ_FIXED 4
#define RING_READ 22
#define RING_MADVISE 25
#define O_DSYNC 010000
/* An `ioctl` whose argument is read by the kernel: of all others none changes a file. */
#define IOCTL_TAKES 0x40000000
/* It asks where on the disk a file is. */
#define IOCTL_FIEMAP 0xc020660b

static __always_inline int times(struct inode *inode)
{
	/* It is being read from the disk, or has only just been made: its directory is told. */
	if (!in_scope(inode) || !BPF_CORE_READ(inode, i_dentry.first))
		return 0;
	touch(inode, HOOK_TIME);
	return 0;
}

SEC("tp_btf/inode_set_ctime_to_ts")
int BPF_PROG(time_set, struct inode *inode)
{
	return times(inode);
}

SEC("tp_btf/ctime_ns_xchg")
int BPF_PROG(time_exchanged, struct inode *inode)
{
	return times(inode);
}

SEC("tp_btf/ctime_xchg_skip")
int BPF_PROG(time_kept, struct inode *inode)
{
	return times(inode);
}

SEC("tp_btf/xfs_file_buffered_write")
int BPF_PROG(buffered, struct kiocb *request, struct iov_iter *data)
{
	struct inode *inode = BPF_CORE_READ(request, ki_filp, f_inode);
	__u64 offset = BPF_CORE_READ(request, ki_pos);

	if (!in_scope(inode))
		return 0;
	/* Its bytes are told by themselves, and all is read where one was not. */
	if (functions && running())
		touch(inode, HOOK_BUFFERED);
	else
		touch_range(inode, HOOK_BUFFERED, offset, offset + BPF_CORE_READ(data, count));
	return 0;
}

struct io_cqe {
	s32 res;
} __attribute__((preserve_access_index));

struct io_kiocb___result {
	struct io_cqe cqe;
} __attribute__((preserve_access_index));

struct io_madvise {
	u64 addr;
	u64 len;
	u32 advice;
} __attribute__((preserve_access_index));

/* A ring was asked to do what `madvise` does, in the memory of who asked. */
static __always_inline void advised(struct io_kiocb *request)
{
	struct io_madvise *asked = (void *)request;
	__u64 length = 0;

	if (!bpf_core_type_exists(struct io_madvise)) {
		__sync_fetch_and_add(&forgotten, 1);
		return;
	}
	if (BPF_CORE_READ(asked, advice) != MADV_REMOVE)
		return;
	/* It has 32 bits on older kernels. */
	bpf_core_read(&length, bpf_core_field_size(asked->len), &asked->len);
	tell_removed(BPF_CORE_READ(asked, addr), length,
		     BPF_CORE_READ((struct io_kiocb___result *)request, cqe.res));
}

/* What a ring was asked for is done, by whomever. */
SEC("tp_btf/io_uring_complete")
int BPF_PROG(ring_done, void *ring, struct io_kiocb *request)
{
	struct file_key file;
	struct inode *inode;
	__u8 what;

	if (!request)
		return 0;
	what = BPF_CORE_READ(request, opcode);
	if (overlay && (what == RING_OPENAT || what == RING_OPENAT2))
		tell_copied(BPF_CORE_READ((struct io_kiocb___result *)request, cqe.res));
	if (what == RING_MADVISE) {
		advised(request);
		return 0;
	}
	inode = BPF_CORE_READ(request, file, f_inode);
	if (what == RING_READV || what == RING_READ_FIXED || what == RING_READ)
		return 0;
	if (!in_scope(inode))
		return 0;
	file = file_of(inode);
	if (what == RING_FSYNC)
		tell_sync(&file);
	else if (regular(inode))
		touch_range(inode, HOOK_RING, 0, END);
	return 0;
}

static __always_inline bool may_change(__u32 request)
{
	return request & IOCTL_TAKES && request != IOCTL_FIEMAP;
}

/* The file of the tree that a call may have changed or synced by a descriptor, whatever the file
 * system told of it; none of others, of which the machine has most. */
static __always_inline struct file *by_descriptor(struct pt_regs *regs, __u8 kind)
{
	struct file *file;

	if (!(kind & (CALL_SYNC | CALL_FIRST | CALL_THIRD)) ||
	    (regs->orig_ax == call_ioctl && !may_change(regs->si)))
		return NULL;
	file = file_at(kind & CALL_THIRD ? regs->dx : regs->di);
	return file && in_scope(BPF_CORE_READ(file, f_inode)) ? file : NULL;
}

static __always_inline void changes(struct operation *operation, struct file *file,
				    struct pt_regs *regs, long result)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct place_of_call place;
	struct file_key key;

	if (!regular(inode))
		return;
	if (operation) {
		place = place_of(regs, file, result);
		remember(operation, inode, FLAG_VAGUE | HOOK_CALL | place.flags, place.from,
			 place.to);
		return;
	}
	key = file_of(inode);
	tell(&key, EVENT_RANGE, HOOK_CALL, 0, END);
}

/* Whoever reads the file asks so whether stores to it are to be looked for. */
static __always_inline void tell_mapped(struct pt_regs *regs)
{
	struct inode *inode = inode_of(regs->di);
	struct file_key file;

	if (!in_scope(inode) || !regular(inode))
		return;
	file = file_of(inode);
	tell(&file, EVENT_MAPPED, HOOK_MAPPING, mapped(inode), 0);
}

/* Where the descriptor is in a request to `io_submit`. */
#define REQUEST_DESCRIPTOR 20
#define REQUESTS 1024

struct requests {
	__u64 at;
	__u64 seen;
};

static long next_request(__u32 i, void *context)
{
	struct requests *requests = context;
	struct inode *inode;
	__u32 descriptor;
	__u64 request;

	if (bpf_probe_read_user(&request, sizeof(request), (void *)(requests->at + i * 8)) ||
	    bpf_probe_read_user(&descriptor, sizeof(descriptor),
				(void *)(request + REQUEST_DESCRIPTOR)))
		return 1;
	requests->seen = i + 1;
	inode = inode_of(descriptor);
	if (in_scope(inode) && regular(inode))
		tell_at_once(inode, FLAG_VAGUE | HOOK_CALL, 0, END);
	return 0;
}

/* A call that is looked at for more than what it touched. */
static __always_inline void asked(struct pt_regs *regs, long count)
{
	struct requests requests = { .at = regs->dx };

	if (overlay && regs->orig_ax == call_sync_file_range)
		answer(regs, inode_of(regs->di));
	if (silent && !overlay && regs->orig_ax == call_sync_file_range)
		tell_mapped(regs);
	if (overlay && count >= 0 && kind_of(regs->orig_ax) & CALL_OPENS)
		tell_copied(count);
	/* Of which so many were taken. */
	if (regs->orig_ax != call_io_submit || count <= 0)
		return;
	bpf_loop(count < REQUESTS ? count : REQUESTS, next_request, &requests, 0);
	if (requests.seen < count)
		__sync_fetch_and_add(&forgotten, 1);
}

/* `file` is what a descriptor of the tree names. */
static __always_inline bool syncs(struct pt_regs *regs, __u8 kind, struct file *file)
{
	if (kind & CALL_SYNC_ALL)
		return kind & CALL_SYNC ? on_device(inode_of(regs->di)) : true;
	return file && (kind & CALL_SYNC || BPF_CORE_READ(file, f_flags) & O_DSYNC);
}

#endif
