/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Kernels before 6.13 have no event for an inode's change: who changes one asks for its time, and
 * of directories, names and extended attributes not even that in every file system.
 */
#ifndef REPLICATE_TIMES_H
#define REPLICATE_TIMES_H

#include "vague.h"

/* From the start up to the end of a function. */
struct code {
	__u64 start;
	__u64 end;
};

/* Who asks for the time of an access, which is no change. */
const volatile struct code access_asked, access_kept;

static __always_inline bool within(__u64 place, const volatile struct code *code)
{
	return code->start <= place && place < code->end;
}

SEC("kprobe/current_time")
int BPF_KPROBE(time_asked, struct inode *inode)
{
	__u64 caller = 0;

	bpf_probe_read_kernel(&caller, sizeof(caller), (void *)PT_REGS_RET(ctx));
	if (within(caller, &access_asked) || within(caller, &access_kept))
		return 0;
	return times(inode);
}

static __always_inline int names_of(struct inode *directory)
{
	if (in_scope(directory))
		touch(directory, HOOK_NAME);
	return 0;
}

SEC("kprobe/security_inode_create")
int BPF_KPROBE(create_asked, struct inode *directory)
{
	return names_of(directory);
}

SEC("kprobe/security_inode_mkdir")
int BPF_KPROBE(mkdir_asked, struct inode *directory)
{
	return names_of(directory);
}

SEC("kprobe/security_inode_mknod")
int BPF_KPROBE(mknod_asked, struct inode *directory)
{
	return names_of(directory);
}

SEC("kprobe/security_inode_symlink")
int BPF_KPROBE(symlink_asked, struct inode *directory)
{
	return names_of(directory);
}

SEC("kprobe/security_inode_link")
int BPF_KPROBE(link_asked, struct dentry *old, struct inode *directory)
{
	return names_of(directory);
}

SEC("kprobe/security_inode_unlink")
int BPF_KPROBE(unlink_asked, struct inode *directory, struct dentry *name)
{
	times(BPF_CORE_READ(name, d_inode));
	return names_of(directory);
}

SEC("kprobe/security_inode_rmdir")
int BPF_KPROBE(rmdir_asked, struct inode *directory, struct dentry *name)
{
	times(BPF_CORE_READ(name, d_inode));
	return names_of(directory);
}

SEC("kprobe/security_inode_rename")
int BPF_KPROBE(rename_asked, struct inode *from, struct dentry *old, struct inode *to,
	       struct dentry *name)
{
	times(BPF_CORE_READ(old, d_inode));
	times(BPF_CORE_READ(name, d_inode));
	names_of(from);
	return names_of(to);
}

static __always_inline int extended(struct inode *inode)
{
	if (in_scope(inode))
		touch(inode, FLAG_EXTENDED | HOOK_EXTENDED);
	return 0;
}

SEC("kprobe/__vfs_setxattr")
int BPF_KPROBE(attribute_put, void *mount, struct dentry *name, struct inode *inode)
{
	return extended(inode);
}

/* So are capabilities of a file taken away that is written. */
SEC("kprobe/__vfs_removexattr")
int BPF_KPROBE(attribute_taken, void *mount, struct dentry *name)
{
	return extended(BPF_CORE_READ(name, d_inode));
}

#endif
