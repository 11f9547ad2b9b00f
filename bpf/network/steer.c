// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * steer: leads packets into and out of a service chain. It stands in a link;
 * what is selected of the IP packets that come in leaves by one of the
 * functions that are next in the chain, always the same for a flow and its
 * answers, and what is not goes on along the link.
 *
 * One program for all chains. What is no IP packet, or a malformed one, is not selected.
 *
 * Hooks: xdp, tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
const volatile __u32 weir_replay = 0;

/* All that quick_parse() can tell is asked for. */
#define has(f)		1

#include "ctx.h"
#include "stats.h"
#include "quick_parse.h"
#include "spread.h"
#include "exact.h"
#include "network.h"
#include "netselect.h"

const volatile __u32 net_half_steers = 1;

NET_ARRAY(net_steers, struct weir_net_steer);
NET_ARRAY(net_lists, __u32);

/* Whether the packet is to pass the chain. */
static __always_inline __u32 is_selected(ctx_t *ctx, struct net *n, struct weir_net_steer *steer)
{
	struct head h = { .len = ctx_len(ctx) };

	net_pull(ctx, HEADS);
	if (quick_parse(ctx, &h) != QUICK_OK)
		return 0;
	return net_selected(n->chain, &h, steer->selections, steer->n_selections);
}

SEC(CTX_SECTION)
int steer(ctx_t *ctx)
{
	__u32 reason = WEIR_R_internal, vid = 0, *way;
	struct weir_net_steer *steer;
	struct net n = {};

	if (!net_enter(ctx, &n))
		goto leave;
	steer = net_at(net_steers, n.chain, n.in->instance, net_half_steers);
	if (!steer)
		goto leave;
	vid = n.in->onward;
	if (steer->n_ways && is_selected(ctx, &n, steer)) {
		way = net_at(net_lists, n.chain, steer->ways + spread_over(spread_hash(ctx), steer->n_ways), net_half_lists);
		if (!way)
			goto leave;
		vid = *way;
	}
	reason = WEIR_NO_REASON;
leave:
	return net_leave(ctx, &n, vid, reason);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
