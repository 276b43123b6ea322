/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Changes of which the bytes are not seen: userspace is told where they are. */
#ifndef REPLICATE_UNSEEN_H
#define REPLICATE_UNSEEN_H

#include "overlay.h"

#define TYPE_MASK 0170000
#define TYPE_REGULAR 0100000
#define MAP_TYPE 0x0f
#define MAP_PRIVATE 0x02
#define MAP_ANONYMOUS 0x20

static __always_inline bool regular(struct inode *inode)
{
	return (BPF_CORE_READ(inode, i_mode) & TYPE_MASK) == TYPE_REGULAR;
}

/* A store through memory, or the kernel's own zeros. */
SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(dirtied, struct folio *folio, struct address_space *mapping)
{
	struct inode *inode = mapping ? BPF_CORE_READ(mapping, host) : NULL;
	struct operation *operation;
	__u64 first, pages;

	if (overlay) {
		dirtied_below(folio, inode);
		return 0;
	}
	if (!in_scope(inode) || !regular(inode))
		return 0;
	first = BPF_CORE_READ(folio, index);
	pages = pages_of(folio);
	operation = running();
	if (operation && operation->wrote == inode && first <= operation->last &&
	    first + pages > operation->first)
		return 0;
	touch_range(inode, HOOK_FOLIO, first << PAGE_SHIFT, (first + pages) << PAGE_SHIFT);
	return 0;
}

SEC("tp_btf/ext4_punch_hole")
int BPF_PROG(punched, struct inode *inode, s64 offset, s64 length)
{
	if (in_scope(inode))
		touch_range(inode, HOOK_ALLOCATE, offset, offset + length);
	return 0;
}

SEC("tp_btf/ext4_zero_range")
int BPF_PROG(zeroed, struct inode *inode, s64 offset, s64 length)
{
	if (in_scope(inode))
		touch_range(inode, HOOK_ALLOCATE, offset, offset + length);
	return 0;
}

SEC("tp_btf/ext4_collapse_range")
int BPF_PROG(collapsed, struct inode *inode, s64 offset)
{
	if (in_scope(inode))
		touch_range(inode, HOOK_ALLOCATE, offset, END);
	return 0;
}

SEC("tp_btf/ext4_insert_range")
int BPF_PROG(inserted, struct inode *inode, s64 offset)
{
	if (in_scope(inode))
		touch_range(inode, HOOK_ALLOCATE, offset, END);
	return 0;
}

/* A file gets stores of which nothing is told where its pages are dirty already. */
static __always_inline void tell_mapping(__u32 descriptor, __u32 flags)
{
	struct file_key file;
	struct inode *inode;

	if ((flags & MAP_TYPE) == MAP_PRIVATE || flags & MAP_ANONYMOUS)
		return;
	inode = inode_of(descriptor);
	if (!in_scope(inode) || !regular(inode) || !stored_to(inode))
		return;
	file = file_of(inode);
	tell(&file, EVENT_RANGE, HOOK_MAPPING, 0, END);
	if (silent && !overlay)
		tell(&file, EVENT_MAPPED, HOOK_MAPPING, 1, 0);
}

#endif
