// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The empty program: what a test run costs by itself. Benchmarks measure it in
 * turn with everything else and subtract it.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

SEC("xdp")
int harness(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
