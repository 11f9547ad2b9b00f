// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * near: runs at the near end of the pair for recirculation, since a veth looks
 * at frames that its other end transmits from XDP only while it has a program
 * itself. They go on to homecoming.
 *
 * Hooks: xdp.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int near(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
