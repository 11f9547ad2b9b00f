// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Hands every packet to the other end of another pair: the least that joins two workloads by tc. */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

const volatile __u32 weir_device = 0;

SEC("tc")
int tc_redirect(struct __sk_buff *skb)
{
	return bpf_redirect_peer(weir_device, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
