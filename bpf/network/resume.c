// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * resume: runs at the far end of the pair for recirculation. The packet goes on
 * by the interface and in the half that are written in its `cb`: it came round
 * because it had taken all calls, or as a copy for one member of a bridge.
 *
 * What a helper sends comes in by the far end of the pair, with its way on behind it (docs/design/punt.md).
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
#include "netpunt.h"

/* Takes what a helper put behind the packet. Returns the VID that it leaves by, 0: it may not. */
static __always_inline __u32 injected(ctx_t *ctx, struct net *n)
{
	__u32 len = ctx_word(ctx, len);
	struct weir_net_inject said;
	struct weir_net_punted *p;
	struct weir_vi *out;

	if (len < WEIR_FRAME_MIN + sizeof(said) || bpf_skb_load_bytes(ctx, len - sizeof(said), &said, sizeof(said)))
		return 0;
	/* A VID is nobody else's before a generation has passed without it. */
	if (said.magic != WEIR_NI_MAGIC || n->chain->generation - said.generation > 1)
		return 0;
	out = net_interface(n->chain, said.vid);
	p = net_punted_at(said.vid);
	if (!out || !p || !(out->flags & (WEIR_VF_PUNT | WEIR_VF_DHCP)) || bpf_skb_change_tail(ctx, len - sizeof(said), 0))
		return 0;
	__sync_fetch_and_add(&p->injected, 1);
	n->chain->origin = said.vid;
	n->chain->vid = said.vid;
	return said.vid;
}

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
	if (ctx->cb[WEIR_CB_MAGIC] != WEIR_CB_IS_OURS) {
		vid = injected(ctx, &n);
		if (vid) {
			reason = WEIR_NO_REASON;
			netwatch_begin(ctx, chain, vid);
		}
		goto leave;
	}
	vid = ctx->cb[WEIR_CB_VID];
	place = ctx->cb[WEIR_CB_WHERE];
	chain->half = place & WEIR_CW_HALF ? 1 : 0;
	chain->place = place & (WEIR_CW_TUNNEL | WEIR_CW_SHOWN);
	chain->rounds = place >> 8;
	chain->remote = ctx->cb[WEIR_CB_REMOTE];
	chain->origin = ctx->cb[WEIR_CB_PORT];
	chain->vid = vid;
	reason = WEIR_NO_REASON;
	netwatch_begin(ctx, chain, vid);
leave:
	action = net_leave(ctx, &n, vid, reason);
out:
	return action;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
