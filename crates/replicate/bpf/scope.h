/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which files belong to the tree: by file system, and below one directory of it. */
#ifndef REPLICATE_SCOPE_H
#define REPLICATE_SCOPE_H

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

/* What is known holds for one count of the directories that were moved. */
struct belonging {
	__u64 moved;
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

static __always_inline bool hashed(struct dentry *dentry)
{
	return BPF_CORE_READ(dentry, d_hash.pprev) != NULL;
}

/* The newest name of the file that is one; none where the cache has none. */
static __noinline struct dentry *alias_of(struct inode *inode)
{
	struct hlist_node *node = BPF_CORE_READ(inode, i_dentry.first);
	int i;

	for (i = 0; i < ALIASES && node; i++) {
		struct dentry *dentry =
			(void *)((char *)node - bpf_core_field_offset(struct dentry, d_u.d_alias));

		if (hashed(dentry) && BPF_CORE_READ(dentry, d_parent) != dentry)
			return dentry;
		node = BPF_CORE_READ(node, next);
	}
	return NULL;
}

static __noinline int below_root(struct inode *inode)
{
	struct dentry *dentry;
	int i;

	if (BPF_CORE_READ(inode, i_ino) == root_inode)
		return 1;
	/* It may have a name in the tree beside others. */
	if ((BPF_CORE_READ(inode, i_mode) & 0170000) != 0040000 &&
	    BPF_CORE_READ(inode, i_nlink) > 1)
		return 1;
	dentry = alias_of(inode);
	/* Without a name it may have had one: userspace knows whether it did. */
	if (!dentry)
		return 1;
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

static __always_inline bool in_scope(struct inode *inode)
{
	struct belonging *known, found = {};
	struct file_key file;

	if (!on_device(inode))
		return false;
	if (subvolume && subvolume_of(inode) != subvolume)
		return false;
	if (whole)
		return true;
	file = file_of(inode);
	known = bpf_map_lookup_elem(&belongs, &file);
	if (known && known->moved == moved)
		return known->inside;
	found.moved = moved;
	found.inside = below_root(inode);
	bpf_map_update_elem(&belongs, &file, &found, BPF_ANY);
	return found.inside;
}

#endif
