/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What may be between a frame's header and its network header, one by one. */
#ifndef FEATURES_LAYER_H
#define FEATURES_LAYER_H

#include "packet.h"

#define ETH_P_QINQ_OLD 0x9100
#define ETH_P_MPLS 0x8847
#define ETH_P_MPLS_MULTICAST 0x8848
#define ETH_P_PPPOE_SESSION 0x8864
/* Up to it, an Ethernet type field is a length and an LLC header follows. */
#define ETH_LONGEST 1500

#define ETH_P_BACKBONE_SERVICE 0x88e7

#define PPP_IP 0x0021
#define PPP_IPV6 0x0057
#define PPP_MPLS 0x0281
#define PPP_MPLS_MULTICAST 0x0283

/* Before the Ethernet header in MPLS, and the tag before a customer's frame in a provider's
 * backbone. */
#define CONTROL_WORD 4
#define SERVICE_TAG 4

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

/* Whether an Ethernet header whose EtherType carries IP follows this many bytes. */
static __always_inline bool layer_ethernet(struct layers *l, __u32 offset)
{
	__u16 carrier;

	if (layer_word(l, offset + 2 * ETH_ALEN, &carrier))
		return false;
	if (carrier != ETH_P_IP && carrier != ETH_P_IPV6 && carrier != ETH_P_8021Q &&
	    carrier != ETH_P_8021AD && carrier != ETH_P_QINQ_OLD && carrier != ETH_P_PPPOE_SESSION)
		return false;
	l->ethertype = carrier;
	l->walk.at += offset + sizeof(struct ethhdr);
	return true;
}

/* IP, which its version tells, or Ethernet, with a control word before it or without. */
static __always_inline int layer_behind_labels(struct layers *l)
{
	__u8 first;

	if (frame_load(l->ctx, l->walk.at, &first, 1))
		return -1;
	l->ethertype = first >> 4 == 4 ? ETH_P_IP : first >> 4 == 6 ? ETH_P_IPV6 : 0;
	/* An associated channel begins with the number 1. */
	if (l->ethertype || first >> 4 == 1)
		return 0;
	if (first >> 4 || !layer_ethernet(l, CONTROL_WORD))
		layer_ethernet(l, 0);
	return 0;
}

static __always_inline int layer_label(struct layers *l)
{
	__u16 low;

	if (layer_word(l, 2, &low))
		return -1;
	l->walk.at += 4;
	return low & 0x0100 ? layer_behind_labels(l) : 0;
}

/* A PPP protocol number, which may be compressed to one byte: only its last byte is odd. */
static __always_inline int layer_session(struct layers *l)
{
	__u16 protocol;
	__u8 first;

	if (frame_load(l->ctx, l->walk.at + 6, &first, 1))
		return -1;
	protocol = first;
	if (!(first & 1) && layer_word(l, 6, &protocol))
		return -1;
	l->walk.at += first & 1 ? 7 : 8;
	l->ethertype = protocol == PPP_IP		? ETH_P_IP
		       : protocol == PPP_IPV6		? ETH_P_IPV6
		       : protocol == PPP_MPLS		? ETH_P_MPLS
		       : protocol == PPP_MPLS_MULTICAST ? ETH_P_MPLS_MULTICAST
							: 0;
	return 0;
}

static __always_inline int layer_backbone(struct layers *l)
{
	if (layer_word(l, SERVICE_TAG + 2 * ETH_ALEN, &l->ethertype))
		return -1;
	l->walk.at += SERVICE_TAG + sizeof(struct ethhdr);
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

#endif
