/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the programs tell userspace, and how: a ring in which each event has a number that was taken
 * before there was room for it, so that a missing number is a missing event.
 */
#ifndef REPLICATE_EVENT_H
#define REPLICATE_EVENT_H

#include "bell.h"

enum event_kind {
	EVENT_DATA = 1,
	/* A range whose bytes were not seen. */
	EVENT_RANGE = 2,
	EVENT_SIZE = 3,
	EVENT_NEW = 4,
	EVENT_STATE = 5,
	EVENT_UNLINK = 6,
	EVENT_GONE = 7,
	EVENT_SYNC = 8,
	/* Whether processes store to the file through memory: its offset is one, or zero. */
	EVENT_MAPPED = 9,
	/* A range that was written; without a length, what is behind the size that is known. */
	EVENT_WRITTEN = 10,
	/* A directory is outside of the tree, and nobody saw it leave. */
	EVENT_LEFT = 11,
};

enum event_flag {
	/* With this event no operation is under way, and all events before it are told. */
	FLAG_QUIET = 1,
	/* Told in the middle of an operation of which no end is seen. */
	FLAG_MIDDLE = 2,
	FLAG_EXTENDED = 4,
	/* All its names are outside of the tree. */
	FLAG_OUTSIDE = 8,
	/* The operation touched more inodes than are told. */
	FLAG_OVERFLOW = 16,
	/* A name follows, of which `length` says how long it is. */
	FLAG_NAMED = 32,
	/* The operation touched nothing that is not told. */
	FLAG_LAST = 64,
	/* What became of it is not told: it is to be read. */
	FLAG_VAGUE = 128,
};

/* Where the kernel showed it, above the flags. */
enum hook {
	HOOK_WRITE = 1 << 8,
	HOOK_TRUNCATE = 1 << 9,
	HOOK_ALLOCATE = 1 << 10,
	HOOK_INODE = 1 << 11,
	HOOK_FOLIO = 1 << 12,
	HOOK_DIRECT = 1 << 13,
	HOOK_MAPPING = 1 << 14,
	HOOK_TIME = 1 << 15,
	HOOK_BUFFERED = 1 << 16,
	HOOK_RING = 1 << 17,
	HOOK_CALL = 1 << 18,
	HOOK_SYNC = 1 << 19,
	HOOK_NAME = 1 << 20,
	HOOK_EXTENDED = 1 << 21,
	HOOK_EXTENT = 1 << 22,
	/* The call has said where, or that it is at the end of the file. They are not told. */
	HOOK_PLACED = 1 << 24,
	HOOK_APPENDED = 1 << 25,
};

/* `length` bytes, and padding, follow where kind is EVENT_DATA. */
struct event {
	__u64 number;
	__u64 inode;
	__u64 offset;
	__u64 length;
	__u32 generation;
	__u8 kind;
	__u8 flags;
	__u16 hooks;
};

/* EVENT_NEW, EVENT_STATE and EVENT_UNLINK: what the inode is like, and a name of it. */
struct state {
	struct event event;
	__u64 size;
	__s64 modified_s;
	__u64 parent;
	__u32 modified_ns;
	__u32 parent_generation;
	__u32 device;
	__u32 uid;
	__u32 gid;
	__u32 links;
	/* The thread whose operation it is, and its system call. */
	__u32 task;
	__u16 call;
	__u16 mode;
	__u8 name[256];
};

struct file_key {
	__u64 inode;
	__u32 generation;
	__u32 zero;
};

_Static_assert(sizeof(struct event) == 40, "capture::skel");
_Static_assert(sizeof(struct state) == 40 + 56 + 256, "capture::skel");
_Static_assert(sizeof(struct file_key) == 16, "capture::skel");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 10);
} ring SEC(".maps");

/* Files of which an event found no room. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct file_key);
	__type(value, __u32);
} lost SEC(".maps");

/* The number of the next event. */
__u64 next_number;
/* Events without room; counted once their file is among the lost. */
__u64 dropped;
/* Files that found no room among the lost: anything may have changed. */
__u64 forgotten;
/* Operations that have touched a file, and not ended; and those of them that are not waited for. */
__u64 operations;
__u64 passed;

/*
 * For who takes up the log of a capture that is gone: files that something was told of, in this
 * turn and in the one before. Userspace empties a turn's map once the log has all that was told in
 * it.
 */
const volatile bool pinned;
__u64 turn SEC(".data.turn");
/* Files that found no room among them. */
__u64 overlooked;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct file_key);
	__type(value, __u32);
} even_turns SEC(".maps"), odd_turns SEC(".maps");

/* What userspace says of the journal, in words. */
struct label {
	__u8 text[16384];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct label);
} label SEC(".maps");

static __noinline int note(const struct file_key *file)
{
	struct file_key key = *file;
	__u32 yes = 1;
	long failed;

	if (*(volatile __u64 *)&turn & 1) {
		if (bpf_map_lookup_elem(&odd_turns, &key))
			return 0;
		failed = bpf_map_update_elem(&odd_turns, &key, &yes, BPF_ANY);
	} else {
		if (bpf_map_lookup_elem(&even_turns, &key))
			return 0;
		failed = bpf_map_update_elem(&even_turns, &key, &yes, BPF_ANY);
	}
	if (failed)
		__sync_fetch_and_add(&overlooked, 1);
	return 0;
}

/* Before anything is told of it. */
static __always_inline void remark(const struct file_key *file)
{
	if (pinned)
		note(file);
}

static __always_inline struct file_key file_of(const struct inode *inode)
{
	struct file_key key = {
		.inode = BPF_CORE_READ(inode, i_ino),
		.generation = BPF_CORE_READ(inode, i_generation),
	};

	return key;
}

static __always_inline void lose_file(const struct file_key *file)
{
	__u32 yes = 1;

	if (bpf_map_update_elem(&lost, file, &yes, BPF_ANY))
		__sync_fetch_and_add(&forgotten, 1);
}

static __always_inline void lose(const struct file_key *file)
{
	lose_file(file);
	__sync_fetch_and_add(&dropped, 1);
}

static __always_inline void head(struct event *event, __u64 number, const struct file_key *file,
				 __u8 kind)
{
	__builtin_memset(event, 0, sizeof(*event));
	event->number = number;
	event->inode = file->inode;
	event->generation = file->generation;
	event->kind = kind;
}

static __always_inline void mark(struct event *event, __u32 flags)
{
	event->flags |= (__u8)flags;
	event->hooks |= flags >> 8;
}

/* For an event about the file. */
static __always_inline __u64 take_number(const struct file_key *file)
{
	__u64 number;

	remark(file);
	number = __sync_fetch_and_add(&next_number, 1);
	if (!(number & bell_mask))
		ring_bell();
	return number;
}

/* An event that has no more to say than a range. */
static __always_inline void tell(const struct file_key *file, __u8 kind, __u32 flags, __u64 offset,
				 __u64 length)
{
	__u64 number = take_number(file);
	struct event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);

	if (!event) {
		lose(file);
		return;
	}
	head(event, number, file, kind);
	mark(event, flags);
	event->offset = offset;
	event->length = length;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

#endif
