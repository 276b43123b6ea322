// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Tells what happens to the files of a tree on ext4, at the places where the kernel does it. */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "lowroad/export.h"
#include "lowroad/license.h"
#include "lowroad/vfs.h"
#include "journal.h"
#include "unseen.h"

EXPORT_STRUCT(event);
EXPORT_STRUCT(state);
EXPORT_STRUCT(file_key);

#define REASON_EXTENDED 10

static __always_inline int written(struct inode *inode, __s64 offset, __u32 length, __u32 copied)
{
	struct operation *operation;

	if (inode->i_sb->s_dev != root_device || (inode->i_mode & TYPE_MASK) != TYPE_REGULAR)
		return 0;
	operation = running();
	if (!still_in_scope(operation, inode))
		return 0;
	if (operation && only_bytes(inode, offset, length, copied))
		begin(operation);
	else
		touch(inode, 0);
	if (journal)
		tell_place(inode, offset, length);
	else
		tell_data(inode, offset, length, copied);
	if (operation) {
		operation->wrote = inode;
		operation->first = offset >> PAGE_SHIFT;
		operation->last = (offset + length) >> PAGE_SHIFT;
	}
	return 0;
}

SEC("tp_btf/ext4_da_write_end")
int BPF_PROG(delayed_write, struct inode *inode, s64 offset, __u32 length, __u32 copied)
{
	return written(inode, offset, length, copied);
}

SEC("tp_btf/ext4_write_end")
int BPF_PROG(plain_write, struct inode *inode, s64 offset, __u32 length, __u32 copied)
{
	return written(inode, offset, length, copied);
}

SEC("tp_btf/ext4_journalled_write_end")
int BPF_PROG(journalled_write, struct inode *inode, s64 offset, __u32 length, __u32 copied)
{
	return written(inode, offset, length, copied);
}

SEC("tp_btf/ext4_truncate_enter")
int BPF_PROG(truncated, struct inode *inode)
{
	struct operation *operation;
	struct file_key file;

	if (!in_scope(inode) || !regular(inode) || BPF_CORE_READ(inode, i_count.counter) == 0)
		return 0;
	file = file_of(inode);
	touch(inode, 0);
	tell(&file, EVENT_SIZE, 0, BPF_CORE_READ(inode, i_size), 0);
	operation = mapped(inode) ? NULL : running();
	if (operation) {
		/* It makes zeros of what it cuts off in a page that stays. */
		operation->wrote = inode;
		operation->first = 0;
		operation->last = END;
	}
	return 0;
}

SEC("tp_btf/ext4_allocate_inode")
int BPF_PROG(created, struct inode *inode, struct inode *directory, int mode)
{
	struct file_key file;
	struct state *state;
	__u64 number;

	if (!in_scope(directory))
		return 0;
	file = file_of(inode);
	touch(inode, 0);
	number = take_number();
	state = bpf_ringbuf_reserve(&ring, sizeof(*state), 0);
	if (!state) {
		struct file_key parent = file_of(directory);

		lose_file(&parent);
		lose(&file);
		return 0;
	}
	head(&state->event, number, &file, EVENT_NEW);
	empty(state);
	put_inode(state, inode);
	state->parent = BPF_CORE_READ(directory, i_ino);
	state->parent_generation = BPF_CORE_READ(directory, i_generation);
	bpf_ringbuf_submit(state, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/ext4_mark_inode_dirty")
int BPF_PROG(marked, struct inode *inode)
{
	if (in_scope(inode))
		touch(inode, 0);
	return 0;
}

SEC("tp_btf/ext4_journal_start_inode")
int BPF_PROG(journal_starts, struct inode *inode, int blocks, int reserved, int revoked, int reason)
{
	if (reason == REASON_EXTENDED && in_scope(inode))
		touch(inode, FLAG_EXTENDED);
	return 0;
}

SEC("tp_btf/ext4_unlink_exit")
int BPF_PROG(unlinked, struct dentry *dentry, int result)
{
	struct inode *inode = BPF_CORE_READ(dentry, d_inode);
	struct file_key file;
	struct state *state;
	__u64 number;

	if (result || !in_scope(inode))
		return 0;
	file = file_of(inode);
	number = take_number();
	state = bpf_ringbuf_reserve(&ring, sizeof(*state), 0);
	if (!state) {
		lose_name(dentry);
		lose(&file);
		return 0;
	}
	head(&state->event, number, &file, EVENT_UNLINK);
	empty(state);
	put_inode(state, inode);
	put_name(state, dentry);
	bpf_ringbuf_submit(state, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/ext4_evict_inode")
int BPF_PROG(evicted, struct inode *inode)
{
	struct file_key file;

	if (BPF_CORE_READ(inode, i_nlink) || !in_scope(inode))
		return 0;
	file = file_of(inode);
	tell(&file, EVENT_GONE, 0, 0, 0);
	return 0;
}

SEC("tp_btf/ext4_sync_file_exit")
int BPF_PROG(synced, struct inode *inode, int result)
{
	struct file_key file;

	if (result || !in_scope(inode))
		return 0;
	file = file_of(inode);
	tell_sync(&file);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call_ends, struct pt_regs *regs, long result)
{
	struct operation *operation;

	if (regs->orig_ax == CALL_MMAP && result > 0)
		tell_mapping(regs);
	/* Of all calls of the machine few change a file of the tree. */
	if (!*(volatile __u64 *)&operations)
		return 0;
	operation = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), NULL, 0);
	if (operation && operation->begun)
		end(operation, regs->orig_ax);
	return 0;
}
