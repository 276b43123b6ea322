// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Tells what happens to the files of a tree, at the places where the kernel does it. */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "lowroad/export.h"
#include "lowroad/license.h"
#include "lowroad/vfs.h"
#include "direct.h"
#include "end.h"
#include "exchange.h"
#include "extent.h"
#include "function.h"
#include "journal.h"
#include "made.h"
#include "mapping.h"
#include "times.h"
#include "vague.h"

EXPORT_STRUCT(event);
EXPORT_STRUCT(state);
EXPORT_STRUCT(file_key);
EXPORT_STRUCT(answer);

#define REASON_EXTENDED 10

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
	touch(inode, HOOK_TRUNCATE);
	tell(&file, EVENT_SIZE, HOOK_TRUNCATE, BPF_CORE_READ(inode, i_size), 0);
	operation = mapped(inode) ? NULL : running();
	if (operation) {
		/* It makes zeros of what it cuts off in a page that stays. */
		operation->wrote = inode;
		operation->first = 0;
		operation->last = END;
	}
	return 0;
}

SEC("tp_btf/ext4_mark_inode_dirty")
int BPF_PROG(marked, struct inode *inode)
{
	if (in_scope(inode)) {
		touch(inode, HOOK_INODE);
		tell_allocated(inode);
	}
	return 0;
}

SEC("tp_btf/ext4_journal_start_inode")
int BPF_PROG(journal_starts, struct inode *inode, int blocks, int reserved, int revoked, int reason)
{
	if (reason == REASON_EXTENDED && in_scope(inode))
		touch(inode, FLAG_EXTENDED | HOOK_INODE);
	return 0;
}

/* On kernels whose journal does not say what for it starts. */
SEC("kprobe/ext4_xattr_set_handle")
int BPF_KPROBE(attribute_set, void *handle, struct inode *inode)
{
	if (in_scope(inode))
		touch(inode, FLAG_EXTENDED | HOOK_INODE);
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
	struct file_key root = { .inode = root_inode };
	/* A 64-bit call that made a 32-bit program of the task ends as one of that. */
	bool other = in_other_call(bpf_get_current_task_btf()), writes;
	__u8 kind = other ? 0 : kind_of(regs->orig_ax);
	struct operation *operation = NULL;
	struct file *file = NULL;

	if (vague)
		removes(regs, result, other);
	if (vague && !other) {
		asked(regs, result);
		if (result >= 0 || (kind & CALL_WHOLE && may_have_begun(result)))
			file = by_descriptor(regs, kind);
	}
	writes = file && kind & (CALL_FIRST | CALL_THIRD);
	/* Of all calls of the machine few change a file of the tree. */
	if (writes || any_begun())
		operation = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), NULL,
						 writes ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (result > 0)
		maps(regs, result, other);
	if (writes)
		changes(operation, file, regs, result);
	if (!other && regs->orig_ax == call_ioctl && result >= 0)
		tell_exchanged(regs);
	if (operation && operation->begun) {
		end(operation, other ? CALLS : regs->orig_ax, result);
		/* Programs put a file in another's place once it is whole. */
		if (result == 0 && kind & CALL_MOVES)
			tell_sync(&root);
	}
	if (result >= 0 && kind && syncs(regs, kind, file))
		tell_sync(&root);
	return 0;
}
