/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Longest-prefix match and five-tuple classification, read only.
 *
 * A lowroad_router holds routes and rules that do not change. Any number of
 * threads may look up in one at a time; only lowroad_router_close must come
 * after all of them. Batches of a few hundred are fastest.
 *
 * Addresses and ports are in network byte order, as packets carry them.
 *
 * Functions that can fail return NULL or a negative number; then
 * lowroad_router_error says why.
 */
#ifndef LOWROAD_ROUTER_H
#define LOWROAD_ROUTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lowroad_router lowroad_router;

/* A next hop's number where there is no route. */
#define LOWROAD_NO_ROUTE 0u
/* A rule's number where no rule matches. */
#define LOWROAD_NO_RULE UINT32_MAX

/* What a rule says. */
#define LOWROAD_ACCEPT 0
#define LOWROAD_DROP 1
/* Left to the kernel: the rule holds something that cannot be looked up. */
#define LOWROAD_PUNT 2

/*
 * The five-tuple of a packet. Ports are 0 for protocols that have none. A
 * packet whose ports cannot be seen has no key: later fragments, and IPv6
 * packets with extension headers between. Leave those to the kernel.
 */
struct lowroad_key4 {
	uint8_t protocol;
	uint8_t padding[3];
	uint8_t source[4];
	uint8_t destination[4];
	uint8_t source_port[2];
	uint8_t destination_port[2];
};

struct lowroad_key6 {
	uint8_t protocol;
	uint8_t padding[3];
	uint8_t source[16];
	uint8_t destination[16];
	uint8_t source_port[2];
	uint8_t destination_port[2];
};

/*
 * Reads files of routes and of rules, each known by its content, in all the
 * formats that `lowroad router build` reads; gzip and bzip2 are unpacked.
 * Either may be NULL: then its lookups find nothing. Returns NULL on error.
 */
lowroad_router *lowroad_router_open(const char *routes, const char *rules);

/*
 * Takes routes and rules from a table image that `lowroad router build` made;
 * those that it lacks are as NULL is above. An image that is damaged or of
 * another version is refused. Returns NULL on error.
 */
lowroad_router *lowroad_router_open_image(const char *image);

/* Frees it; NULL is nothing. */
void lowroad_router_close(lowroad_router *router);

/*
 * Why the last call of this thread failed, "" if none did; valid until its
 * next failing call.
 */
const char *lowroad_router_error(void);

/*
 * The number of the next hop of each of `count` addresses of 4 bytes, or of
 * 16, one after the other; LOWROAD_NO_ROUTE where there is no route. Numbers
 * count from 1, in each family apart. Returns 0, or -1.
 */
int lowroad_router_lookup4(const lowroad_router *router, const uint8_t *addresses, size_t count,
			   uint16_t *hops);
int lowroad_router_lookup6(const lowroad_router *router, const uint8_t *addresses, size_t count,
			   uint16_t *hops);

/*
 * The number of each key's first matching rule, LOWROAD_NO_RULE where none
 * matches. Numbers count from 0, in each family apart. Returns 0, or -1.
 */
int lowroad_router_classify4(const lowroad_router *router, const struct lowroad_key4 *keys,
			     size_t count, uint32_t *rules);
int lowroad_router_classify6(const lowroad_router *router, const struct lowroad_key6 *keys,
			     size_t count, uint32_t *rules);

/*
 * What a rule of the family (4 or 6) says: LOWROAD_ACCEPT, LOWROAD_DROP or
 * LOWROAD_PUNT; LOWROAD_NO_RULE is accepted. -1: there is no such rule.
 */
int lowroad_router_action(const lowroad_router *router, int family, uint32_t rule);

/*
 * What a next hop of the family stands for, as text ("via 192.0.2.1"); what
 * a rule of the family was made from. Writes at most `size` bytes, the last
 * one 0, and returns the length of the whole text, or -1: there is no such
 * next hop, or rule.
 */
ptrdiff_t lowroad_router_hop_text(const lowroad_router *router, int family, uint16_t hop,
				  char *text, size_t size);
ptrdiff_t lowroad_router_rule_text(const lowroad_router *router, int family, uint32_t rule,
				   char *text, size_t size);

/* How many routes and rules of the family there are; 0 for another family. */
size_t lowroad_router_routes(const lowroad_router *router, int family);
size_t lowroad_router_rules(const lowroad_router *router, int family);

#ifdef __cplusplus
}
#endif

#endif
