/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Changes of which the bytes are not seen: userspace is told where they are. */
#ifndef REPLICATE_UNSEEN_H
#define REPLICATE_UNSEEN_H

#include "overlay.h"

#define TYPE_MASK 0170000
#define TYPE_REGULAR 0100000

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
	/* What its own write makes dirty is told already; of what is mapped by now, stores may
	 * follow. */
	if (operation && operation->wrote == inode && first <= operation->last &&
	    first + pages > operation->first && !mapped(inode))
		return 0;
	touch_range(inode, HOOK_FOLIO, first << PAGE_SHIFT, (first + pages) << PAGE_SHIFT);
	return 0;
}

/* What workers allocate and free. */
struct range {
	__u64 from;
	__u64 to;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct file_key);
	__type(value, struct range);
} allocated SEC(".maps");

/* Some kernels tell it before they take the file's lock: it is told again with each mark of the
 * file that a worker makes, of which the last comes when all is done. */
static __always_inline void allocates(struct inode *inode, __u64 from, __u64 to)
{
	struct range range = { .from = from, .to = to };
	struct file_key file;

	if (!in_scope(inode))
		return;
	touch_range(inode, HOOK_ALLOCATE, from, to);
	if (in_call(bpf_get_current_task_btf()))
		return;
	file = file_of(inode);
	bpf_map_update_elem(&allocated, &file, &range, BPF_ANY);
}

static __always_inline void tell_allocated(struct inode *inode)
{
	struct file_key file;
	struct range *range;

	if (in_call(bpf_get_current_task_btf()))
		return;
	file = file_of(inode);
	range = bpf_map_lookup_elem(&allocated, &file);
	if (range)
		tell(&file, EVENT_RANGE, HOOK_ALLOCATE, range->from, range->to - range->from);
}

SEC("tp_btf/ext4_punch_hole")
int BPF_PROG(punched, struct inode *inode, s64 offset, s64 length)
{
	allocates(inode, offset, offset + length);
	return 0;
}

SEC("tp_btf/ext4_zero_range")
int BPF_PROG(zeroed, struct inode *inode, s64 offset, s64 length)
{
	allocates(inode, offset, offset + length);
	return 0;
}

SEC("tp_btf/ext4_collapse_range")
int BPF_PROG(collapsed, struct inode *inode, s64 offset)
{
	allocates(inode, offset, END);
	return 0;
}

SEC("tp_btf/ext4_insert_range")
int BPF_PROG(inserted, struct inode *inode, s64 offset)
{
	allocates(inode, offset, END);
	return 0;
}

#endif
