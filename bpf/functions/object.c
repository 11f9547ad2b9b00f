// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * object: somebody else's XDP program as a function of a graph. weir_object()
 * is not here: the program's own code is put in its place before loading
 * (crates/weir-object, docs/design/objects.md), so this file by itself does not
 * load. What the program returns decides whether the packet goes on.
 *
 * Hooks: xdp. Never loaded by itself.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
/* Bit n: a packet for which the program returned n goes on by output 0. */
const volatile __u32 weir_proceed = 1 << XDP_PASS;
/* Whether the program calls helpers that change the frame's length. */
const volatile __u32 weir_resizes = 1;

#include "ctx.h"
#include "panel.h"
#include "csum.h"
#include "finish.h"
#include "stats.h"

int weir_object(struct xdp_md *ctx);

/* The verdict of a packet that does not go on, and the reason if it is a drop. */
static __always_inline int stop(ctx_t *ctx, struct weir_stats *stats, __u32 code)
{
	switch (code) {
	case XDP_DROP:
		stats->reason[WEIR_R_object_drop]++;
		return XDP_DROP;
	case XDP_TX:
	case XDP_REDIRECT:
		finish(ctx);
		return code;
	case XDP_ABORTED:
	case XDP_PASS:
		return code;
	}
	stats->reason[WEIR_R_object_code]++;
	return XDP_ABORTED;
}

SEC(CTX_SECTION)
int object(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();
	int verdict = XDP_DROP;
	struct panel p;
	__u32 code;

	if (!stats)
		goto out;
	p = panel_enter(ctx, stats, 1);
	code = weir_object(ctx);
	if (weir_resizes)
		panel_resized(ctx);
	if (code < 32 && weir_proceed >> code & 1) {
		verdict = panel_leave_with(ctx, stats, p, 1, CTX_PASS, 0, watch_code(code));
		goto out;
	}
	/* To the stack at once, too, where panel_leave() would follow the link. */
	verdict = panel_stop(ctx, stats, p, 1, stop(ctx, stats, code), watch_code(code));
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
