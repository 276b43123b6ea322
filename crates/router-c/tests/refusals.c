/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ends with 0 if everything below is refused, and says why. */
#include <stdio.h>
#include <string.h>

#include <lowroad_router.h>

#define EXPECT(truth)                                                                              \
	do {                                                                                       \
		if (!(truth)) {                                                                    \
			fprintf(stderr, "not true: %s (%s)\n", #truth, lowroad_router_error());    \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

static int says(const char *part)
{
	return strstr(lowroad_router_error(), part) != NULL;
}

int main(void)
{
	const uint8_t address[4] = { 192, 0, 2, 1 };
	struct lowroad_key4 key = { .protocol = 6 };
	uint16_t hop = 7;
	uint32_t rule = 7;
	char text[3] = "ab";

	EXPECT(lowroad_router_error()[0] == 0);
	EXPECT(!lowroad_router_open("/nowhere/routes", NULL) && says("/nowhere/routes"));
	EXPECT(!lowroad_router_open_image(NULL) && says("NULL"));
	EXPECT(!lowroad_router_open_image("/dev/null") && says("no table image"));
	EXPECT(lowroad_router_lookup4(NULL, address, 1, &hop) == -1 && says("NULL"));

	lowroad_router *router = lowroad_router_open(NULL, NULL);

	EXPECT(router);
	EXPECT(lowroad_router_lookup4(router, NULL, 1, &hop) == -1 && says("NULL"));
	EXPECT(lowroad_router_lookup4(router, NULL, 0, NULL) == 0);
	EXPECT(lowroad_router_lookup4(router, address, 1, &hop) == 0 && hop == LOWROAD_NO_ROUTE);
	EXPECT(lowroad_router_classify4(router, &key, 1, &rule) == 0 && rule == LOWROAD_NO_RULE);
	EXPECT(lowroad_router_action(router, 4, LOWROAD_NO_RULE) == LOWROAD_ACCEPT);
	EXPECT(lowroad_router_action(router, 4, 0) == -1 && says("no rule 0"));
	EXPECT(lowroad_router_action(router, 5, 0) == -1 && says("IPv5"));
	EXPECT(lowroad_router_hop_text(router, 6, 0, text, sizeof(text)) == -1 && says("hop 0"));
	EXPECT(lowroad_router_rule_text(router, 4, LOWROAD_NO_RULE, text, sizeof(text)) == 0);
	EXPECT(text[0] == 0);
	EXPECT(lowroad_router_routes(router, 4) == 0 && lowroad_router_rules(router, 6) == 0);
	lowroad_router_close(router);
	lowroad_router_close(NULL);
	return 0;
}
