/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Files that are mapped: of stores to pages that are dirty already nothing is told. */
#ifndef REPLICATE_MAPPING_H
#define REPLICATE_MAPPING_H

#include "unseen.h"

#define MAP_TYPE 0x0f
#define MAP_PRIVATE 0x02
#define MAP_ANONYMOUS 0x20
#define VM_MAYSHARE 0x80
#define MADV_REMOVE 9
/* Of a file each, in one call. */
#define AREAS 8
#define EBUSY 16
/* Of looking for what is mapped, while another thread changes it for some microseconds. */
#define TRIES 256
#define OVERLAY_MAGIC 0x794c7630
/* Overlays above one another. */
#define STACKED 2

/* What is mapped. */
struct area {
	struct inode *inode;
	__u64 flags;
	__u64 end;
};

static long found_area(struct task_struct *task, struct vm_area_struct *found, struct area *area)
{
	area->inode = BPF_CORE_READ(found, vm_file, f_inode);
	area->flags = BPF_CORE_READ(found, vm_flags);
	area->end = BPF_CORE_READ(found, vm_end);
	return 0;
}

struct wanted {
	struct area area;
	__u64 address;
	long missing;
};

static long look_for_area(__u32 i, void *context)
{
	struct wanted *wanted = context;
	struct task_struct *task = bpf_get_current_task_btf();

	wanted->missing = bpf_find_vma(task, wanted->address, found_area, &wanted->area, 0);
	return wanted->missing != -EBUSY;
}

/* What the task has at an address; false where it has nothing, or another of its threads keeps
 * changing what it has. */
static __always_inline bool find_area(__u64 address, struct area *area)
{
	struct wanted wanted = { .address = address, .missing = -EBUSY };

	bpf_loop(TRIES, look_for_area, &wanted, 0);
	*area = wanted.area;
	return !wanted.missing;
}

/* A file gets stores of which nothing is told where its pages are dirty already. */
static __always_inline void tell_mapped_file(struct inode *inode)
{
	struct file_key file;

	if (!in_scope(inode) || !regular(inode) || !stored_to(inode))
		return;
	file = file_of(inode);
	tell(&file, EVENT_RANGE, HOOK_MAPPING, 0, END);
	if (silent && !overlay)
		tell(&file, EVENT_MAPPED, HOOK_MAPPING, 1, 0);
}

/* Apart, so that nothing of it is done before it is known that it can be. */
static __noinline struct inode *layer_of(struct inode *inode)
{
	return upper_of(inode);
}

/*
 * The inode whose pages are mapped by a file's descriptor. Where nobody can tell, because it is
 * closed by now, or of a file system above others that is no overlay or was not there yet when this
 * was loaded, any file may be it.
 */
static __always_inline struct inode *mapped_by(__u32 descriptor)
{
	struct inode *inode = inode_of(descriptor);
	bool known = inode;
	int i;

	for (i = 0; i < STACKED && inode; i++) {
		struct super_block___kind *on = (void *)BPF_CORE_READ(inode, i_sb);

		if (!BPF_CORE_READ(on, s_stack_depth))
			break;
		known = BPF_CORE_READ(on, s_magic) == OVERLAY_MAGIC &&
			bpf_core_type_exists(struct ovl_inode);
		if (!known)
			break;
		inode = layer_of(inode);
	}
	if (known)
		return inode;
	__sync_fetch_and_add(&forgotten, 1);
	return NULL;
}

/* Not static, as what follows: the verifier looks at it once. */
__noinline int tell_mapping(__u64 address, __u32 descriptor, __u32 flags)
{
	struct area area = {};

	if ((flags & MAP_TYPE) == MAP_PRIVATE || flags & MAP_ANONYMOUS)
		return 0;
	/* A descriptor of an overlay's file maps one of its upper directory. */
	if (overlay)
		area.inode = inode_of(descriptor);
	else if (!find_area(address, &area))
		area.inode = mapped_by(descriptor);
	tell_mapped_file(area.inode);
	return 0;
}

/* Of a call whose arguments lie in memory. */
__noinline int tell_mapping_at(__u64 address)
{
	struct area area = {};

	if (!find_area(address, &area))
		__sync_fetch_and_add(&forgotten, 1);
	else if (area.inode && area.flags & VM_MAYSHARE)
		tell_mapped_file(area.inode);
	return 0;
}

/* Of a file of the upper directory, the one of the overlay; false where that is not known. */
static __always_inline bool seen_above(struct inode *upper, struct file_key *file)
{
	struct file_key below = file_of(upper), *above;

	above = bpf_map_lookup_elem(&uppers, &below);
	if (above)
		*file = *above;
	return above;
}

/* Not static, as what follows: the verifier looks at it once, and not for each way to it. */
__noinline int tell_removed_of(__u64 address_of_inode)
{
	struct inode *inode = (void *)address_of_inode;
	struct file_key file = {};

	if (!regular(inode))
		return 0;
	if (!overlay) {
		if (!in_scope(inode))
			return 0;
		file = file_of(inode);
	} else if (!seen_above(inode, &file)) {
		return 0;
	}
	tell(&file, EVENT_RANGE, HOOK_CALL, 0, END);
	return 0;
}

/*
 * Pages of files were taken away by where they are mapped: some file systems say nothing of it, nor
 * is there a descriptor. Of memory that is no file's the kernel refuses it, and goes no further.
 */
__noinline int tell_removed(__u64 address, __u64 length, __s64 result)
{
	__u64 end = address + length;
	int i;

	for (i = 0; i < AREAS; i++) {
		struct area area = {};

		if (!find_area(address, &area)) {
			/* Any file may be it, if anything was done. */
			if (i > 0 || !result)
				__sync_fetch_and_add(&forgotten, 1);
			return 0;
		}
		if (!area.inode)
			return 0;
		tell_removed_of((__u64)area.inode);
		if (area.end >= end)
			return 0;
		address = area.end;
	}
	__sync_fetch_and_add(&forgotten, 1);
	return 0;
}

static __always_inline void removes(struct pt_regs *regs, long result, bool other)
{
	if (!other && regs->orig_ax == call_madvise && regs->dx == MADV_REMOVE)
		tell_removed(regs->di, regs->si, result);
	if (other && regs->orig_ax == OTHER_MADVISE && (__u32)regs->dx == MADV_REMOVE)
		tell_removed((__u32)regs->bx, (__u32)regs->cx, result);
}

/* A call may have mapped something at the address that it has returned. */
static __always_inline void maps(struct pt_regs *regs, __u64 address, bool other)
{
	if (!other && (regs->orig_ax & ~SHORT_POINTERS) == call_mmap)
		tell_mapping(address, regs->r8, regs->r10);
	if (other && regs->orig_ax == OTHER_MMAP)
		tell_mapping(address, regs->di, regs->si);
	if (other && regs->orig_ax == OTHER_OLD_MMAP)
		tell_mapping_at(address);
}

#endif
