/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From a frame's first byte to its network header, through tags, labels, LLC/SNAP and PPPoE: twin
 * of features::dissect::link.
 */
#ifndef FEATURES_LINK_H
#define FEATURES_LINK_H

#include "packet.h"

/* The twin's MOST_LAYERS. */
#define MOST_LAYERS 20

#define ETH_P_QINQ_OLD 0x9100
#define ETH_P_MPLS 0x8847
#define ETH_P_MPLS_MULTICAST 0x8848
#define ETH_P_PPPOE_SESSION 0x8864
/* Up to it, an Ethernet type field is a length and an LLC header follows. */
#define ETH_LONGEST 1500

#define PPP_IP 0x0021
#define PPP_IPV6 0x0057

struct layers {
	context *ctx;
	struct walk walk;
	__u16 padding;
	__u16 ethertype;
	__u16 vlan;
	__u8 padding_of_tags;
	__u8 vlan_tags;
};

/* Layers are rare, so they are read by calls that also reach what is not in the frame's first part.
 */
static __always_inline int layer_word(const struct layers *l, __u32 offset, __u16 *word)
{
	__be16 read;

	if (frame_load(l->ctx, l->walk.at + offset, &read, sizeof(read)))
		return -1;
	*word = bpf_ntohs(read);
	return 0;
}

/* The EtherType that the version in an IP header's first byte means; 0 for neither. */
static __always_inline int layer_by_version(struct layers *l)
{
	__u8 first;

	if (frame_load(l->ctx, l->walk.at, &first, 1))
		return -1;
	l->ethertype = first >> 4 == 4 ? ETH_P_IP : first >> 4 == 6 ? ETH_P_IPV6 : 0;
	return 0;
}

static __always_inline int layer_tag(struct layers *l)
{
	__u16 control;

	if (layer_word(l, 0, &control) || layer_word(l, 2, &l->ethertype))
		return -1;
	if (!l->vlan_tags)
		l->vlan = control & VLAN_VID_MASK;
	l->vlan_tags++;
	l->walk.at += 4;
	return 0;
}

static __always_inline int layer_label(struct layers *l)
{
	__u16 low;

	if (layer_word(l, 2, &low))
		return -1;
	l->walk.at += 4;
	return low & 0x0100 ? layer_by_version(l) : 0;
}

static __always_inline int layer_session(struct layers *l)
{
	__u16 protocol;

	if (layer_word(l, 6, &protocol))
		return -1;
	l->walk.at += 8;
	l->ethertype = protocol == PPP_IP ? ETH_P_IP : protocol == PPP_IPV6 ? ETH_P_IPV6 : 0;
	return 0;
}

/* Whether an LLC header announces an EtherType, by SNAP or as IP's own access point. */
static __always_inline bool layer_llc(struct layers *l)
{
	__u8 llc[8];

	if (!frame_load(l->ctx, l->walk.at, llc, 8) && llc[0] == 0xaa && llc[1] == 0xaa &&
	    llc[2] == 3 && !llc[3] && !llc[4] && (!llc[5] || llc[5] == 0xf8)) {
		l->ethertype = llc[6] << 8 | llc[7];
		l->walk.at += 8;
		return true;
	}
	if (!frame_load(l->ctx, l->walk.at, llc, 3) && llc[0] == 6 && llc[1] == 6 && llc[2] == 3) {
		l->ethertype = ETH_P_IP;
		l->walk.at += 3;
		return true;
	}
	return false;
}

static long unwrap_layer(__u32 index, void *context)
{
	struct layers *l = context;
	int cut_off = 0;

	if (l->ethertype == ETH_P_8021Q || l->ethertype == ETH_P_8021AD ||
	    l->ethertype == ETH_P_QINQ_OLD)
		cut_off = layer_tag(l);
	else if (l->ethertype == ETH_P_MPLS || l->ethertype == ETH_P_MPLS_MULTICAST)
		cut_off = layer_label(l);
	else if (l->ethertype == ETH_P_PPPOE_SESSION)
		cut_off = layer_session(l);
	else if (l->ethertype > ETH_LONGEST || !layer_llc(l))
		l->walk.verdict = DISSECTED;
	if (cut_off)
		l->walk.verdict = REFUSED_TRUNCATED_LINK;
	return l->walk.verdict != REFUSED_TOO_DEEP;
}

/* Reads the Ethernet header, and the tag that the frame has lost. */
static __always_inline int link_ethernet(struct layers *l, struct packet *p)
{
	struct ethhdr room, *eth = frame_at(l->ctx, 0, &room, sizeof(room));
	__u16 control;

	if (!eth)
		return -1;
	__builtin_memcpy(p->source_mac, eth->h_source, ETH_ALEN);
	__builtin_memcpy(p->destination_mac, eth->h_dest, ETH_ALEN);
	l->ethertype = bpf_ntohs(eth->h_proto);
	l->walk.at = sizeof(*eth);
	if (frame_lost_tag(l->ctx, &control)) {
		l->vlan = control & VLAN_VID_MASK;
		l->vlan_tags = 1;
	}
	return 0;
}

/* Finds the network header; a verdict of enum refusal. */
static __always_inline int dissect_link(context *ctx, struct packet *p)
{
	struct layers layers = { .ctx = ctx };
	int cut_off;

	layers.walk.verdict = REFUSED_TOO_DEEP;
	cut_off = frame_is_raw() ? layer_by_version(&layers) : link_ethernet(&layers, p);
	if (cut_off)
		return REFUSED_TRUNCATED_LINK;
	if (layers.ethertype != ETH_P_IP && layers.ethertype != ETH_P_IPV6) {
		/* Once more, to see what is behind the last. */
		bpf_loop(MOST_LAYERS + 1 - layers.vlan_tags, unwrap_layer, &layers, 0);
		if (layers.walk.verdict != DISSECTED)
			return layers.walk.verdict;
	}
	p->l3 = layers.walk.at;
	p->ethertype = layers.ethertype;
	p->vlan = layers.vlan;
	p->vlan_tags = layers.vlan_tags;
	return layers.ethertype == ETH_P_IP || layers.ethertype == ETH_P_IPV6 ? DISSECTED
									      : REFUSED_NOT_IP;
}

#endif
