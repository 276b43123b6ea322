/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The kernel types our programs use, kept by hand in place of a 2 MB dump.
 *
 * Three parts. lowroad/uapi.h holds numbers and context structures that never change, and
 * lowroad/wire.h protocol headers: both are exact. Here are kernel structures, of which only the
 * fields we read are listed: their offsets are relocated at load time (preserve_access_index), so
 * order, gaps and size mean nothing and sizeof must not be used on them.
 *
 * To add a kernel structure, list the fields you read with the names and types that both the
 * oldest supported kernel (6.1) and current ones have. A field that one of them lacks is guarded
 * by bpf_core_field_exists().
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u8 u8;
typedef __s8 s8;
typedef __u16 u16;
typedef __s16 s16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u16 __le16;
typedef __u32 __be32;
typedef __u32 __le32;
typedef __u64 __be64;
typedef __u64 __le64;
typedef __u16 __sum16;
typedef __u32 __wsum;
typedef unsigned long size_t;
typedef long ssize_t;
typedef int pid_t;
typedef _Bool bool;

enum {
	false = 0,
	true = 1,
};

#define NULL ((void *)0)

#include "lowroad/uapi.h"
#include "lowroad/wire.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct nsproxy {
	struct net *net_ns;
};

/* task_struct.flags: a kernel thread */
#define PF_KTHREAD 0x00200000

struct thread_info {
	u32 status;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	pid_t pid;
	pid_t tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	u64 start_time;
	struct nsproxy *nsproxy;
	char comm[16];
};

struct net_device {
	char name[16];
	int ifindex;
	unsigned int mtu;
	possible_net_t nd_net;
};

struct napi_struct {
	int weight;
	unsigned int napi_id;
	struct net_device *dev;
};

struct sk_buff {
	struct net_device *dev;
	unsigned int len;
	unsigned int data_len;
	__u16 mac_len;
	__u32 hash;
	__u32 mark;
	__u32 priority;
	__be16 protocol;
	__u16 transport_header;
	__u16 network_header;
	__u16 mac_header;
	unsigned char *head;
	unsigned char *data;
};

struct bpf_prog_aux {
	u32 id;
};

struct bpf_prog {
	struct bpf_prog_aux *aux;
};

struct irqaction {
	const char *name;
};

#pragma clang attribute pop

#endif /* __VMLINUX_H__ */
