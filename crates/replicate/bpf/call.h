/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a system call may do, by its number: userspace knows how this machine numbers them. */
#ifndef REPLICATE_CALL_H
#define REPLICATE_CALL_H

#define CALLS 512
#define END (~0ULL)

enum call_kind {
	/* It changes names or attributes, but no bytes. */
	CALL_NAMES = 1,
	/* It may change bytes of all that it touches, and nothing else says which. */
	CALL_WHOLE = 2,
	/* It may change the file behind its first argument, or its third. */
	CALL_FIRST = 4,
	CALL_THIRD = 8,
	/* It takes files from one directory to another. */
	CALL_MOVES = 16,
	/* It writes the file behind its first argument to the disk, or the whole file system. */
	CALL_SYNC = 32,
	CALL_SYNC_ALL = 64,
	/* It opens a file, and returns its descriptor. */
	CALL_OPENS = 128,
};

const volatile __u8 calls[CALLS];
const volatile __u32 call_mmap;
const volatile __u32 call_ioctl;
const volatile __u32 call_io_submit;
const volatile __u32 call_sync_file_range;

/* The file system tells that files change, but not how: all of it is read. */
const volatile bool vague;
/* It tells nothing of stores through memory either. */
const volatile bool silent;
/* But programs at its functions see what calls put into the page cache. */
const volatile bool functions;

static __always_inline __u8 kind_of(__u32 call)
{
	__u32 place = call & (CALLS - 1);

	/* The compiler would look at another register than it uses. */
	asm volatile("" : "+r"(place));
	return call < CALLS ? calls[place] : 0;
}

/* Whether a call may have changed any bytes of a regular file that it touched. */
static __always_inline bool anywhere(__u32 call, bool range_known)
{
	__u8 kind = kind_of(call);

	return kind & CALL_WHOLE || !(range_known || kind & CALL_NAMES);
}

#endif
