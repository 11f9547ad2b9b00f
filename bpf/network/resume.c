// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * resume: runs at the far end of the pair for recirculation. The packet goes on
 * by the interface and in the half that are written in its `cb`: it came round
 * because it had taken all calls, or as a copy for one member of a bridge.
 *
 * What is not ours there is dropped: nobody else sends into the pair. A half outlives its packets, because applying waits for them.
 *
 * Hooks: tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_replay = 0;

#include "ctx.h"
#include "stats.h"
#include "exact.h"
#include "network.h"
#include "netentry.h"

SEC(CTX_SECTION)
int resume(ctx_t *ctx)
{
	__u32 place, vid = 0, reason = WEIR_R_recirculation_lost;
	struct weir_net_chain *chain;
	int action = NET_DROPPED;
	struct net n = {};

	if (!net_begin(ctx, &n))
		goto out;
	chain = n.chain;
	if (ctx->cb[WEIR_CB_MAGIC] != WEIR_CB_IS_OURS)
		goto leave;
	vid = ctx->cb[WEIR_CB_VID];
	place = ctx->cb[WEIR_CB_WHERE];
	chain->half = place & WEIR_CW_HALF ? 1 : 0;
	chain->place = place & (WEIR_CW_TUNNEL | WEIR_CW_SHOWN);
	chain->rounds = place >> 8;
	chain->remote = ctx->cb[WEIR_CB_REMOTE];
	chain->origin = ctx->cb[WEIR_CB_PORT];
	chain->vid = vid;
	reason = WEIR_NO_REASON;
leave:
	action = net_leave(ctx, &n, vid, reason);
out:
	return action;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
