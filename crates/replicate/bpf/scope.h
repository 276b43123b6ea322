/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which files belong to the tree: by file system, and below one directory of it. */
#ifndef REPLICATE_SCOPE_H
#define REPLICATE_SCOPE_H

#include "call.h"
#include "event.h"

#define DEEPEST 64
/* Aliases of a file that are looked at for one that is a name. */
#define ALIASES 8

const volatile __u32 root_device;
const volatile __u64 root_inode;
/* That of the tree, where inodes have numbers of their own in each; zero where they do not. */
const volatile __u64 subvolume;
/* The tree is all of its file system. */
const volatile bool whole = true;

/* What is known holds for one state of the border of the tree. */
struct belonging {
	__u64 border;
	__u64 inside;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct file_key);
	__type(value, struct belonging);
} belongs SEC(".maps");

/* Names that were moved or added where they may take files across the border of the tree. */
__u64 moved;
/* How often userspace has found files in the tree that were told of by nothing. */
__u64 found SEC(".data.found");

static __always_inline __u64 border(void)
{
	return *(volatile __u64 *)&moved + *(volatile __u64 *)&found;
}

/*
 * The address that a pointer is, for functions that are not static: they take no pointers to what
 * is the kernel's. What has had its sign changed is a number to the verifier.
 */
static __always_inline __u64 number_of(const void *pointer)
{
	__u64 number = (__u64)pointer;

	asm volatile("%0 = -%0; %0 = -%0" : "+r"(number));
	return number;
}

static __always_inline bool is_directory(struct inode *inode)
{
	return (BPF_CORE_READ(inode, i_mode) & 0170000) == 0040000;
}

static __always_inline bool hashed(struct dentry *dentry)
{
	return BPF_CORE_READ(dentry, d_hash.pprev) != NULL;
}

static __always_inline struct dentry *dentry_of(struct hlist_node *node)
{
	return (void *)((char *)node - bpf_core_field_offset(struct dentry, d_u.d_alias));
}

static __always_inline bool is_name(struct dentry *dentry)
{
	return hashed(dentry) && BPF_CORE_READ(dentry, d_parent) != dentry;
}

/* The newest name of the file that is one; none where the cache has none. */
static __noinline struct dentry *alias_of(struct inode *inode)
{
	struct hlist_node *node = BPF_CORE_READ(inode, i_dentry.first);
	int i;

	for (i = 0; i < ALIASES && node; i++) {
		struct dentry *dentry = dentry_of(node);

		if (is_name(dentry))
			return dentry;
		node = BPF_CORE_READ(node, next);
	}
	return NULL;
}

/* Whether a name, by its address, is below the root; one that is too deep to say is. */
__noinline int is_below(__u64 address)
{
	struct dentry *dentry = (void *)address;
	int i;

	for (i = 0; i < DEEPEST; i++) {
		struct dentry *parent = BPF_CORE_READ(dentry, d_parent);

		if (!parent || parent == dentry)
			return 0;
		if (BPF_CORE_READ(parent, d_inode, i_ino) == root_inode)
			return 1;
		dentry = parent;
	}
	return 1;
}

/* Whether an inode, by its address, has a name below the root. Not static: the verifier looks at it
 * once in each program, and not for each way to it. */
__noinline int lies_below(__u64 address)
{
	struct inode *inode = (void *)address;
	struct hlist_node *node = BPF_CORE_READ(inode, i_dentry.first);
	bool named = false;
	int i;

	if (BPF_CORE_READ(inode, i_ino) == root_inode)
		return 1;
	/* It may have a name in the tree beside others. */
	if (!is_directory(inode) && BPF_CORE_READ(inode, i_nlink) > 1)
		return 1;
	/* One that is just being taken away is still there, and newer than the one that stays. */
	for (i = 0; i < ALIASES && node; i++) {
		struct dentry *dentry = dentry_of(node);

		if (is_name(dentry)) {
			named = true;
			if (is_below((__u64)dentry))
				return 1;
		}
		node = BPF_CORE_READ(node, next);
	}
	/* Without a name it may have had one, and of many not all are looked at: userspace knows.
	 */
	return !named || node;
}

static __always_inline bool below_root(struct inode *inode)
{
	return lies_below(number_of(inode));
}

static __always_inline bool on_device(struct inode *inode)
{
	return inode && BPF_CORE_READ(inode, i_sb, s_dev) == root_device;
}

struct btrfs_key {
	__u64 objectid;
} __attribute__((preserve_access_index));

struct btrfs_root {
	struct btrfs_key root_key;
} __attribute__((preserve_access_index));

struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
} __attribute__((preserve_access_index));

static __always_inline __u64 subvolume_of(struct inode *inode)
{
	struct btrfs_inode *whole_inode =
		(void *)((char *)inode - bpf_core_field_offset(struct btrfs_inode, vfs_inode));

	return BPF_CORE_READ(whole_inode, root, root_key.objectid);
}

struct climb {
	struct dentry *at;
};

/* Files in it may have changed outside, and are told of no more. */
static __always_inline void tell_left(const struct file_key *file)
{
	struct file_key departed = {};
	struct event *event;
	__u64 number;

	remark(&departed);
	number = take_number(file);
	event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);
	if (!event) {
		lose(file);
		__sync_fetch_and_add(&forgotten, 1);
		return;
	}
	head(event, number, file, EVENT_LEFT);
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

static long next_above(__u32 i, void *context)
{
	struct climb *climb = context;
	struct dentry *dentry = climb->at, *above = BPF_CORE_READ(dentry, d_parent);
	struct inode *inode = BPF_CORE_READ(dentry, d_inode);
	struct belonging *known;
	struct file_key file;

	if (!inode || !above || above == dentry)
		return 1;
	climb->at = above;
	file = file_of(inode);
	known = is_directory(inode) ? bpf_map_lookup_elem(&belongs, &file) : NULL;
	if (known && known->inside) {
		known->inside = false;
		tell_left(&file);
	}
	return 0;
}

/* Of a file outside, the directories above that were in the tree when they were looked at last. */
static __noinline int tell_who_left(struct inode *inode)
{
	struct climb climb = { .at = alias_of(inode) };

	if (climb.at)
		bpf_loop(DEEPEST, next_above, &climb, 0);
	return 0;
}

static __always_inline bool in_scope(struct inode *inode)
{
	struct belonging *known, now = {};
	struct file_key file;
	bool leaves;

	if (!on_device(inode))
		return false;
	if (subvolume && subvolume_of(inode) != subvolume)
		return false;
	if (whole)
		return true;
	file = file_of(inode);
	known = bpf_map_lookup_elem(&belongs, &file);
	now.border = border();
	if (known && known->border == now.border)
		return known->inside;
	now.inside = below_root(inode);
	leaves = known && known->inside && !now.inside;
	/* Who takes it out may be about to tell, and may be too late: it may be back by then. */
	if (!now.inside)
		tell_who_left(inode);
	/* Where a name that goes is all that the cache has, the file may have one in the tree. */
	if (now.inside || is_directory(inode) || !changes_names())
		bpf_map_update_elem(&belongs, &file, &now, BPF_ANY);
	/* That it has left is told as well. */
	return now.inside || leaves;
}

#endif
