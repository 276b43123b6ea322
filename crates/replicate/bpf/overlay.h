/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Overlays: programs use inodes of the overlay, and pages that they store to through memory are
 * those of a file in its upper directory. Which belongs to which is kept of files that are mapped.
 */
#ifndef REPLICATE_OVERLAY_H
#define REPLICATE_OVERLAY_H

#include "operation.h"
#include "page.h"

/* Lengths that nobody asks `sync_file_range` for, with no flags, so that the kernel does nothing.
 */
#define ASK 0x6c6f77726f6164
#define LEAVE 0x6c6f77726f6165
/* O_WRONLY and O_RDWR */
#define O_WRITES 3

/* The tree is on an overlay. */
const volatile bool overlay;

struct ovl_inode {
	struct dentry *__upperdentry;
	struct inode vfs_inode;
} __attribute__((preserve_access_index));

struct super_block___kind {
	unsigned long s_magic;
	int s_stack_depth;
} __attribute__((preserve_access_index));

/* What the kernel has of a file that userspace has open. */
struct answer {
	__u64 inode;
	/* The kind of file system that the upper directory is on. */
	__u64 magic;
	/* Whether processes may store to it through memory. */
	__u64 mapped;
	/* The number of its own in the upper directory; zero where it is only in a lower one. */
	__u64 upper;
};

_Static_assert(sizeof(struct answer) == 32, "capture::skel");

/* By the offset of the call that asked. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct answer);
} answers SEC(".maps");

/* Files of the upper directory that are mapped, and what they are in the overlay. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct file_key);
	__type(value, struct file_key);
} uppers SEC(".maps");

/* That of the upper directory, from the first question on. */
__u64 upper_device;
/* Files that are mapped and found no room. */
__u64 unwatched;

static __always_inline struct file *file_at(__u32 descriptor)
{
	struct task_struct___files *task = (void *)bpf_get_current_task_btf();
	struct fdtable *table = task->files->fdt;
	struct file *file = NULL;

	if (descriptor >= table->max_fds)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + descriptor);
	return file;
}

static __always_inline struct inode *inode_of(__u32 descriptor)
{
	struct file *file = file_at(descriptor);

	return file ? BPF_CORE_READ(file, f_inode) : NULL;
}

/* None where the file is the lower directory's. */
static __always_inline struct inode *upper_of(struct inode *inode)
{
	struct ovl_inode *whole_inode =
		(void *)((char *)inode - bpf_core_field_offset(struct ovl_inode, vfs_inode));

	return BPF_CORE_READ(whole_inode, __upperdentry, d_inode);
}

/* Stores to a file of the upper directory are told as ones to the overlay's. */
static __always_inline void watch(struct inode *upper, struct inode *inode)
{
	struct file_key below = file_of(upper), above = file_of(inode);

	if (bpf_map_update_elem(&uppers, &below, &above, BPF_ANY))
		__sync_fetch_and_add(&unwatched, 1);
}

/* Whether processes may store to the file through memory; on an overlay, what they store is told.
 */
static __always_inline bool stored_to(struct inode *inode)
{
	struct inode *upper;

	if (!overlay)
		return mapped(inode);
	upper = upper_of(inode);
	if (!upper || !mapped(upper))
		return false;
	watch(upper, inode);
	return true;
}

static __always_inline void unwatch(struct inode *upper)
{
	struct file_key below = file_of(upper);

	bpf_map_delete_elem(&uppers, &below);
}

/* A folio of any file becomes dirty. */
static __always_inline void dirtied_below(struct folio *folio, struct inode *upper)
{
	struct file_key below, *above, file;

	if (!upper || BPF_CORE_READ(upper, i_sb, s_dev) != *(volatile __u64 *)&upper_device)
		return;
	below = file_of(upper);
	above = bpf_map_lookup_elem(&uppers, &below);
	if (!above)
		return;
	file = *above;
	tell(&file, EVENT_RANGE, HOOK_FOLIO, (__u64)BPF_CORE_READ(folio, index) << PAGE_SHIFT,
	     pages_of(folio) << PAGE_SHIFT);
}

/* Userspace asks by a call with the file; it is the only one, so that nobody else takes a watch
 * away. */
static __always_inline void answer(struct pt_regs *regs, struct inode *inode)
{
	struct super_block *upper_file_system;
	struct answer answer = {};
	struct inode *upper;
	__u64 question = regs->si;

	if (regs->r10 || (regs->dx != ASK && regs->dx != LEAVE) || !on_device(inode))
		return;
	upper = upper_of(BPF_CORE_READ(inode, i_sb, s_root, d_inode));
	upper_file_system = upper ? BPF_CORE_READ(upper, i_sb) : NULL;
	if (upper_file_system) {
		upper_device = BPF_CORE_READ(upper_file_system, s_dev);
		answer.magic =
			BPF_CORE_READ((struct super_block___kind *)upper_file_system, s_magic);
	}
	answer.inode = BPF_CORE_READ(inode, i_ino);
	upper = upper_of(inode);
	answer.upper = upper ? BPF_CORE_READ(upper, i_ino) : 0;
	if (upper && (regs->dx == LEAVE || !mapped(upper)))
		unwatch(upper);
	/* Who maps it meanwhile may have been unwatched. */
	if (regs->dx == ASK)
		answer.mapped = stored_to(inode);
	bpf_map_update_elem(&answers, &question, &answer, BPF_ANY);
}

/* A file that was opened to write may be another than it was, and have one name instead of several.
 */
static __always_inline void tell_copied(long descriptor)
{
	struct file *file = file_at(descriptor);
	struct inode *inode, *upper;

	if (!file || !(BPF_CORE_READ(file, f_flags) & O_WRITES))
		return;
	inode = BPF_CORE_READ(file, f_inode);
	if (!on_device(inode))
		return;
	upper = upper_of(inode);
	if (upper && BPF_CORE_READ(upper, i_ino) != BPF_CORE_READ(inode, i_ino))
		tell_at_once(inode, FLAG_VAGUE | HOOK_CALL, ~0ULL, 0);
}

#endif
