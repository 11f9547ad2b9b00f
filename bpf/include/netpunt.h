/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the programs of virtual networks know of helpers: processes that are
 * handed packets and send some (docs/design/punt.md).
 */
#ifndef WEIR_NETPUNT_H
#define WEIR_NETPUNT_H

/* By VID. The helper writes heard_ns, programs the rest. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_net_punted);
} net_punted SEC(".maps");

static __always_inline struct weir_net_punted *net_punted_at(__u32 vid)
{
	return bpf_map_lookup_elem(&net_punted, &vid);
}

#endif
