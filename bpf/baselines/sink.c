// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Counts the IPv4 frames that arrive and drops everything: the far end of a
 * test bed, and at the near end the floor of the packet generator.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} arrived SEC(".maps");

SEC("xdp")
int sink(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&arrived, &zero);

	/* EtherType of IPv4 */
	if (count && data + 14 <= end && data[12] == 0x08 && data[13] == 0x00)
		*count += 1;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
