// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Parse Ethernet, IPv4 and UDP, look the destination up in a hash map, count
 * the packet: the program `weir bench vm` compares engines with.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} hosts SEC(".maps");

SEC("xdp")
int lookup(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 host;
	__u64 *packets;

	if (data + 14 + 20 + 8 > end)
		return XDP_DROP;
	if (*(__be16 *)(data + 12) != bpf_htons(0x0800))
		return XDP_PASS;
	if (data[14] != 0x45 || data[23] != 17)
		return XDP_PASS;
	if (*(__be16 *)(data + 14 + 20 + 2) != bpf_htons(53))
		return XDP_PASS;
	host = *(__be32 *)(data + 14 + 16);
	packets = bpf_map_lookup_elem(&hosts, &host);
	if (!packets)
		return XDP_DROP;
	*packets += 1;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
