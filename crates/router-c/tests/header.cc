// SPDX-License-Identifier: MIT OR Apache-2.0
#include <lowroad_router.h>

static_assert(sizeof(lowroad_key4) == 16 && sizeof(lowroad_key6) == 40, "bytes without holes");

int main()
{
	lowroad_router_close(lowroad_router_open(nullptr, nullptr));
}
