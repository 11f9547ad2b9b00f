/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where packets enter virtual networks: the generation's word is read once, and
 * the way through begins. For programs on devices: of workloads, of the underlay.
 */
#ifndef WEIR_NETENTRY_H
#define WEIR_NETENTRY_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_net_edge);
} net_edge SEC(".maps");

/* Begins a packet's way and counts it; 0: a map is missing. The caller sets the chain's VID and origin. */
static __always_inline int net_begin(ctx_t *ctx, struct net *n)
{
	__u32 zero = 0;
	struct weir_net_edge *edge = bpf_map_lookup_elem(&net_edge, &zero);
	struct weir_net_chain *chain = net_chain_here();

	n->stats = stats_here();
	n->chain = chain;
	n->packets = ctx_segments(ctx);
	if (!edge || !chain || !n->stats)
		return 0;
	chain->generation = edge->generation;
	chain->half = chain->generation & 1;
	chain->vid = 0;
	chain->place = 0;
	chain->calls = 0;
	chain->rounds = 0;
	chain->remote = 0;
	chain->origin = 0;
	chain->mark = 0;
	chain->number++;
	n->stats->received += n->packets;
	n->stats->bytes += ctx_len(ctx);
	return 1;
}

#endif
