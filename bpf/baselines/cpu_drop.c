// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Counts and drops what other CPUs handed to this one: the far end of a redirect to a CPU. */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} arrived SEC(".maps");

SEC("xdp/cpumap")
int cpu_drop(struct xdp_md *ctx)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&arrived, &zero);

	if (count)
		*count += 1;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
