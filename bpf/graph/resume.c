// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * resume: what the far end of the pair for recirculation runs in place of
 * `entry`. The packet goes on where it was, in the generation that it came in
 * with; that one is the present one or the one before, whose instances are not
 * given up before the pair is empty.
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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_edge);
} weir_edge SEC(".maps");

/* 1: packets to the stack, and those that go back, are taken to the device that they came in by (homecoming.c). */
const volatile __u32 weir_homecoming = 0;

/* Leaves in front of the frame which device it came in by. */
static __always_inline int go_home(struct weir_meta *meta)
{
	__u32 port = meta->port;
	__u32 *device = bpf_map_lookup_elem(&weir_devices, &port);

	if (!device)
		return 0;
	meta->magic = WEIR_META_HOME;
	meta->port = *device;
	return 1;
}

/* Takes what was kept from in front of the frame, or leaves there where the packet came from. */
static __always_inline int unpack(ctx_t *ctx, struct weir_chain *chain, __u64 now)
{
	struct weir_meta *meta = (void *)(long)ctx->data_meta;

	if ((void *)(meta + 1) > (void *)(long)ctx->data)
		return -1;
	if (meta->magic != WEIR_META_MAGIC)
		return -1;
	if (meta->generation != now && meta->generation + 1 != now)
		return -1;
	chain->vid = meta->vid;
	chain->port = meta->port;
	chain->csum_mode = meta->csum_mode;
	chain->mark = meta->mark;
	chain->passes = meta->passes;
	chain->away = WEIR_AWAY_RECIRCULATED;
	chain->generation = meta->generation;
	chain->base = (meta->generation & 1) * WEIR_VIDS * WEIR_OUTS;
	if (weir_homecoming && go_home(meta))
		return 0;
	return bpf_xdp_adjust_meta(ctx, sizeof(*meta));
}

SEC(CTX_SECTION)
int resume(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();
	struct weir_chain *chain = panel_chain();
	__u32 zero = 0;
	struct weir_edge *edge = bpf_map_lookup_elem(&weir_edge, &zero);
	int verdict = XDP_DROP;

	if (!stats || !chain || !edge)
		goto out;
	chain->len = ctx_len(ctx);
	chain->number++;
	stats->received++;
	stats->bytes += chain->len;
	if (unpack(ctx, chain, edge->generation)) {
		stats->reason[WEIR_R_recirculation_lost]++;
	} else {
		watch_begin(ctx, chain, chain->vid);
		verdict = panel_follow(ctx, stats, chain, 0);
	}
	stats->verdict[verdict & 7]++;
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
