/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The calls of panel.h for functions that stand in a virtual network with a
 * program of their own: a packet leaves by the other interface than the one it
 * came in by, or goes back by that one where the function sends it (XDP_TX), or is
 * dropped. Which output a function chooses makes no difference.
 */
#ifndef WEIR_PANEL_NET_H
#define WEIR_PANEL_NET_H

#include "stats.h"
#include "exact.h"
#include "network.h"

/* Bytes of a frame that functions read where they lie: headers nearly always fit. */
#define PANEL_HEADS	128

/* What a function has in hand of the network. */
struct panel {
	__u32 len;		/* bytes of the frame when the function began */
};

static __always_inline __u32 panel_len(ctx_t *ctx)
{
	return ctx_len(ctx);
}

/* To be called by a function that changed the length of the frame. */
static __always_inline void panel_resized(ctx_t *ctx)
{
}

static __always_inline struct panel panel_enter(ctx_t *ctx, struct weir_stats *stats, __u32 packets)
{
	struct panel p = { .len = ctx_len(ctx) };

	net_pull(ctx, PANEL_HEADS);
	stats->received += packets;
	stats->bytes += p.len;
	return p;
}

/* Ends a function's work: verdict and reason as of panel_leave_with(). Functions begin in many ways, so what came in is counted here. */
static __always_inline int panel_end(ctx_t *ctx, struct weir_stats *stats, __u32 packets, __u32 verdict, __u32 reason)
{
	struct net n = { .stats = stats, .chain = net_chain_here(), .packets = packets };
	__u32 why = WEIR_R_internal;
	int action = NET_DROPPED;
	struct weir_vi *in;

	if (!stats || !n.chain)
		goto drop;
	net_count(n.chain, packets, ctx_len(ctx), 0);
	if (verdict != CTX_PASS && verdict != XDP_TX) {
		/* The function has counted why. */
		stats->verdict[verdict & 7] += packets;
		if (verdict == CTX_DROP)
			net_count_drop(&n, reason);
		netwatch_end(ctx, n.chain, verdict & 7, reason);
		goto out;
	}
	in = net_interface(n.chain, n.chain->vid);
	if (!in)
		goto drop;
	if (verdict == CTX_PASS)
		why = net_send_onward(ctx, &n, in, &action);
	else
		why = net_send(ctx, &n, n.chain->vid, &action);
	if (why == WEIR_NO_REASON)
		goto out;
drop:
	action = net_drop(ctx, &n, why);
out:
	return action;
}

/* As in panel.h, for functions that keep their state on the stack: nothing may be called from more than 256 bytes of it and call on. */
static __always_inline int panel_leave_with(ctx_t *ctx, struct weir_stats *stats, struct panel p, __u32 packets, int verdict,
					    __u32 out, __u32 reason)
{
	return panel_end(ctx, stats, packets, verdict, reason);
}

/* As in panel.h, for functions that call deeply: what this needs of the stack is not to stand below all of that. */
static __noinline int panel_end_apart(ctx_t *ctx, struct weir_stats *stats, __u32 packets, __u32 end)
{
	if (!stats)
		return NET_DROPPED;
	return panel_end(ctx, stats, packets, end >> 16, end & 0xffff);
}

static __always_inline int panel_leave(ctx_t *ctx, struct weir_stats *stats, __u32 packets, int verdict, __u32 out, __u32 reason)
{
	return panel_end_apart(ctx, stats, packets, verdict << 16 | reason);
}

#endif
