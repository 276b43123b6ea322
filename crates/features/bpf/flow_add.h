/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Counts a packet in its flow: twin of features::flow::Flow::start and add. */
#ifndef FEATURES_FLOW_ADD_H
#define FEATURES_FLOW_ADD_H

#include "flow.h"

/* The minimum number of consecutive packets with payload in a bulk. */
#define SMALLEST_BULK 4

static __always_inline void bulks_add(struct bulks *b, __s64 time_ns, __u32 payload)
{
	__u64 gap = gap_between(b->run.last_ns, time_ns);

	if (!b->run.packets || gap > bulk_gap_ns) {
		b->run.packets = 0;
		b->run.bytes = 0;
		b->run.duration_ns = 0;
		b->run.last_ns = time_ns;
	} else {
		b->run.duration_ns += gap;
		if (time_ns > b->run.last_ns)
			b->run.last_ns = time_ns;
	}
	b->run.packets++;
	b->run.bytes += payload;
	if (b->run.packets == SMALLEST_BULK) {
		b->count++;
		b->packets += b->run.packets;
		b->bytes += b->run.bytes;
		b->duration_ns += b->run.duration_ns;
	} else if (b->run.packets > SMALLEST_BULK) {
		b->packets++;
		b->bytes += payload;
		b->duration_ns += gap;
	}
}

static __always_inline void direction_add_tcp(struct direction *d, const struct packet *p)
{
	__u32 flags = p->tcp_flags;

#pragma unroll
	for (int bit = 0; bit < FLOW_FLAGS; bit++)
		d->flags[bit] += flags >> bit & 1;
	d->reserved |= p->tcp_reserved;
	if (!(d->window_marks & WINDOW_SEEN))
		d->first_window = p->window;
	d->last_window = p->window;
	d->window_marks |= WINDOW_SEEN;
	if (p->marks & PACKET_WINDOW_SCALE && !(d->window_marks & WINDOW_SCALED)) {
		d->window_marks |= WINDOW_SCALED;
		d->window_scale = p->window_scale;
	}
}

static __always_inline void direction_follow(struct direction *d, const struct packet *p)
{
	if (!d->wire.count) {
		d->first_ns = p->time_ns;
		d->last_ns = p->time_ns;
		d->min_ttl = p->ttl;
		d->max_ttl = p->ttl;
		d->tos = p->tos;
		d->min_l4_header = p->l4_header;
		return;
	}
	times_add(&d->gaps, gap_between(d->last_ns, p->time_ns));
	if (p->time_ns > d->last_ns)
		d->last_ns = p->time_ns;
	if (p->ttl < d->min_ttl)
		d->min_ttl = p->ttl;
	if (p->ttl > d->max_ttl)
		d->max_ttl = p->ttl;
	if (p->l4_header < d->min_l4_header)
		d->min_l4_header = p->l4_header;
}

static __always_inline void direction_add(struct direction *d, const struct packet *p)
{
	direction_follow(d, p);
	d->queue = p->queue;
	lengths_add(&d->wire, p->wire_length);
	lengths_add(&d->payload, p->payload_length);
	d->ip_bytes += p->ip_length;
	d->ip_header_bytes += p->ip_header;
	d->l4_header_bytes += p->l4_header;
	if (p->payload_length) {
		d->payload_packets++;
		bulks_add(&d->bulks, p->time_ns, p->payload_length);
	}
	if (p->marks & PACKET_TCP)
		direction_add_tcp(d, p);
}

static __always_inline void periods_add(struct periods *periods, __u64 gap)
{
	if (gap > active_gap_ns) {
		times_add(&periods->closed, periods->open_ns);
		times_add(&periods->idle, gap);
		periods->open_ns = 0;
	} else {
		periods->open_ns += gap;
	}
	periods->subflow_gaps += gap > subflow_gap_ns;
}

static __always_inline void flow_step(struct flow *f, const struct packet *p, __u64 gap,
				      __u32 direction)
{
	__u32 step = f->steps;
	__s32 payload = least(p->payload_length, 0x7fffffff);
	__s32 wire = least(p->wire_length, 0x7fffffff);

	if (step >= most_steps || step >= FLOW_STEPS)
		return;
	f->step_payloads[step] = direction ? -payload : payload;
	f->step_wires[step] = direction ? -wire : wire;
	f->step_gaps[step] = gap;
	f->steps = step + 1;
}

/* Anomalies, which few packets have. */
static __always_inline void flow_remark(struct flow *f, const struct packet *p, __u32 direction)
{
	f->truncated += !!(p->marks & PACKET_TRUNCATED);
	f->malformed += !!(p->marks & PACKET_MALFORMED);
	f->aggregated += !!(p->marks & PACKET_AGGREGATED);
	f->fragments += p->fragment != FRAGMENT_NONE;
	if (p->marks & PACKET_HEADLESS)
		lengths_add(&f->headless[direction], p->wire_length);
	if (has_flag(p, TCP_RST))
		f->marks |= FLOW_RESET;
	if (is_opening(p) && !(f->marks & FLOW_INITIAL)) {
		f->marks |= FLOW_INITIAL;
		f->initial = p->sequence;
	}
}

/* Counts a packet of this flow. Global, so that the verifier checks it only once. */
__noinline int flow_add(struct flow *f, const struct packet *p)
{
	__u32 direction;
	__u64 gap;

	if (!f || !p)
		return 0;
	direction = (p->sender ^ f->initiator) & 1;
	gap = gap_between(f->last_ns, p->time_ns);
	if (flow_packets(f)) {
		f->out_of_order += p->time_ns < f->last_ns;
		times_add(&f->gaps, gap);
		periods_add(&f->periods, gap);
		f->marks |= FLOW_ACTIVE;
	}
	if (p->time_ns > f->last_ns)
		f->last_ns = p->time_ns;
	flow_step(f, p, gap, direction);
	direction_add(&f->directions[direction], p);
	if (p->payload_length)
		f->directions[!direction].bulks.run.packets = 0;
	flow_remark(f, p, direction);
	return 0;
}

/* Makes zeroed memory a flow that starts with this packet, which is still to be added. */
__noinline int flow_start(struct flow *f, const struct packet *p)
{
	bool answer;

	if (!f || !p)
		return 0;
	/* An answer to a SYN that was not seen. Its sender did not start the conversation. */
	answer = has_flag(p, TCP_SYN) && has_flag(p, TCP_ACK);
	f->key = p->key;
	f->cpu = bpf_get_smp_processor_id();
	f->initiator = p->sender ^ answer;
	f->opener = p->sender;
	f->first_ns = p->time_ns;
	f->last_ns = p->time_ns;
	f->vlan = p->vlan;
	__builtin_memcpy(f->source_mac, answer ? p->destination_mac : p->source_mac, ETH_ALEN);
	__builtin_memcpy(f->destination_mac, answer ? p->source_mac : p->destination_mac, ETH_ALEN);
	if (p->key.protocol == IPPROTO_TCP && !is_opening(p))
		f->marks |= FLOW_MIDSTREAM;
	if (p->marks & PACKET_ICMP) {
		f->marks |= FLOW_ICMP;
		f->icmp_kind = p->icmp_kind;
		f->icmp_code = p->icmp_code;
		f->icmp_identifier = p->icmp_identifier;
	}
	return 0;
}

#endif
