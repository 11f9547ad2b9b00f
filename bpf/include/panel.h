/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The patch panel, inlined at the end of every function: the instance's number
 * and the output it chose name the next hop, which is a program to tail-call or
 * a way out of the graph. Plain arrays only (docs/design/graph.md).
 *
 * A function counts `received` and `bytes` when it begins and leaves through
 * panel_leave(), which counts the verdict; reasons are the function's own affair. Built three times: by itself (no panel),
 * for a graph (-DWEIR_PANEL), and for a graph that is watched (-DWEIR_WATCH, too), so that what is not in use costs nothing.
 */
#ifndef WEIR_PANEL_H
#define WEIR_PANEL_H

#include "chain.h"

#ifdef WEIR_PANEL

/* Index: vid * WEIR_OUTS + output. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * WEIR_VIDS * WEIR_OUTS);
	__type(key, __u32);
	__type(value, struct weir_hop);
} weir_links SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, WEIR_PROGRAMS);
	__type(key, __u32);
	__type(value, __u32);
} weir_programs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, WEIR_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} weir_devices SEC(".maps");

static __always_inline int panel_missed(struct weir_stats *stats)
{
	stats->reason[WEIR_R_missed_call]++;
	return XDP_DROP;
}

/* Leaves the graph by `hop`. Returns the verdict; drops are counted. */
static __always_inline int panel_exit(ctx_t *ctx, struct weir_stats *stats, struct weir_hop *hop)
{
	int verdict;

	switch (hop->slot) {
	case WEIR_SLOT_STACK:
		return XDP_PASS;
	case WEIR_SLOT_DROP:
		stats->reason[WEIR_R_link_drop]++;
		return XDP_DROP;
	case WEIR_SLOT_TX:
		return XDP_TX;
	case WEIR_SLOT_DEVICE:
		verdict = bpf_redirect_map(&weir_devices, hop->vid, XDP_ABORTED);
		if (verdict == XDP_REDIRECT)
			return verdict;
		stats->reason[WEIR_R_redirect_failed]++;
		return XDP_DROP;
	}
	return panel_missed(stats);
}

/* Goes where `hop` leads. Comes back with a verdict, or not at all. */
static __always_inline int panel_step(ctx_t *ctx, struct weir_stats *stats, struct weir_chain *chain, struct weir_hop *hop)
{
	if (hop->slot >= WEIR_PROGRAMS)
		return panel_exit(ctx, stats, hop);
	chain->vid = hop->vid;
	stats->verdict[WEIR_NEXT]++;
	bpf_tail_call(ctx, &weir_programs, hop->slot);
	stats->verdict[WEIR_NEXT]--;
	return panel_missed(stats);
}

/* Follows output `out` of the instance. */
static __always_inline int panel_follow(ctx_t *ctx, struct weir_stats *stats, struct weir_chain *chain, __u32 out)
{
	__u32 at = chain->vid * WEIR_OUTS + (out & (WEIR_OUTS - 1));
	struct weir_hop *hop = bpf_map_lookup_elem(&weir_links, &at);

	return hop ? panel_step(ctx, stats, chain, hop) : panel_missed(stats);
}

#endif

/* Bytes of the frame, without asking the kernel for them in every function of a chain. */
static __always_inline __u32 panel_len(ctx_t *ctx)
{
#ifdef WEIR_PANEL
	struct weir_chain *chain = panel_chain();

	return chain ? chain->len : 0;
#else
	return ctx_len(ctx);
#endif
}

/* To be called by a function that changed the length of the frame. */
static __always_inline void panel_resized(ctx_t *ctx)
{
#ifdef WEIR_PANEL
	struct weir_chain *chain = panel_chain();

	if (chain)
		chain->len = ctx_len(ctx);
#endif
}

/*
 * Ends a function's work on a packet: `verdict` is what it decided, CTX_PASS goes on by output `out`. What comes back is what
 * the program returns. `packets`: those on the wire that this one stands for. `reason`: of a drop, counted already, for those who watch.
 */
static __always_inline int panel_leave(ctx_t *ctx, struct weir_stats *stats, __u32 packets, int verdict, __u32 out,
				       __u32 reason)
{
#ifdef WEIR_PANEL
	struct weir_chain *chain = panel_chain();

	if (chain && verdict == CTX_PASS)
		verdict = panel_follow(ctx, stats, chain, out);
#endif
	stats->verdict[verdict & 7] += packets;
	return ctx_return(verdict);
}

#endif
