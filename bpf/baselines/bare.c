// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Drops every packet without looking at it: the floor under functions that drop. */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int bare(struct xdp_md *ctx)
{
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
