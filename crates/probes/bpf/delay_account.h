/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What one arrival changes in its subscriber's counts, order and histogram. */
#ifndef PROBES_DELAY_ACCOUNT_H
#define PROBES_DELAY_ACCOUNT_H

#include "delay.h"
#include "delay_identify.h"

/* The subscriber's endpoint this datagram went to, or NULL. */
static __always_inline const struct endpoint *find_endpoint(const struct datagram *datagram)
{
	__u64 mixed = datagram->address[0] ^ datagram->address[1] ^ (__u64)datagram->port << 16;
	__u32 slot = mixed * endpoint_multiplier >> (64 - DELAY_ENDPOINTS_LOG2);
	const struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &slot);

	if (!endpoint || !endpoint->used || endpoint->port != datagram->port ||
	    endpoint->address[0] != datagram->address[0] ||
	    endpoint->address[1] != datagram->address[1])
		return NULL;
	return endpoint;
}

/* The time the packet was sent, or 0 where its stamp has been overwritten. Finds `sequence`. */
static __always_inline __u64 find_stamp(struct identity *identity)
{
	const struct stamp *stamp;

	if (stamp_in_payload)
		return identity->sent_ns;
	if (match_key == DELAY_KEY_PAYLOAD) {
		stamp = tagged_stamp(identity);
		if (!stamp)
			return 0;
		identity->sequence = stamp->sequence;
		return stamp->ns;
	}
	stamp = bpf_map_lookup_elem(&stamps, &identity->slot);
	if (!stamp || stamp->tag != identity->tag || stamp->sequence != identity->sequence)
		return 0;
	return stamp->ns;
}

/* Whether this is the first copy; counts which it is. */
static __always_inline int first_copy(struct tally *tally, __u32 subscriber, __u32 sequence)
{
	__u32 at = (__u64)subscriber * (capacity / 64) + sequence / 64;
	__u64 bit = 1ULL << (sequence & 63);
	__u64 *word;

	if (sequence >= capacity) {
		tally->beyond++;
		return 0;
	}
	word = bpf_map_lookup_elem(&bitmap, &at);
	if (!word)
		return 0;
	/* A second CPU may be setting a neighbouring bit of the same word. */
	if (*word & bit || __sync_fetch_and_or(word, bit) & bit) {
		tally->duplicates++;
		return 0;
	}
	tally->unique++;
	return 1;
}

static __always_inline void note_order(struct tally *tally, struct arrival *arrival, __u32 sequence,
				       __u64 now)
{
	__u64 gap = now - arrival->last_ns;

	if (arrival->last_ns && (__s64)gap > 0 && gap > arrival->max_gap_ns)
		arrival->max_gap_ns = gap;
	arrival->last_ns = now;
	if (sequence < arrival->next_sequence)
		tally->reordered++;
	else
		arrival->next_sequence = sequence + 1;
}

static __always_inline void note_jitter(struct arrival *arrival, __s64 delay)
{
	__s64 difference = delay - arrival->last_delay_ns;

	if (difference < 0)
		difference = -difference;
	if (arrival->last_delay_ns)
		arrival->jitter_16 += difference - ((arrival->jitter_16 + 8) >> 4);
	arrival->last_delay_ns = delay;
}

static __always_inline void note_delay(struct tally *tally, struct arrival *arrival,
				       __u32 subscriber, __u64 sent_ns, __u64 now)
{
	__u32 index = split_histograms ? subscriber : 0;
	struct histogram *histogram;
	__s64 delay = now - sent_ns;

	if (!sent_ns) {
		tally->unmatched++;
		return;
	}
	if (delay < 0) {
		tally->negative++;
		return;
	}
	histogram = bpf_map_lookup_elem(&histograms, &index);
	if (histogram)
		histogram_count(histogram, delay);
	note_jitter(arrival, delay);
}

/* Counts a datagram that arrived at `endpoint` at `now`. */
static __always_inline void account_arrival(const struct endpoint *endpoint,
					    struct identity *identity, __u64 now)
{
	__u32 subscriber = endpoint->subscriber;
	struct tally *tally = bpf_map_lookup_elem(&tallies, &subscriber);
	struct arrival *arrival = bpf_map_lookup_elem(&arrivals, &subscriber);
	__u64 sent_ns;

	if (!tally || !arrival)
		return;
	tally->received++;
	sent_ns = find_stamp(identity);
	if (identity->flow != endpoint->flow || identity->run != run ||
	    (match_key == DELAY_KEY_PAYLOAD && !sent_ns)) {
		tally->foreign++;
		return;
	}
	if (!first_copy(tally, subscriber, identity->sequence))
		return;
	note_order(tally, arrival, identity->sequence, now);
	note_delay(tally, arrival, subscriber, sent_ns, now);
}

#endif
