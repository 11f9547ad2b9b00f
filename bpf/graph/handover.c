// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * handover: gives the socket buffer the mark that the graph's functions gave
 * the packet, which XDP can only leave in front of the frame. Runs at tc
 * ingress of ports with `metadata = true`.
 *
 * Hooks: tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include "abi.h"

SEC("tc")
int handover(struct __sk_buff *skb)
{
	struct weir_meta *meta = (void *)(long)skb->data_meta;

	if ((void *)(meta + 1) <= (void *)(long)skb->data && meta->magic == WEIR_META_MAGIC && !meta->vid)
		skb->mark = meta->mark;
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
