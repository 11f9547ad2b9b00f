// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * stub: fills slots that no instance has. A call that still leads here is
 * counted as missed.
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
int stub(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();

	if (!stats)
		goto out;
	panel_enter(ctx, stats, ctx_segments(ctx));
	stats->reason[WEIR_R_missed_call] += ctx_segments(ctx);
	stats->verdict[XDP_DROP] += ctx_segments(ctx);
out:
	return ctx_return(XDP_DROP);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
