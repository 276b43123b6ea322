/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Files that ext4 makes, names that it takes away, and files that go with their last user. */
#ifndef REPLICATE_MADE_H
#define REPLICATE_MADE_H

#include "operation.h"

SEC("tp_btf/ext4_allocate_inode")
int BPF_PROG(created, struct inode *inode, struct inode *directory, int mode)
{
	struct file_key file;
	struct state *state;
	__u64 number;

	if (!in_scope(directory))
		return 0;
	file = file_of(inode);
	touch(inode, HOOK_INODE);
	number = take_number(&file);
	state = bpf_ringbuf_reserve(&ring, sizeof(*state), 0);
	if (!state) {
		struct file_key parent = file_of(directory);

		lose_file(&parent);
		lose(&file);
		return 0;
	}
	head(&state->event, number, &file, EVENT_NEW);
	mark(&state->event, HOOK_INODE);
	empty(state);
	put_inode(state, inode);
	state->parent = BPF_CORE_READ(directory, i_ino);
	state->parent_generation = BPF_CORE_READ(directory, i_generation);
	bpf_ringbuf_submit(state, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/ext4_unlink_exit")
int BPF_PROG(unlinked, struct dentry *dentry, int result)
{
	struct inode *inode = BPF_CORE_READ(dentry, d_inode);
	struct file_key file;
	struct state *state;
	__u64 number;

	if (result || !in_scope(inode))
		return 0;
	file = file_of(inode);
	number = take_number(&file);
	state = bpf_ringbuf_reserve(&ring, sizeof(*state), 0);
	if (!state) {
		lose_name(dentry);
		lose(&file);
		return 0;
	}
	head(&state->event, number, &file, EVENT_UNLINK);
	mark(&state->event, HOOK_INODE);
	empty(state);
	put_inode(state, inode);
	put_name(state, dentry);
	bpf_ringbuf_submit(state, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/ext4_evict_inode")
int BPF_PROG(evicted, struct inode *inode)
{
	struct file_key file;

	if (BPF_CORE_READ(inode, i_nlink) || !in_scope(inode))
		return 0;
	file = file_of(inode);
	tell(&file, EVENT_GONE, HOOK_INODE, 0, 0);
	return 0;
}

#endif
