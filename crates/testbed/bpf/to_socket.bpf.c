// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Decides that every frame goes to the AF_XDP socket of its queue, and none up the stack. */
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

#include "lowroad/license.h"

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp")
int to_socket(struct xdp_md *ctx)
{
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
}
