/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What becomes of a packet by its flow's class: asked for once, and kept in the flow. */
#ifndef FEATURES_VERDICT_H
#define FEATURES_VERDICT_H

#include "frame.h"
#include "tree.h"

static __always_inline void ask(const struct model *m, struct flow *f, struct tree_account *a)
{
	__u32 class = tree_class(m, f) & (TREE_CLASSES - 1);
	const struct tree_class *is = &m->head.classes[class];
	bool again = f->class && f->generation == m->head.generation;

	a->asked++;
	if (again && f->class == class + 1)
		return;
	/* A flow counts under its latest class. */
	if (again)
		a->flows[(f->class - 1) & (TREE_CLASSES - 1)]--;
	a->flows[class]++;
	f->generation = m->head.generation;
	f->class = class + 1;
	f->action = is->action;
	f->argument = is->argument;
}

/* Whether a packet goes on, and what it is given on its way. */
static __always_inline bool goes_on(context *ctx, const struct packet *p, const struct flow *f,
				    __u64 packets)
{
	if (f->action == ACTION_DROP)
		return false;
	if (f->action == ACTION_SAMPLE)
		return f->argument && packets % f->argument == 0;
	if (f->action == ACTION_MARK)
		frame_mark(ctx, p, f->argument);
	return true;
}

/* The fate of a packet that was counted under this flow. */
static __always_inline int flow_verdict(context *ctx, const struct packet *p, struct flow *f)
{
	__u32 zero = 0, account;
	void *in_force = bpf_map_lookup_elem(&models, &zero);
	struct model *m = in_force ? bpf_map_lookup_elem(in_force, &zero) : NULL;
	__u64 packets = flow_packets(f);
	struct tree_account *a;

	if (!m)
		return frame_verdict;
	account = m->head.account;
	a = bpf_map_lookup_elem(&tree_accounts, &account);
	if (!a)
		return frame_verdict;
	if (f->action == ACTION_PASS && packets >= m->head.first_packet &&
	    packets <= m->head.last_packet)
		ask(m, f, a);
	if (!f->class)
		return frame_verdict;
	a->packets[f->action & (ACTIONS - 1)]++;
	if (m->head.shadow || goes_on(ctx, p, f, packets))
		return frame_verdict;
	return FRAME_DROPPED;
}

#endif
