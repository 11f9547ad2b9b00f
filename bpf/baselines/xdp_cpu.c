// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The least that hands packets to another CPU. With weir_udp UDP is dropped and
 * only the rest goes there: the paper's program against floods.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

const volatile __u32 weir_udp = 0;
const volatile __u32 weir_cpu = 0;

struct queue {
	__u32 size;
	__u32 program;	/* its descriptor */
};

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);	/* by CPU; as many as there are, set before loading */
	__type(key, __u32);
	__type(value, struct queue);
} cpus SEC(".maps");

SEC("xdp")
int xdp_cpu(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	int verdict = XDP_DROP;

	if (!weir_udp || data + 34 > end || *(__u16 *)(data + 12) != __builtin_bswap16(0x0800) || data[23] != 17)
		verdict = bpf_redirect_map(&cpus, weir_cpu, XDP_ABORTED);
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
