/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Calls that change a file by a descriptor that lies in memory. */
#ifndef REPLICATE_EXCHANGE_H
#define REPLICATE_EXCHANGE_H

#include "unseen.h"

/* XFS_IOC_SWAPEXT, and where it has the descriptors of both files. */
#define SWAPS 0xc0c0586d
#define SWAPS_FIRST 8
#define SWAPS_SECOND 16
/* XFS_IOC_EXCHANGE_RANGE and XFS_IOC_COMMIT_RANGE begin with that of the other file. */
#define EXCHANGES 0x40285881
#define COMMITS 0x40585883

__noinline int tell_other(__u64 at)
{
	struct inode *inode;
	struct file_key file;
	__u32 descriptor;

	if (bpf_probe_read_user(&descriptor, sizeof(descriptor), (void *)at)) {
		__sync_fetch_and_add(&forgotten, 1);
		return 0;
	}
	inode = inode_of(descriptor);
	if (!in_scope(inode) || !regular(inode))
		return 0;
	file = file_of(inode);
	tell(&file, EVENT_RANGE, HOOK_CALL, 0, END);
	return 0;
}

/* Bytes of two files have changed places, of which the call may have neither as its own. */
static __always_inline void tell_exchanged(struct pt_regs *regs)
{
	if ((__u32)regs->si == SWAPS) {
		tell_other(regs->dx + SWAPS_FIRST);
		tell_other(regs->dx + SWAPS_SECOND);
	} else if ((__u32)regs->si == EXCHANGES || (__u32)regs->si == COMMITS) {
		tell_other(regs->dx);
	}
}

#endif
