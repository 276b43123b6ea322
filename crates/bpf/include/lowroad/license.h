/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The licence every program declares to the kernel; included once, by the .bpf.c file. */
#ifndef LOWROAD_LICENSE_H
#define LOWROAD_LICENSE_H

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#endif
