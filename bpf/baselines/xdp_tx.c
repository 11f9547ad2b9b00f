// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The least that sends a packet back out of the interface it came in by. */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

SEC("xdp")
int xdp_tx(struct xdp_md *ctx)
{
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
