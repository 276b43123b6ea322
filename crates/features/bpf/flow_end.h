/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* When a flow has ended: twin of features::flow::Timers. */
#ifndef FEATURES_FLOW_END_H
#define FEATURES_FLOW_END_H

#include "flow.h"

/* The timers of features::flow::Timers. Without a linger time, TCP flags do not end flows. */
const volatile __u64 idle_ns = 120000000000ULL;
const volatile __u64 active_ns = 1800000000000ULL;
const volatile __u64 linger_ns = 5000000000ULL;
const volatile __u8 lingers = 1;

static __always_inline bool is_closed(const struct flow *f)
{
	return f->marks & FLOW_RESET || (has_fin(f, 0) && has_fin(f, 1));
}

static __always_inline bool is_due(__s64 since, __u64 timeout, __s64 now)
{
	return now >= since && gap_between(since, now) >= timeout;
}

/* The reason that a flow has ended by a time without a further packet, if it has. */
static __always_inline int flow_ended_by(const struct flow *f, __s64 now)
{
	bool closed = lingers && is_closed(f);

	if (!is_due(f->last_ns, closed ? linger_ns : idle_ns, now))
		return END_NONE;
	return closed ? END_CLOSED : END_IDLE;
}

/* The reason that a flow has ended before this packet of the same key, if it has. */
static __always_inline int flow_ended_before(const struct flow *f, const struct packet *p)
{
	int end = flow_ended_by(f, p->time_ns);
	bool ended;

	if (end != END_NONE)
		return end;
	if (is_due(f->first_ns, active_ns, p->time_ns))
		return END_ACTIVE;
	if (!lingers || !is_opening(p))
		return END_NONE;
	ended = f->marks & FLOW_RESET || has_fin(f, 0) || has_fin(f, 1);
	if (ended && !(f->marks & FLOW_INITIAL && f->initial == p->sequence))
		return END_CLOSED;
	return END_NONE;
}

#endif
