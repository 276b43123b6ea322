// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Reads one field of each kind of type that vmlinux.h declares, so that loading it checks them. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "lowroad/export.h"
#include "lowroad/license.h"

struct seen {
	__u32 pid;
	__u32 inum;
};

EXPORT_STRUCT(seen);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} ports SEC(".maps");

__u32 observed;

SEC("tp_btf/sched_switch")
int BPF_PROG(read_task, bool preempt, struct task_struct *previous, struct task_struct *next)
{
	struct seen *seen = bpf_ringbuf_reserve(&events, sizeof(*seen), 0);

	if (!seen)
		return 0;
	seen->pid = next->pid + next->tgid + (next->flags & PF_KTHREAD) + next->comm[0];
	seen->inum = BPF_CORE_READ(next, nsproxy, net_ns, ns.inum) +
		     (__u32)BPF_CORE_READ(next, group_leader, start_time) +
		     BPF_CORE_READ(next, real_parent, tgid);
	bpf_ringbuf_submit(seen, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/napi_poll")
int BPF_PROG(read_napi, struct napi_struct *napi, int work, int budget)
{
	observed = napi->napi_id + napi->weight + napi->dev->ifindex + napi->dev->mtu;
	observed += BPF_CORE_READ(napi, dev, nd_net.net, ns.inum);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(read_skb, struct sk_buff *skb)
{
	observed = skb->len + skb->data_len + skb->mac_len + skb->hash + skb->mark + skb->priority +
		   skb->protocol + skb->transport_header + skb->network_header + skb->mac_header +
		   skb->dev->name[0] + (skb->data - skb->head);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(read_registers, struct pt_regs *regs, long id)
{
	observed = PT_REGS_PARM1_CORE_SYSCALL(regs);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(read_irq, int irq, struct irqaction *action)
{
	char first = 0;

	bpf_probe_read_kernel(&first, sizeof(first), action->name);
	observed = first;
	return 0;
}

SEC("tp_btf/xdp_redirect")
int BPF_PROG(read_prog, struct net_device *dev, struct bpf_prog *prog)
{
	observed = BPF_CORE_READ(prog, aux, id);
	return 0;
}

SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	observed = PT_REGS_IP(&ctx->regs) + ctx->sample_period;
	return 0;
}

SEC("xdp")
int look_up(struct xdp_md *ctx)
{
	struct bpf_fib_lookup fib = { .family = AF_INET, .ifindex = ctx->ingress_ifindex };

	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return XDP_PASS;
	return bpf_redirect_map(&ports, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
}

SEC("tc")
int classify(struct __sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present || skb->gso_segs > 1)
		return TC_ACT_UNSPEC;
	observed = skb->ifindex + skb->len + skb->wire_len + skb->gso_size + skb->tstamp;
	return TC_ACT_OK;
}
