// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Chooses which of a group of packet sockets gets a frame: all of a flow, in both directions and in
 * fragments, go to one. The kernel's own hash takes tunnels apart, tells the directions of ESP
 * apart by their SPI, and sends fragments elsewhere than whole packets of their flow.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "lowroad/license.h"
#include "access_socket.h"
#include "dissect.h"
#include "flow_hash.h"
#include "fragments.h"

/* Inner flows: what carries them has other ports in each direction. */
const volatile __u8 by_addresses = 0;

SEC("socket")
int choose_socket(context *ctx)
{
	struct packet packet = { .wire_length = FRAME_ANY_LENGTH, .time_ns = bpf_ktime_get_ns() };

	if (dissect(ctx, &packet) != DISSECTED)
		return 0;
	if (packet.fragment != FRAGMENT_NONE)
		complete_fragment(&packet);
	return by_addresses ? hash_addresses(&packet.key) : hash_key(&packet.key);
}
