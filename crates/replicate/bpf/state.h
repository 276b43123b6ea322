/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Tells what an inode is like, and which name it has. */
#ifndef REPLICATE_STATE_H
#define REPLICATE_STATE_H

#include "call.h"
#include "scope.h"

static __always_inline void put_time(struct state *state, struct inode *inode)
{
	struct inode___whole *whole_time = (void *)inode;
	struct inode___hidden *hidden = (void *)inode;

	if (bpf_core_field_exists(inode->i_mtime_sec)) {
		state->modified_s = BPF_CORE_READ(inode, i_mtime_sec);
		state->modified_ns = BPF_CORE_READ(inode, i_mtime_nsec);
	} else if (bpf_core_field_exists(hidden->__i_mtime)) {
		state->modified_s = BPF_CORE_READ(hidden, __i_mtime.tv_sec);
		state->modified_ns = BPF_CORE_READ(hidden, __i_mtime.tv_nsec);
	} else {
		state->modified_s = BPF_CORE_READ(whole_time, i_mtime.tv_sec);
		state->modified_ns = BPF_CORE_READ(whole_time, i_mtime.tv_nsec);
	}
}

static __always_inline void put_inode(struct state *state, struct inode *inode)
{
	state->size = BPF_CORE_READ(inode, i_size);
	state->device = BPF_CORE_READ(inode, i_rdev);
	state->uid = BPF_CORE_READ(inode, i_uid.val);
	state->gid = BPF_CORE_READ(inode, i_gid.val);
	state->links = BPF_CORE_READ(inode, i_nlink);
	state->mode = BPF_CORE_READ(inode, i_mode);
	put_time(state, inode);
}

/* Of a directory. */
#define IGNORES_CASE (1 << 15)
/* Of a file, that are looked at when there is no room to tell of it. */
#define NAMES 256

static __always_inline void put_name(struct state *state, struct dentry *dentry)
{
	__u32 before = BPF_CORE_READ(dentry, d_seq.seqcount.sequence);
	struct inode *parent = BPF_CORE_READ(dentry, d_parent, d_inode);
	__u32 length = BPF_CORE_READ(dentry, d_name.len);

	if (!parent || length == 0 || length > 255)
		return;
	if (bpf_probe_read_kernel(state->name, length, BPF_CORE_READ(dentry, d_name.name)))
		return;
	/*
	 * Another call is moving it: the directory may be the one, and the name the other. Where
	 * names are alike whatever their case, the disk may have another than was asked for.
	 */
	if (before & 1 || BPF_CORE_READ(dentry, d_seq.seqcount.sequence) != before ||
	    BPF_CORE_READ(parent, i_flags) & IGNORES_CASE)
		state->event.flags |= FLAG_MIDDLE;
	state->parent = BPF_CORE_READ(parent, i_ino);
	state->parent_generation = BPF_CORE_READ(parent, i_generation);
	state->event.length = length;
	state->event.flags |= FLAG_NAMED;
}

static __always_inline void empty(struct state *state)
{
	__builtin_memset(&state->size, 0, offsetof(struct state, name) - sizeof(struct event));
}

/* No operation is under way, and the event with this number is the last. */
static __always_inline bool quiet(__u64 number)
{
	return *(volatile __u64 *)&operations == 0 && *(volatile __u64 *)&next_number == number + 1;
}

/* Whether the end of an operation, with the event of this number, makes it quiet. */
static __always_inline bool ends_quiet(__u64 number)
{
	__sync_fetch_and_add(&operations, -1ULL);
	return quiet(number);
}

static __always_inline void tell_sync(struct file_key *file)
{
	__u64 number = take_number(file);
	struct event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);

	if (!event) {
		lose(file);
		return;
	}
	head(event, number, file, EVENT_SYNC);
	mark(event, HOOK_SYNC);
	if (quiet(number))
		event->flags |= FLAG_QUIET;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	/* An epoch is to end. */
	ring_bell();
}

/* The directory of a name that found no room. */
static __always_inline void lose_name(struct dentry *dentry)
{
	struct inode *parent = dentry ? BPF_CORE_READ(dentry, d_parent, d_inode) : NULL;
	struct file_key file;

	if (!parent)
		return;
	file = file_of(parent);
	lose_file(&file);
}

struct names {
	struct hlist_node *at;
	/* Whether any was: were it a count, the verifier would look at each. */
	__u64 lost;
};

static long next_name(__u32 i, void *context)
{
	struct names *names = context;
	struct hlist_node *at = names->at;

	if (!at)
		return 1;
	if (is_name(dentry_of(at))) {
		lose_name(dentry_of(at));
		names->lost = true;
	}
	names->at = BPF_CORE_READ(at, next);
	return 0;
}

/*
 * The directories of all names that a file may have got or kept, by the address of the first of
 * them: which is new, nobody tells. Not static: the verifier looks at it once.
 */
__noinline int lose_names(__u64 first, __u32 links)
{
	struct names names = { .at = (void *)first };

	bpf_loop(NAMES, next_name, &names, 0);
	if (names.at || (links && !names.lost))
		__sync_fetch_and_add(&forgotten, 1);
	return 0;
}

static __always_inline bool is_still(struct inode *inode, const struct file_key *file)
{
	return BPF_CORE_READ(inode, i_ino) == file->inode &&
	       BPF_CORE_READ(inode, i_generation) == file->generation;
}

/* What is known of the border of the tree may hold no more. */
static __always_inline void renew_border(struct inode *inode, __u32 flags, __u32 call)
{
	if (whole || !is_directory(inode))
		return;
	if (kind_of(call) & CALL_MOVES || flags & FLAG_MIDDLE)
		__sync_fetch_and_add(&moved, 1);
}

/*
 * Whether it has left the tree. A directory takes along files of which nothing is told, and may
 * bring them back: that is noted for who takes up the log.
 */
static __always_inline bool departs(struct inode *inode)
{
	struct file_key departed = {};

	if (whole || below_root(inode))
		return false;
	if (is_directory(inode))
		remark(&departed);
	return true;
}

/* The state of what was `file` when it was touched; `last` ends the operation. */
static __noinline int tell_state(struct inode *inode, struct file_key *file, __u32 flags,
				 __u32 call, bool last)
{
	struct dentry *dentry;
	struct state *state;
	bool departed;
	__u64 number;

	departed = departs(inode);
	if (departed)
		flags |= FLAG_OUTSIDE;
	renew_border(inode, flags, call);
	number = take_number(file);
	state = bpf_ringbuf_reserve(&ring, sizeof(*state), 0);
	if (!state) {
		if (is_still(inode, file))
			lose_names((__u64)BPF_CORE_READ(inode, i_dentry.first),
				   BPF_CORE_READ(inode, i_nlink));
		lose(file);
		if (departed && is_directory(inode))
			__sync_fetch_and_add(&forgotten, 1);
		if (last)
			ends_quiet(number);
		return 0;
	}
	head(&state->event, number, file, EVENT_STATE);
	mark(&state->event, flags);
	empty(state);
	state->call = call;
	state->task = (__u32)bpf_get_current_pid_tgid();
	/* It may be gone, and its memory another's. */
	if (is_still(inode, file)) {
		put_inode(state, inode);
		dentry = alias_of(inode);
		if (dentry)
			put_name(state, dentry);
	}
	if (last) {
		state->event.flags |= FLAG_LAST;
		if (ends_quiet(number))
			state->event.flags |= FLAG_QUIET;
	}
	bpf_ringbuf_submit(state, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
