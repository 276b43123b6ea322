/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * btrfs marks the blocks of each write before it makes their pages dirty, those of pages that are
 * dirty already as well: all that a write has changed lies in them.
 */
#ifndef REPLICATE_EXTENT_H
#define REPLICATE_EXTENT_H

#include "unseen.h"

struct extent_io_tree {
	__u8 owner;
} __attribute__((preserve_access_index));

struct btrfs_inode___tree {
	struct extent_io_tree io_tree;
} __attribute__((preserve_access_index));

static __always_inline const void *extents_of(struct inode *inode)
{
	char *whole_inode = (char *)inode - bpf_core_field_offset(struct btrfs_inode, vfs_inode);

	return whole_inode + bpf_core_field_offset(struct btrfs_inode___tree, io_tree);
}

SEC("tp_btf/btrfs_set_extent_bit")
int BPF_PROG(extent_marked, const struct extent_io_tree *tree, __u64 start, __u64 length)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	struct inode *inode;
	__u8 kind;

	if (functions || !in_call(task))
		return 0;
	kind = kind_of(regs->orig_ax);
	if (!(kind & (CALL_FIRST | CALL_THIRD)) || kind & CALL_WHOLE)
		return 0;
	inode = inode_of(kind & CALL_THIRD ? regs->dx : regs->di);
	if (!in_scope(inode) || !regular(inode) || extents_of(inode) != (const void *)tree)
		return 0;
	touch_range(inode, HOOK_EXTENT, start, start + length);
	return 0;
}

#endif
