/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Structures of the kernel's file systems, of which only what our programs read is listed, as in
 * vmlinux.h: offsets are relocated when a program is loaded.
 */
#ifndef LOWROAD_VFS_H
#define LOWROAD_VFS_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};

struct qstr {
	u32 len;
	const unsigned char *name;
};

struct timespec64 {
	s64 tv_sec;
	long tv_nsec;
};

typedef struct {
	u32 val;
} kuid_t;

typedef struct {
	u32 val;
} kgid_t;

struct xarray {
	void *xa_head;
};

struct xa_node {
	unsigned char shift;
	void *slots[64];
};

struct inode;

struct address_space {
	struct inode *host;
	struct xarray i_pages;
	atomic_t i_mmap_writable;
};

struct dentry;

struct super_block {
	u32 s_dev;
	unsigned long s_flags;
	struct dentry *s_root;
};

struct inode {
	u16 i_mode;
	unsigned int i_flags;
	kuid_t i_uid;
	kgid_t i_gid;
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	unsigned int i_nlink;
	u32 i_rdev;
	s64 i_size;
	s64 i_mtime_sec;
	u32 i_mtime_nsec;
	u32 i_generation;
	atomic_t i_count;
	struct hlist_head i_dentry;
};

/* Until 6.6, and from 6.7 to 6.10. */
struct inode___whole {
	struct timespec64 i_mtime;
};

struct inode___hidden {
	struct timespec64 __i_mtime;
};

typedef struct seqcount {
	unsigned int sequence;
} seqcount_t;

typedef struct seqcount_spinlock {
	seqcount_t seqcount;
} seqcount_spinlock_t;

struct dentry {
	seqcount_spinlock_t d_seq;
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	union {
		struct hlist_node d_alias;
	} d_u;
};

struct buffer_head {
	char *b_data;
	void *b_page;
};

enum pageflags {
	PG_head,
};

struct folio {
	unsigned long index;
	void *private;
	unsigned long _flags_1;
};

struct page {
	unsigned long flags;
};

/* Until 6.5. */
struct folio___order {
	unsigned char _folio_order;
};

struct file {
	struct inode *f_inode;
	unsigned int f_flags;
};

struct vm_area_struct {
	unsigned long vm_end;
	unsigned long vm_flags;
	struct file *vm_file;
};

struct kiocb {
	struct file *ki_filp;
	s64 ki_pos;
	int ki_flags;
};

struct iomap_dio {
	struct kiocb *iocb;
};

struct iomap_iter {
	struct inode *inode;
	s64 pos;
};

struct iov_iter {
	bool data_source;
	size_t count;
};

struct io_kiocb {
	struct file *file;
	u8 opcode;
};

struct io_uring_cqe {
	s32 res;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct___files {
	struct files_struct *files;
};

#pragma clang attribute pop

#endif /* LOWROAD_VFS_H */
