/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A packet's way through the graph as the programs of a chain share it. The
 * maps whose names begin with weir_ exist once for an edge; every object
 * declares them, and the control program gives all objects the same ones.
 *
 * Only in objects built for a graph (-DWEIR_PANEL): a program by itself has no trace of it.
 */
#ifndef WEIR_CHAIN_H
#define WEIR_CHAIN_H

#ifdef WEIR_PANEL

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_chain);
} weir_chain SEC(".maps");

static __always_inline struct weir_chain *panel_chain(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&weir_chain, &zero);
}

#endif

#endif
