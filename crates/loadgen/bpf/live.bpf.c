// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Decides what each generated frame says and sends it out of one device; run by BPF_PROG_RUN. */
#include "vmlinux.h"

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "lowroad/csum.h"
#include "lowroad/histogram.h"
#include "lowroad/license.h"
#include "lowroad/payload.h"

#define HEADERS_V4 42
#define HEADERS_V6 62

const volatile __u32 device;
const volatile __u32 flow_count;
const volatile __u32 run_id;
const volatile __u32 header_length;
/* Between packets, in picoseconds; 0: as fast as it goes. */
const volatile __u64 interval_ps;
/* Packets that are due together. */
const volatile __u32 burst = 1;
/* From the first packet until the first one is due, which it then is not late for. */
const volatile __u64 lead_ns;

struct live_flow {
	/* Ethernet, IP and UDP, with a zero UDP checksum; the rest is zero. */
	__u8 headers[64];
	/* Of pseudo-header, UDP header and the payload after its header. */
	__u32 sum;
	__u32 zero;
	/* The next sequence number. */
	__u64 next;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct live_flow);
} flows SEC(".maps");

/* How late packets were written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct histogram);
} lateness SEC(".maps");

/* Whose turn it is. One thread generates, so that nothing here is shared. */
__u32 turn;
/* Packets written so far, when the next is due, and when the first one was. */
__u64 written;
__u64 due_ns;
__u64 start_ns;

/* One look at the clock of a wait, for bpf_loop(): 1 ends it. */
static long is_due(__u32 index, void *unused)
{
	return bpf_ktime_get_ns() >= due_ns;
}

/* Some 0.1 s: no schedule has gaps of that length. */
#define LOOKS (1 << 22)

/* Waits until the next packet is due; those of a burst are due together. */
static __always_inline void wait(void)
{
	__u64 now;
	__u32 zero = 0;
	struct histogram *histogram;

	if (!start_ns)
		start_ns = bpf_ktime_get_ns() + lead_ns;
	if (!interval_ps)
		return;
	if (written % burst == 0)
		due_ns = start_ns + written * interval_ps / 1000;
	bpf_loop(LOOKS, is_due, NULL, 0);
	now = bpf_ktime_get_ns();
	histogram = bpf_map_lookup_elem(&lateness, &zero);
	if (histogram)
		histogram_count(histogram, now > due_ns ? now - due_ns : 0);
}

static __always_inline void write_payload(struct payload *payload, __u32 flow, __u64 sequence)
{
	__u64 now = bpf_ktime_get_ns();

	payload->rtp[0] = 0x80;
	payload->rtp[1] = 0;
	payload->rtp_sequence = bpf_htons((__u16)sequence);
	payload->magic = PAYLOAD_MAGIC;
	payload->run = run_id;
	payload->flow = flow;
	payload->sequence = sequence;
	payload->intended_ns = interval_ps ? due_ns : now;
	payload->sent_ns = now;
}

static __always_inline __u64 halves(__u64 word)
{
	return (__u32)word + (word >> 32);
}

/* Of the payload's header as write_payload() leaves it; a helper's call would cost more. */
static __always_inline __u32 sum_payload(const struct payload *payload)
{
	__u64 sum = *(const __u32 *)payload->rtp;

	sum += (__u64)payload->magic + payload->run + payload->flow;
	sum += halves(payload->sequence) + halves(payload->intended_ns) + halves(payload->sent_ns);
	return csum_add((__u32)sum, sum >> 32);
}

/* A frame comes back as its receiver left it, so all headers are written each time. */
static __always_inline int write_frame(void *data, void *end, __u32 index, struct live_flow *flow,
				       const __u32 length)
{
	struct payload *payload = data + length;
	struct udphdr *udp = (void *)payload - sizeof(*udp);

	if ((void *)(payload + 1) > end)
		return XDP_ABORTED;
	__builtin_memcpy(data, flow->headers, length);
	write_payload(payload, index, flow->next++);
	udp->check = csum_udp_nonzero(~csum_fold(csum_add(sum_payload(payload), flow->sum)));
	return bpf_redirect(device, 0);
}

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 index = turn;
	struct live_flow *flow = bpf_map_lookup_elem(&flows, &index);

	if (!flow)
		return XDP_ABORTED;
	turn = index + 1 < flow_count ? index + 1 : 0;
	wait();
	written++;
	if (header_length == HEADERS_V4)
		return write_frame(data, end, index, flow, HEADERS_V4);
	return write_frame(data, end, index, flow, HEADERS_V6);
}
