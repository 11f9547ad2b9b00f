// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * inject: a frame comes in by a device as if its far end had sent it, and meets
 * everything that is attached there. For test runs by `weir net ping`: it is
 * attached nowhere, and what it is run on is copied, never changed.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

const volatile __u32 inject_device = 0;	/* index of the device */

/* Returns 0, or what the kernel says: a negative error number, or 1 where its queue is full. */
SEC("tc")
int inject(struct __sk_buff *skb)
{
	return bpf_clone_redirect(skb, inject_device, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
