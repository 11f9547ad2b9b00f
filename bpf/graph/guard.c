// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * guard: stands on a link that closes a loop, and drops a packet that takes
 * the link more often than configuration allows.
 *
 * Each guarded link of an edge has some bits of chain->passes for itself.
 *
 * Hooks: xdp, graph on tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
const volatile __u32 weir_guard_shift = 0;	/* first bit of this link's count */
const volatile __u32 weir_guard_mask = 0;	/* of the count, behind the shift */
const volatile __u32 weir_guard_limit = 0;	/* times a packet may take the link; at most the mask */

#include "ctx.h"
#include "panel.h"
#include "stats.h"

SEC(CTX_SECTION)
int guard(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();
	int verdict = XDP_DROP;
	struct weir_chain *chain;
	struct panel p;
	__u32 taken;

	if (!stats)
		goto lost;
	p = panel_enter(ctx, stats, ctx_segments(ctx));
	chain = p.chain;
	if (!chain)
		goto lost;
	taken = (chain->passes >> (weir_guard_shift & 31)) & weir_guard_mask;
	if (taken >= weir_guard_limit) {
		stats->reason[WEIR_R_loop_guard] += ctx_segments(ctx);
	} else {
		verdict = CTX_PASS;
		chain->passes += 1U << (weir_guard_shift & 31);
	}
	return panel_leave_with(ctx, stats, p, ctx_segments(ctx), verdict, 0, WEIR_R_loop_guard);
lost:
	return ctx_return(XDP_DROP);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
