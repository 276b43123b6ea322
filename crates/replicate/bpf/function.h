/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Functions of file systems that have no events for what they write: when they are called, bytes
 * are in the page cache, and their folio and their file are locked. The call that writes shows when
 * it ends whether all were told.
 */
#ifndef REPLICATE_FUNCTION_H
#define REPLICATE_FUNCTION_H

#include "unseen.h"

/* Pages that one call puts into a file. */
#define PAGES 4096

static __noinline int count(struct operation *operation, struct inode *inode, __u64 bytes)
{
	int i;

	if (!operation)
		return 0;
	for (i = 0; i < TOUCHED; i++) {
		if (operation->touched[i].inode != inode)
			continue;
		operation->touched[i].told += bytes;
		return 1;
	}
	return 0;
}

/* The operation that has written to the file, if it is one that will end, and of the tree. */
static __always_inline struct operation *writing(struct inode *inode, __u64 offset, __u64 copied)
{
	struct operation *operation;

	if (!copied || !in_scope(inode) || !regular(inode))
		return NULL;
	operation = running();
	if (!operation) {
		/* Of who works for others no end is seen that could tell of it. */
		touch_range(inode, HOOK_WRITE, offset, offset + copied);
		return NULL;
	}
	touch(inode, HOOK_WRITE);
	if (!count(operation, inode, copied))
		return NULL;
	operation->wrote = inode;
	operation->first = offset >> PAGE_SHIFT;
	operation->last = (offset + copied - 1) >> PAGE_SHIFT;
	return operation;
}

/* Within one folio. */
static __always_inline int put(struct inode *inode, __u64 offset, __u32 length, __u32 copied)
{
	if (writing(inode, offset, copied))
		tell_data(inode, offset, length, copied);
	return 0;
}

struct pages_put {
	struct inode *inode;
	__u64 offset;
	__u64 end;
};

static long next_page(__u32 i, void *context)
{
	struct pages_put *put = context;
	__u64 end = ((put->offset >> PAGE_SHIFT) + 1) << PAGE_SHIFT;
	__u32 length;

	if (put->offset >= put->end)
		return 1;
	length = (end < put->end ? end : put->end) - put->offset;
	tell_data(put->inode, put->offset, length, length);
	put->offset += length;
	return 0;
}

/* In as many folios as there are. */
static __always_inline int put_pages(struct inode *inode, __u64 offset, __u64 copied)
{
	struct pages_put put = { .inode = inode, .offset = offset, .end = offset + copied };
	struct file_key file;

	if (!writing(inode, offset, copied))
		return 0;
	bpf_loop(PAGES, next_page, &put, 0);
	if (put.offset < put.end) {
		file = file_of(inode);
		tell(&file, EVENT_RANGE, HOOK_WRITE, put.offset, put.end - put.offset);
	}
	return 0;
}

/* Of all arguments these have kept their places in all kernels. */
SEC("kprobe/shmem_write_end")
int BPF_KPROBE(memory_write, void *who, struct address_space *mapping, s64 offset, __u32 length,
	       __u32 copied)
{
	return put(BPF_CORE_READ(mapping, host), offset, length, copied);
}

/* Whether it knows by itself at which offset it is, as since 6.16. */
const volatile bool at_offset;

SEC("kprobe/iomap_write_end")
int BPF_KPROBE(mapped_write, struct iomap_iter *at, __u64 first, __u64 second, __u64 third)
{
	struct inode *inode = BPF_CORE_READ(at, inode);

	if (at_offset)
		return put(inode, BPF_CORE_READ(at, pos), first, second);
	return put(inode, first, second, third);
}

static __always_inline struct inode *inside(struct btrfs_inode *inode)
{
	return (void *)((char *)inode + bpf_core_field_offset(struct btrfs_inode, vfs_inode));
}

SEC("kprobe/btrfs_dirty_pages")
int BPF_KPROBE(pages_write, struct btrfs_inode *inode, void *pages, size_t many, s64 offset,
	       size_t copied)
{
	return put_pages(inside(inode), offset, copied);
}

/* As `btrfs_dirty_pages`, since 6.14. */
SEC("kprobe/btrfs_dirty_folio")
int BPF_KPROBE(folio_write, struct btrfs_inode *inode, void *folio, s64 offset, size_t copied)
{
	return put_pages(inside(inode), offset, copied);
}

#endif
