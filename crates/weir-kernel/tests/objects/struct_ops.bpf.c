// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A map of type struct_ops among ordinary maps. Such a map is written as a
 * variable in the section .struct_ops; here libbpf has no description of it.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_STRUCT_OPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} operations SEC(".maps");

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
