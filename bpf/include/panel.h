/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The patch panel, inlined at the end of every function: the instance's number
 * and the output it chose name the next hop, which is a program to tail-call or
 * a way out of the graph. Plain arrays only (docs/design/graph.md).
 *
 * A function begins with panel_enter() or counts `received` and `bytes` itself, and leaves through
 * panel_leave(), which counts the verdict; reasons are the function's own affair. Built three times: by itself (no panel),
 * for a graph (-DWEIR_PANEL), and for a graph that is watched (-DWEIR_WATCH, too), so that what is not in use costs nothing.
 */
#ifndef WEIR_PANEL_H
#define WEIR_PANEL_H

#include "chain.h"

#ifdef WEIR_PANEL

/* Index: (low bit of the generation * WEIR_VIDS + number of the instance) * WEIR_OUTS + output. */
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

/* Goes where `hop` leads. Comes back with a verdict, or not at all. Ways out are beyond the end of the array of programs. */
static __always_inline int panel_step(ctx_t *ctx, struct weir_stats *stats, struct weir_chain *chain, struct weir_hop *hop)
{
	chain->vid = hop->vid;
	stats->verdict[WEIR_NEXT]++;
	bpf_tail_call(ctx, &weir_programs, hop->slot);
	stats->verdict[WEIR_NEXT]--;
	return panel_exit(ctx, stats, hop);
}

/* Follows output `out` of the instance. */
static __always_inline int panel_follow(ctx_t *ctx, struct weir_stats *stats, struct weir_chain *chain, __u32 out)
{
	__u32 at = chain->base + chain->vid * WEIR_OUTS + (out & (WEIR_OUTS - 1));
	struct weir_hop *hop = bpf_map_lookup_elem(&weir_links, &at);

	return hop ? panel_step(ctx, stats, chain, hop) : panel_missed(stats);
}

#endif

/* To be called by a function that changed the length of the frame. */
static __always_inline void panel_resized(ctx_t *ctx)
{
#ifdef WEIR_PANEL
	struct weir_chain *chain = panel_chain();

	if (chain)
		chain->len = ctx_len(ctx);
#endif
}

/* What a function has in hand of the graph; nothing where it runs by itself. */
struct panel {
	struct weir_chain *chain;
};

/* Begins a function's work on a packet: counts it. To be called once, with what is in hand until the end. */
static __always_inline struct panel panel_enter(ctx_t *ctx, struct weir_stats *stats, __u32 packets)
{
	struct panel p = {};

	stats->received += packets;
#ifdef WEIR_PANEL
	p.chain = panel_chain();
	if (p.chain)
		stats->bytes += p.chain->len;
#else
	stats->bytes += ctx_len(ctx);
#endif
	return p;
}

/*
 * Ends a function's work on a packet: `verdict` is what it decided, CTX_PASS goes on by output `out`. What comes back is what
 * the program returns. `packets`: those on the wire that this one stands for. `reason`: of a drop, counted already, for those who watch.
 */
static __always_inline int panel_leave_with(ctx_t *ctx, struct weir_stats *stats, struct panel p, __u32 packets, int verdict,
					    __u32 out, __u32 reason)
{
#ifdef WEIR_PANEL
	if (p.chain && verdict == CTX_PASS)
		verdict = panel_follow(ctx, stats, p.chain, out);
#endif
	stats->verdict[verdict & 7] += packets;
	return ctx_return(verdict);
}

/* The same for functions that do not begin with panel_enter(). */
static __always_inline int panel_leave(ctx_t *ctx, struct weir_stats *stats, __u32 packets, int verdict, __u32 out,
				       __u32 reason)
{
	struct panel p = {};

#ifdef WEIR_PANEL
	p.chain = panel_chain();
#endif
	return panel_leave_with(ctx, stats, p, packets, verdict, out, reason);
}

#endif
