/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Writes: told with their bytes, or by their place. A place that is told is not told again until
 * userspace reads it.
 */
#ifndef REPLICATE_JOURNAL_H
#define REPLICATE_JOURNAL_H

#include "unseen.h"

/* Times are written to the disk later, and nothing is told of them. */
#define LAZY_TIME (1 << 25)

/* Bytes are read by userspace. */
const volatile bool journal;

/* 64 pages of a file. */
struct place {
	struct file_key file;
	__u64 place;
};

/* Those that are told, in one period. */
struct pages {
	__u64 period;
	__u64 told;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct place);
	__type(value, struct pages);
} places SEC(".maps");

/* Userspace begins another before it reads what it was told. */
__u64 period SEC(".data.period") = 1;

static __always_inline bool still_in_scope(struct operation *operation, struct inode *inode)
{
	bool inside;

	if (whole)
		return true;
	if (operation && operation->known.inode == inode->i_ino &&
	    operation->known.generation == inode->i_generation &&
	    operation->belonging.border == border())
		return operation->belonging.inside;
	if (!operation)
		return in_scope(inode);
	operation->belonging.border = border();
	inside = in_scope(inode);
	operation->known.inode = inode->i_ino;
	operation->known.generation = inode->i_generation;
	operation->belonging.inside = inside;
	return inside;
}

/* Whether a write changes bytes, and no size; where it changes times, that is told by itself. */
static __always_inline bool only_bytes(struct inode *inode, __u64 offset, __u32 length,
				       __u32 copied)
{
	return copied == length && offset + length <= inode->i_size &&
	       !(inode->i_sb->s_flags & LAZY_TIME);
}

/* That the pages are written, unless it was told in this period. */
static __always_inline void tell_place(struct inode *inode, __u64 offset, __u32 length)
{
	__u64 first = offset >> PAGE_SHIFT, last = (offset + length - 1) >> PAGE_SHIFT;
	__u64 now = *(volatile __u64 *)&period, bits = ~0ULL;
	struct place place = { .place = first >> 6 };
	struct pages *pages, told = {};
	struct folio *folio;

	place.file.inode = inode->i_ino;
	place.file.generation = inode->i_generation;
	/* Of what is mapped, stores to the folio tell nothing: it is dirty now, as a whole. */
	if (mapped(inode)) {
		tell(&place.file, EVENT_RANGE, HOOK_WRITE, offset, length);
		folio = folio_of(BPF_CORE_READ(inode, i_mapping), first);
		if (folio)
			tell_folio(&place.file, folio);
		return;
	}
	if (first >> 6 != last >> 6) {
		tell(&place.file, EVENT_WRITTEN, HOOK_WRITE, offset, length);
		return;
	}
	bits = (bits >> (63 - (last - first))) << (first & 63);
	pages = bpf_map_lookup_elem(&places, &place);
	if (pages && pages->period == now) {
		if ((pages->told & bits) == bits)
			return;
		told.told = pages->told;
	}
	tell(&place.file, EVENT_WRITTEN, HOOK_WRITE, first << PAGE_SHIFT,
	     (last - first + 1) << PAGE_SHIFT);
	told.period = now;
	told.told |= bits;
	/* Whoever writes to the file waits for its lock: nobody else changes it meanwhile. */
	if (pages)
		*pages = told;
	else
		bpf_map_update_elem(&places, &place, &told, BPF_ANY);
}

static __always_inline int written(struct inode *inode, __s64 offset, __u32 length, __u32 copied)
{
	struct operation *operation;

	if (inode->i_sb->s_dev != root_device || !regular(inode))
		return 0;
	operation = running();
	if (!still_in_scope(operation, inode))
		return 0;
	if (operation && only_bytes(inode, offset, length, copied))
		begin(operation);
	else
		touch(inode, HOOK_WRITE);
	if (journal)
		tell_place(inode, offset, length);
	else
		tell_data(inode, offset, length, copied);
	if (operation) {
		operation->wrote = inode;
		operation->first = offset >> PAGE_SHIFT;
		operation->last = (offset + length - 1) >> PAGE_SHIFT;
	}
	return 0;
}

#endif
