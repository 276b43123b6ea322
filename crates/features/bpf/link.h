/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From a frame's first byte to its network header, through tags, labels, LLC/SNAP and PPPoE: twin
 * of features::dissect::link.
 */
#ifndef FEATURES_LINK_H
#define FEATURES_LINK_H

#include "layer.h"
#include "packet.h"

/* The twin's MOST_LAYERS. */
#define MOST_LAYERS 20

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
	else if (l->ethertype == ETH_P_BACKBONE_SERVICE)
		cut_off = layer_backbone(l);
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
