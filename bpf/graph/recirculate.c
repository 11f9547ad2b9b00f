// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * recirculate: stands where a path has taken all the calls the kernel allows,
 * and sends the packet into a spare veth pair of the edge (output 1). What must
 * not be lost on the way lies in front of the frame; `resume`, at the other end
 * of the pair, goes on with output 0 of this instance.
 *
 * Hooks: xdp.
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

/* Output that leads into the pair. */
#define AWAY	1

SEC(CTX_SECTION)
int recirculate(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();
	int verdict = XDP_DROP;
	struct weir_chain *chain;
	struct panel p;

	if (!stats)
		goto out;
	p = panel_enter(ctx, stats, 1);
	chain = p.chain;
	if (!chain)
		goto out;
	if (meta_make(ctx, chain, panel_vid(chain)))
		verdict = CTX_PASS;
	else
		stats->reason[WEIR_R_recirculation_lost]++;
	verdict = panel_leave_with(ctx, stats, p, 1, verdict, AWAY, WEIR_R_recirculation_lost);
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
