// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * entry: what a port's device runs. Counts the packet for the port, reads the
 * generation word once, and hands the packet to the first instance of that
 * generation; everything behind it follows from the number it was given.
 *
 * One copy for each port, and on tc one for each direction.
 *
 * Hooks: xdp, graph on tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
const volatile __u32 weir_away = 0;	/* WEIR_AWAY_* of the port's device */

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

/* Where packets of a port begin. Index: port * 2 + low bit of the generation. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * WEIR_PORTS);
	__type(key, __u32);
	__type(value, struct weir_hop);
} weir_entries SEC(".maps");

#ifdef WEIR_HOOK_TC
/* The same of packets that leave by the port. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * WEIR_PORTS);
	__type(key, __u32);
	__type(value, struct weir_hop);
} weir_transmits SEC(".maps");
#endif

static __always_inline struct weir_hop *entry_hop(__u32 at)
{
#ifdef WEIR_HOOK_TC
	if (weir_away & WEIR_AWAY_TRANSMIT)
		return bpf_map_lookup_elem(&weir_transmits, &at);
#endif
	return bpf_map_lookup_elem(&weir_entries, &at);
}

SEC(CTX_SECTION)
int entry(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();
	struct weir_chain *chain = panel_chain();
	__u32 zero = 0, at;
	struct weir_edge *edge = bpf_map_lookup_elem(&weir_edge, &zero);
	struct weir_hop *hop;
	int verdict = XDP_DROP;

	if (!stats || !chain || !edge)
		goto out;
	chain->port = weir_port;
	chain->csum_mode = weir_csum_mode;
	chain->len = ctx_len(ctx);
	chain->mark = 0;
	chain->passes = 0;
	chain->away = weir_away;
	chain->number++;
	chain->generation = edge->generation;
	chain->base = (chain->generation & 1) * WEIR_VIDS * WEIR_OUTS;
	stats->received += ctx_segments(ctx);
	stats->bytes += chain->len;
	watch_begin(ctx, chain, 0);
	at = weir_port * 2 + (chain->generation & 1);
	hop = entry_hop(at);
	if (hop) {
		chain->vid = hop->vid;
		verdict = panel_step(ctx, stats, hop->vid, hop->slot);
	} else {
		verdict = panel_missed(ctx, stats);
	}
	stats->verdict[verdict & 7] += ctx_segments(ctx);
out:
	return ctx_return(verdict);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
