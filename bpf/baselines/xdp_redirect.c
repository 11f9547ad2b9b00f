// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The least that sends a packet out of another interface. */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

SEC("xdp")
int xdp_redirect(struct xdp_md *ctx)
{
	return bpf_redirect_map(&devices, 0, XDP_ABORTED);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
