// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * recirculate: stands where a path has taken all the calls the kernel allows,
 * and sends the packet into a spare veth pair of the edge (output 1). What must
 * not be lost on the way lies in front of the frame; `resume`, at the other end
 * of the pair, goes on with output 0 of this instance.
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

/* Puts what must be kept in front of the frame. Whatever lay there is gone: 6.1 takes no more than these 32 bytes. */
static __always_inline int pack(ctx_t *ctx, struct weir_chain *chain)
{
	struct weir_meta *meta;
	int there = ctx->data - ctx->data_meta;

	if (bpf_xdp_adjust_meta(ctx, there - (int)sizeof(*meta)))
		return -1;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return -1;
	meta->magic = WEIR_META_MAGIC;
	meta->mark = chain->mark;
	meta->vid = panel_vid(chain);
	meta->port = chain->port;
	meta->passes = chain->passes;
	meta->csum_mode = chain->csum_mode;
	meta->generation = chain->generation;
	return 0;
}

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
	if (pack(ctx, chain))
		stats->reason[WEIR_R_recirculation_lost]++;
	else
		verdict = CTX_PASS;
	verdict = panel_leave_with(ctx, stats, p, 1, verdict, AWAY, WEIR_R_recirculation_lost);
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
