/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Copies what a write has put into the page cache, while the writer holds the folio. */
#ifndef REPLICATE_PAGE_H
#define REPLICATE_PAGE_H

#include "event.h"

#define PAGE_SHIFT 12
/* The tree of a file that is as long as can be is not deeper. */
#define LEVELS 11
#define LARGEST (32 << 10)
/* Pieces of a folio: none is longer than 64 MiB. */
#define PIECES 2048

/* An entry of a tree of folios that points to a node of it. */
static __always_inline bool is_node(__u64 entry)
{
	return (entry & 3) == 2 && entry > 4096;
}

static __always_inline __u64 slot_of(struct xa_node *node, __u64 slot)
{
	__u64 entry = 0;

	bpf_probe_read_kernel(&entry, sizeof(entry),
			      (char *)node + bpf_core_field_offset(struct xa_node, slots) +
				      (slot & 63) * sizeof(entry));
	return entry;
}

static __noinline struct folio *folio_of(struct address_space *mapping, __u64 index)
{
	__u64 entry = (__u64)BPF_CORE_READ(mapping, i_pages.xa_head);
	int i;

	for (i = 0; i < LEVELS && is_node(entry); i++) {
		struct xa_node *node = (void *)(entry - 2);

		entry = slot_of(node, index >> BPF_CORE_READ(node, shift));
		/* Another slot of the same folio. */
		if ((entry & 3) == 2 && entry < 4096)
			entry = slot_of(node, entry >> 2);
	}
	return entry & 3 ? NULL : (void *)entry;
}

/* How many pages the folio has. */
static __always_inline __u64 pages_of(struct folio *folio)
{
	struct folio___order *before = (void *)folio;
	__u64 flags = 0;

	bpf_probe_read_kernel(&flags, sizeof(flags), folio);
	if (!(flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
		return 1;
	if (bpf_core_field_exists(folio->_flags_1))
		return 1ULL << (BPF_CORE_READ(folio, _flags_1) & 31);
	return 1ULL << (BPF_CORE_READ(before, _folio_order) & 31);
}

/* Whether a process may store to the file through memory. */
static __always_inline bool mapped(struct inode *inode)
{
	return BPF_CORE_READ(inode, i_mapping, i_mmap_writable.counter) > 0;
}

/* A folio that is dirty already tells nothing of stores: they may come from now on. */
static __always_inline void tell_folio(const struct file_key *file, struct folio *folio)
{
	tell(file, EVENT_RANGE, HOOK_WRITE, (__u64)BPF_CORE_READ(folio, index) << PAGE_SHIFT,
	     pages_of(folio) << PAGE_SHIFT);
}

/* Where the kernel keeps the address of its first page, and that of its first `struct page`. */
const volatile __u64 memory_at;
const volatile __u64 pages_at;

/* Where the byte lies in the kernel's map of all memory; none where nobody knows where that is. */
static __always_inline void *mapped_at(struct folio *folio, __u64 offset)
{
	__u64 memory = 0, pages = 0, inside;

	if (!folio || !memory_at || !pages_at)
		return NULL;
	inside = offset - ((__u64)BPF_CORE_READ(folio, index) << PAGE_SHIFT);
	if (inside >= pages_of(folio) << PAGE_SHIFT ||
	    bpf_probe_read_kernel(&memory, sizeof(memory), (void *)memory_at) ||
	    bpf_probe_read_kernel(&pages, sizeof(pages), (void *)pages_at))
		return NULL;
	pages = ((__u64)folio - pages) / bpf_core_type_size(struct page);
	return (char *)memory + (pages << PAGE_SHIFT) + inside;
}

/* Where the byte lies: buffers of a folio know its address, and the first is at its start. */
static __always_inline void *address_of(struct folio *folio, __u64 offset)
{
	struct buffer_head *buffer = folio ? BPF_CORE_READ(folio, private) : NULL;
	char *start;

	if (!buffer || BPF_CORE_READ(buffer, b_page) != folio)
		return mapped_at(folio, offset);
	start = BPF_CORE_READ(buffer, b_data);
	return start + (offset - ((__u64)BPF_CORE_READ(folio, index) << PAGE_SHIFT));
}

struct copy {
	struct file_key file;
	char *from;
	__u64 offset;
	__u32 left;
	__u32 zero;
};

static __always_inline void piece(struct copy *copy, __u32 length, const __u32 room)
{
	__u64 number = take_number(&copy->file);
	struct event *event = bpf_ringbuf_reserve(&ring, sizeof(*event) + room, 0);

	if (!event) {
		lose(&copy->file);
		return;
	}
	head(event, number, &copy->file, EVENT_DATA);
	mark(event, HOOK_WRITE);
	event->offset = copy->offset;
	event->length = length;
	if (length > room || bpf_probe_read_kernel(event + 1, length, copy->from))
		event->kind = EVENT_RANGE;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

static long next_piece(__u32 i, void *context)
{
	struct copy *copy = context;
	__u32 length = copy->left < LARGEST ? copy->left : LARGEST;

	if (!length)
		return 1;
	if (length <= 256)
		piece(copy, length, 256);
	else if (length <= 1024)
		piece(copy, length, 1024);
	else if (length <= 4096)
		piece(copy, length, 4096);
	else
		piece(copy, length, LARGEST);
	copy->from += length;
	copy->offset += length;
	copy->left -= length;
	return 0;
}

/* The bytes that a write has put at `offset`, of the `length` it had wanted to. */
static __always_inline void tell_data(struct inode *inode, __u64 offset, __u32 length, __u32 copied)
{
	struct folio *folio = folio_of(BPF_CORE_READ(inode, i_mapping), offset >> PAGE_SHIFT);
	struct copy copy = {
		.file = file_of(inode),
		.offset = offset,
		.left = copied,
	};
	/* Stores may come until the file is not mapped any more, and are not told then. */
	bool stored = mapped(inode);

	/* What a short copy has put there may be thrown away. */
	copy.from = copied == length ? address_of(folio, offset) : NULL;
	if (copy.from && copied <= LARGEST)
		next_piece(0, &copy);
	else if (copy.from)
		bpf_loop(PIECES, next_piece, &copy, 0);
	else
		tell(&copy.file, EVENT_RANGE, HOOK_WRITE, offset, length);
	if (folio && (stored || mapped(inode)))
		tell_folio(&copy.file, folio);
}

#endif
