/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Looks addresses up in a list of routes, and says what rules make of UDP
 * packets from port 5000 to port 53 of each of them:
 *
 *     lookup ROUTES RULES ADDRESS...
 *
 *     cc lookup.c -o lookup $(pkg-config --cflags --libs lowroad_router)
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <lowroad_router.h>

static const char *const actions[] = { "accept", "drop", "punt" };

static int fail(void)
{
	fprintf(stderr, "lookup: %s\n", lowroad_router_error());
	return 1;
}

static int print(const lowroad_router *router, int family, const char *address, uint16_t hop,
		 uint32_t rule)
{
	char text[128] = "no route";
	int action = lowroad_router_action(router, family, rule);

	if (hop != LOWROAD_NO_ROUTE &&
	    lowroad_router_hop_text(router, family, hop, text, sizeof(text)) < 0)
		return fail();
	if (action < 0)
		return fail();
	printf("%s: %s, %s", address, text, actions[action]);
	if (rule != LOWROAD_NO_RULE)
		printf(" by rule %" PRIu32, rule);
	printf("\n");
	return 0;
}

static int look_up4(const lowroad_router *router, const char *name, const uint8_t address[4])
{
	struct lowroad_key4 key = { .protocol = 17,
				    .source_port = { 5000 >> 8, 5000 & 255 },
				    .destination_port = { 0, 53 } };
	uint16_t hop;
	uint32_t rule;

	memcpy(key.destination, address, 4);
	if (lowroad_router_lookup4(router, key.destination, 1, &hop) < 0 ||
	    lowroad_router_classify4(router, &key, 1, &rule) < 0)
		return fail();
	return print(router, 4, name, hop, rule);
}

static int look_up6(const lowroad_router *router, const char *name, const uint8_t address[16])
{
	struct lowroad_key6 key = { .protocol = 17,
				    .source_port = { 5000 >> 8, 5000 & 255 },
				    .destination_port = { 0, 53 } };
	uint16_t hop;
	uint32_t rule;

	memcpy(key.destination, address, 16);
	if (lowroad_router_lookup6(router, key.destination, 1, &hop) < 0 ||
	    lowroad_router_classify6(router, &key, 1, &rule) < 0)
		return fail();
	return print(router, 6, name, hop, rule);
}

int main(int argc, char **argv)
{
	lowroad_router *router;
	uint8_t address[16];
	int failed = 0, first;

	if (argc < 3) {
		fprintf(stderr, "usage: lookup ROUTES RULES ADDRESS...\n"
				"       lookup TABLE.lrt ADDRESS...\n");
		return 2;
	}
	if (strstr(argv[1], ".lrt")) {
		router = lowroad_router_open_image(argv[1]);
		first = 2;
	} else {
		router = lowroad_router_open(argv[1], argv[2]);
		first = 3;
	}
	if (!router)
		return fail();
	printf("%zu + %zu routes, %zu + %zu rules\n", lowroad_router_routes(router, 4),
	       lowroad_router_routes(router, 6), lowroad_router_rules(router, 4),
	       lowroad_router_rules(router, 6));
	for (int i = first; i < argc && !failed; i++) {
		if (inet_pton(AF_INET, argv[i], address) == 1)
			failed = look_up4(router, argv[i], address);
		else if (inet_pton(AF_INET6, argv[i], address) == 1)
			failed = look_up6(router, argv[i], address);
		else
			fprintf(stderr, "lookup: %s is no address\n", argv[i]);
	}
	lowroad_router_close(router);
	return failed;
}
