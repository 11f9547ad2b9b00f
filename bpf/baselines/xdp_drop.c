// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The least that drops a packet: the paper's "no touch", and with weir_read the
 * packet's EtherType is looked at before. With weir_udp only UDP is dropped, and
 * everything else passes: the least that keeps a TCP service under a UDP flood.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

const volatile __u32 weir_read = 0;
const volatile __u32 weir_udp = 0;

SEC("xdp")
int xdp_drop(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	int verdict = XDP_DROP;

	if (!weir_read && !weir_udp)
		goto out;
	/* Never true for the benchmark's packets, and the compiler cannot know. */
	if (data + 34 > end || *(__u16 *)(data + 12) == 0xffff)
		verdict = XDP_PASS;
	else if (weir_udp && (*(__u16 *)(data + 12) != __builtin_bswap16(0x0800) || data[23] != 17))
		verdict = XDP_PASS;
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
