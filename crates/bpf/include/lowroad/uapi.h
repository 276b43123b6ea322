/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Numbers and context structures that the kernel promises never to change; see vmlinux.h. */
#ifndef LOWROAD_UAPI_H
#define LOWROAD_UAPI_H

enum bpf_map_type {
	BPF_MAP_TYPE_UNSPEC = 0,
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_CGROUP_ARRAY = 8,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LRU_PERCPU_HASH = 10,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_HASH_OF_MAPS = 13,
	BPF_MAP_TYPE_DEVMAP = 14,
	BPF_MAP_TYPE_SOCKMAP = 15,
	BPF_MAP_TYPE_CPUMAP = 16,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_MAP_TYPE_SOCKHASH = 18,
	BPF_MAP_TYPE_REUSEPORT_SOCKARRAY = 20,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_DEVMAP_HASH = 25,
	BPF_MAP_TYPE_STRUCT_OPS = 26,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_INODE_STORAGE = 28,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_BLOOM_FILTER = 30,
	BPF_MAP_TYPE_USER_RINGBUF = 31,
};

/* bpf_map_update_elem() */
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
	BPF_F_LOCK = 4,
};

/* map_flags */
enum {
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_NO_COMMON_LRU = 1U << 1,
	BPF_F_NUMA_NODE = 1U << 2,
	BPF_F_RDONLY = 1U << 3,
	BPF_F_WRONLY = 1U << 4,
	BPF_F_STACK_BUILD_ID = 1U << 5,
	BPF_F_ZERO_SEED = 1U << 6,
	BPF_F_RDONLY_PROG = 1U << 7,
	BPF_F_WRONLY_PROG = 1U << 8,
	BPF_F_MMAPABLE = 1U << 10,
	BPF_F_INNER_MAP = 1U << 12,
};

/* bpf_skb_store_bytes(), bpf_l3_csum_replace(), bpf_l4_csum_replace() */
enum {
	BPF_F_RECOMPUTE_CSUM = 1U << 0,
	BPF_F_INVALIDATE_HASH = 1U << 1,
	BPF_F_HDR_FIELD_MASK = 0xf,
	BPF_F_PSEUDO_HDR = 1U << 4,
	BPF_F_MARK_MANGLED_0 = 1U << 5,
	BPF_F_MARK_ENFORCE = 1U << 6,
};

/* bpf_get_stack(), bpf_get_stackid() */
enum {
	BPF_F_SKIP_FIELD_MASK = 0xff,
	BPF_F_USER_STACK = 1U << 8,
	BPF_F_FAST_STACK_CMP = 1U << 9,
	BPF_F_REUSE_STACKID = 1U << 10,
	BPF_F_USER_BUILD_ID = 1U << 11,
};

/* bpf_perf_event_output(), bpf_perf_event_read(): wider than an enumerator may be */
#define BPF_F_INDEX_MASK 0xffffffffULL
#define BPF_F_CURRENT_CPU BPF_F_INDEX_MASK

/* bpf_task_storage_get() and its kin */
enum {
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1U << 0,
};

/* bpf_ringbuf_*() */
enum {
	BPF_RB_NO_WAKEUP = 1U << 0,
	BPF_RB_FORCE_WAKEUP = 1U << 1,
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
	BPF_RB_CONS_POS = 2,
	BPF_RB_PROD_POS = 3,
};

/* bpf_redirect(), bpf_clone_redirect(), bpf_redirect_map() */
enum {
	BPF_F_INGRESS = 1U << 0,
	BPF_F_BROADCAST = 1U << 3,
	BPF_F_EXCLUDE_INGRESS = 1U << 4,
};

/* bpf_skb_adjust_room(), bpf_csum_level() */
enum {
	BPF_F_ADJ_ROOM_FIXED_GSO = 1U << 0,
	BPF_F_ADJ_ROOM_NO_CSUM_RESET = 1U << 5,
	BPF_ADJ_ROOM_NET = 0,
	BPF_ADJ_ROOM_MAC = 1,
	BPF_CSUM_LEVEL_QUERY = 0,
	BPF_CSUM_LEVEL_INC = 1,
	BPF_CSUM_LEVEL_DEC = 2,
	BPF_CSUM_LEVEL_RESET = 3,
};

