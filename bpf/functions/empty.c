// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * empty: counts packets and lets them go on. What a hop costs is measured with
 * it; in a graph it is a counter between two functions.
 *
 * Hooks: xdp, graph on tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;

#include "ctx.h"
#include "panel.h"
#include "stats.h"

SEC(CTX_SECTION)
int empty(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();
	int verdict = ctx_return(XDP_DROP);
	struct panel p;

	if (!stats)
		goto out;
	p = panel_enter(ctx, stats, ctx_segments(ctx));
	verdict = panel_leave_with(ctx, stats, p, ctx_segments(ctx), CTX_PASS, 0, WEIR_NO_REASON);
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
