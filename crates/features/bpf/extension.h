/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Extension headers of IPv6, AH in IPv4 too, and jumbograms: twin of features::dissect::ip. */
#ifndef FEATURES_EXTENSION_H
#define FEATURES_EXTENSION_H

#include "packet.h"

/* RFC 5533: an extension header. */
#define IPPROTO_SHIM6 140
/* A chain of more is refused under a name; RFC 8200 section 4.1 has six, each of them once. */
#define MOST_EXTENSIONS 64
/* Options that a hop-by-hop header has room for, one byte each. */
#define MOST_OPTIONS 2046

#define OPTION_PAD_ONE 0
#define OPTION_JUMBO 0xc2

struct chain {
	context *ctx;
	/* The next header; `value` is its number. */
	struct walk walk;
	__u64 ip_end;
	__u32 padding;
	__u32 identification;
	__u8 padding_of_fragment;
	__u8 fragment;
};

static __always_inline bool is_extension(__u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_AH ||
	       protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_SHIM6;
}

static __always_inline bool chain_goes_on(const struct chain *c)
{
	return is_extension(c->walk.value) && c->fragment != FRAGMENT_LATER;
}

static __always_inline void read_fragment(struct chain *c, const __u8 *header)
{
	__u16 offset = header[2] << 8 | header[3];

	c->identification = (__u32)header[4] << 24 | header[5] << 16 | header[6] << 8 | header[7];
	/* An atomic fragment (RFC 6946): without offset and M flag, the packet is complete. */
	if (offset & 0xfff8)
		c->fragment = FRAGMENT_LATER;
	else if (offset & 1)
		c->fragment = FRAGMENT_FIRST;
}

/* Why a header that ends at `end` is incomplete: the packet or its captured part is too short. */
static __always_inline long chain_cut_off(struct chain *c, __u64 end)
{
	c->walk.verdict = end > c->ip_end ? REFUSED_BAD_IP : REFUSED_TRUNCATED_IP;
	return 1;
}

static long next_extension(__u32 index, void *context)
{
	struct chain *c = context;
	__u8 header[8];
	__u32 size;

	if (!chain_goes_on(c)) {
		c->walk.verdict = DISSECTED;
		return 1;
	}
	if (frame_load(c->ctx, c->walk.at, header, sizeof(header)))
		return chain_cut_off(c, c->walk.at + sizeof(header));
	size = (header[1] + 1) * 8;
	if (c->walk.value == IPPROTO_AH)
		size = (header[1] + 2) * 4;
	if (c->walk.value == IPPROTO_FRAGMENT) {
		read_fragment(c, header);
		size = sizeof(header);
	}
	if (c->walk.at + size > c->walk.end)
		return chain_cut_off(c, c->walk.at + size);
	c->walk.value = header[0];
	c->walk.at += size;
	return 0;
}

/* Walks up to the transport, or to a later fragment's data; a verdict of enum refusal. */
static __always_inline int walk_extensions(context *ctx, struct packet *p)
{
	__u32 captured = frame_length(ctx);
	struct chain chain = {
		.ctx = ctx,
		.ip_end = (__u64)p->l3 + p->ip_length,
		.identification = p->identification,
		.fragment = p->fragment,
	};

	chain.walk.at = p->l3 + p->ip_header;
	chain.walk.end = least(least(p->ip_length, 0xff00) + p->l3, least(captured, 0xffff));
	chain.walk.value = p->key.protocol;
	chain.walk.verdict = REFUSED_TOO_MANY_EXTENSIONS;
	/* The last round only finds out that the chain has ended. */
	bpf_loop(MOST_EXTENSIONS + 1, next_extension, &chain, 0);
	p->identification = chain.identification;
	p->key.protocol = chain.walk.value;
	p->fragment = chain.fragment;
	p->payload_length -= chain.walk.at - p->l3 - p->ip_header;
	p->ip_header = chain.walk.at - p->l3;
	return chain.walk.verdict;
}

struct options {
	context *ctx;
	struct walk walk;
	__u32 padding;
	__u32 payload;
};

static long next_option(__u32 index, void *context)
{
	struct options *o = context;
	__u8 option[6];

	if (o->walk.at >= o->walk.end || frame_load(o->ctx, o->walk.at, option, 1))
		return 1;
	if (option[0] == OPTION_PAD_ONE) {
		o->walk.at++;
		return 0;
	}
	if (o->walk.at + 2 > o->walk.end || frame_load(o->ctx, o->walk.at, option, 2))
		return 1;
	if (option[0] != OPTION_JUMBO || option[1] != 4 || o->walk.at + 6 > o->walk.end) {
		o->walk.at += 2 + option[1];
		return 0;
	}
	if (!frame_load(o->ctx, o->walk.at, option, sizeof(option)))
		o->payload = (__u32)option[2] << 24 | option[3] << 16 | option[4] << 8 | option[5];
	return 1;
}

/* The payload length in the jumbo option (RFC 2675) of the hop-by-hop header at `at`; 0 without. */
static __always_inline __u32 jumbo_payload(context *ctx, __u32 at)
{
	struct options options = { .ctx = ctx };
	__u32 end;
	__u8 size;

	if (frame_load(ctx, at + 1, &size, 1))
		return 0;
	end = at + (size + 1) * 8;
	if (end > frame_length(ctx))
		return 0;
	options.walk.at = at + 2;
	options.walk.end = end;
	bpf_loop(MOST_OPTIONS, next_option, &options, 0);
	return options.payload > 0xffff ? options.payload : 0;
}

#endif
