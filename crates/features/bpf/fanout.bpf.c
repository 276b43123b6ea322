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
#include "fragments.h"

/* Inner flows: what carries them has other ports in each direction. */
const volatile __u8 by_addresses = 0;

/* A finaliser of MurmurHash3. */
static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash ^= value;
	hash ^= hash >> 33;
	hash *= 0xff51afd7ed558ccdULL;
	hash ^= hash >> 33;
	return hash;
}

static __always_inline __u32 key_hash(const struct flow_key *key)
{
	__u64 hash = mix(key->addresses[0][0], key->addresses[0][1]);

	hash = mix(mix(hash, key->addresses[1][0]), key->addresses[1][1]);
	if (!by_addresses)
		hash = mix(hash, (__u64)key->ports[0] << 32 | key->ports[1] << 16 | key->protocol);
	return hash >> 32;
}

SEC("socket")
int choose_socket(context *ctx)
{
	struct packet packet = { .wire_length = FRAME_ANY_LENGTH, .time_ns = bpf_ktime_get_ns() };

	if (dissect(ctx, &packet) != DISSECTED)
		return 0;
	if (packet.fragment != FRAGMENT_NONE)
		complete_fragment(&packet);
	return key_hash(&packet.key);
}