/* bpf_fib_lookup() flags: TBID and SRC are newer than 6.1, MARK than those */
enum {
	BPF_FIB_LOOKUP_DIRECT = 1U << 0,
	BPF_FIB_LOOKUP_OUTPUT = 1U << 1,
	BPF_FIB_LOOKUP_SKIP_NEIGH = 1U << 2,
	BPF_FIB_LOOKUP_TBID = 1U << 3,
	BPF_FIB_LOOKUP_SRC = 1U << 4,
	BPF_FIB_LOOKUP_MARK = 1U << 5,
};

/* bpf_fib_lookup() results */
enum {
	BPF_FIB_LKUP_RET_SUCCESS = 0,
	BPF_FIB_LKUP_RET_BLACKHOLE = 1,
	BPF_FIB_LKUP_RET_UNREACHABLE = 2,
	BPF_FIB_LKUP_RET_PROHIBIT = 3,
	BPF_FIB_LKUP_RET_NOT_FWDED = 4,
	BPF_FIB_LKUP_RET_FWD_DISABLED = 5,
	BPF_FIB_LKUP_RET_UNSUPP_LWT = 6,
	BPF_FIB_LKUP_RET_NO_NEIGH = 7,
	BPF_FIB_LKUP_RET_FRAG_NEEDED = 8,
	BPF_FIB_LKUP_RET_NO_SRC_ADDR = 9,
};

enum xdp_action {
	XDP_ABORTED = 0,
	XDP_DROP = 1,
	XDP_PASS = 2,
	XDP_TX = 3,
	XDP_REDIRECT = 4,
};

enum tcx_action_base {
	TCX_NEXT = -1,
	TCX_PASS = 0,
	TCX_DROP = 2,
	TCX_REDIRECT = 7,
};

enum sk_action {
	SK_DROP = 0,
	SK_PASS = 1,
};

/* Of bpf_skb_load_bytes_relative(). */
#define BPF_HDR_START_MAC 0

#define TC_ACT_UNSPEC (-1)
#define TC_ACT_OK 0
#define TC_ACT_RECLASSIFY 1
#define TC_ACT_SHOT 2
#define TC_ACT_PIPE 3
#define TC_ACT_STOLEN 4
#define TC_ACT_REDIRECT 7

struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_spin_lock {
	__u32 val;
};

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	union {
		struct bpf_flow_keys *flow_keys;
		__u64 : 64;
	} __attribute__((aligned(8)));
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	union {
		struct bpf_sock *sk;
		__u64 : 64;
	} __attribute__((aligned(8)));
	__u32 gso_size;
	__u8 tstamp_type;
	__u32 : 24;
	__u64 hwtstamp;
};

_Static_assert(__builtin_offsetof(struct __sk_buff, flow_keys) == 144, "__sk_buff layout");
_Static_assert(sizeof(struct __sk_buff) == 192, "__sk_buff layout");

struct bpf_fib_lookup {
	__u8 family;
	__u8 l4_protocol;
	__be16 sport;
	__be16 dport;
	union {
		__u16 tot_len;
		__u16 mtu_result;
	};
	__u32 ifindex;
	union {
		__u8 tos;
		__be32 flowinfo;
		__u32 rt_metric;
	};
	union {
		__be32 ipv4_src;
		__u32 ipv6_src[4];
	};
	union {
		__be32 ipv4_dst;
		__u32 ipv6_dst[4];
	};
	union {
		struct {
			__be16 h_vlan_proto;
			__be16 h_vlan_TCI;
		};
		__u32 tbid;
	};
	__u8 smac[6];
	__u8 dmac[6];
};

_Static_assert(sizeof(struct bpf_fib_lookup) == 64, "bpf_fib_lookup layout");

struct bpf_devmap_val {
	__u32 ifindex;
	union {
		int fd;
		__u32 id;
	} bpf_prog;
};

struct bpf_cpumap_val {
	__u32 qsize;
	union {
		int fd;
		__u32 id;
	} bpf_prog;
};

/* Registers as ptrace shows them. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15;
	unsigned long r14;
	unsigned long r13;
	unsigned long r12;
	unsigned long bp;
	unsigned long bx;
	unsigned long r11;
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long ax;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long flags;
	unsigned long sp;
	unsigned long ss;
};

typedef struct pt_regs bpf_user_pt_regs_t;
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
};

struct pt_regs {
	struct user_pt_regs user_regs;
	__u64 orig_x0;
};

typedef struct user_pt_regs bpf_user_pt_regs_t;
#endif

struct bpf_perf_event_data {
	bpf_user_pt_regs_t regs;
	__u64 sample_period;
	__u64 addr;
};

#endif
