/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The ledger of an instance or of a port: one for each CPU. */
#ifndef WEIR_STATS_H
#define WEIR_STATS_H

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_stats);
} stats SEC(".maps");

static __always_inline struct weir_stats *stats_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&stats, &zero);
}

#endif
