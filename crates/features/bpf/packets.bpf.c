// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A record for each packet, in a ring of the CPU that it came in on: CPUs that share a ring wait
 * for each other. Where several readers share the flows, each has such rings of its own.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "lowroad/license.h"
#include "access_xdp.h"
#include "frame.h"
#include "wake.h"

EXPORT_STRUCT(account);
EXPORT_STRUCT(packet);

/* Their shape; userspace makes one for each CPU and reader, of its own size. */
struct packet_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(map_flags, BPF_F_NUMA_NODE);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct packet_ring);
} rings SEC(".maps");

/* Each gets all packets of its flows. */
const volatile __u32 readers = 1;

static __always_inline void record(struct packet *p, struct account *a)
{
	__u32 index = bpf_get_smp_processor_id();
	void *ring;

	if (readers > 1)
		index = index * readers + share(hash_key(&p->key), readers);
	ring = bpf_map_lookup_elem(&rings, &index);
	if (!ring)
		a->lost_cpu++;
	else if (bpf_ringbuf_output(ring, p, sizeof(*p), wakeup_flags(ring, index)))
		a->lost_ring_full++;
	else
		a->exported++;
}

SEC("xdp.frags")
int record_packets(context *ctx)
{
	struct packet packet = {};
	struct account *a = account();

	if (a && read_packet(ctx, &packet, a))
		record(&packet, a);
	return frame_verdict;
}
