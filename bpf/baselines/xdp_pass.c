// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The least that lets a packet go to the stack. */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

SEC("xdp")
int xdp_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
