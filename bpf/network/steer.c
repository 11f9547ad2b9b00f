// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * steer: leads packets into and out of a service chain. It stands in a link;
 * what is selected of the IP packets that come in leaves by one of the
 * functions that are next in the chain, always the same for a flow and its
 * answers, and what is not goes on along the link.
 *
 * One program for all chains. What is no IP packet, or a malformed one, is not selected.
 *
 * Hooks: xdp, tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
const volatile __u32 weir_replay = 0;

/* All that quick_parse() can tell is asked for. */
#define has(f)		1

#include "ctx.h"
#include "stats.h"
#include "quick_parse.h"
#include "spread.h"
#include "exact.h"
#include "network.h"

#define HEADS		128		/* bytes of a frame that headers nearly always fit into */
#define SELECTIONS_MAX	1024

const volatile __u32 net_half_steers = 1;
const volatile __u32 net_half_selections = 1;

NET_ARRAY(net_steers, struct weir_net_steer);
NET_ARRAY(net_selections, struct weir_net_selection);
NET_ARRAY(net_lists, __u32);

/* A packet as selections see it: addresses as in packets. */
struct seen {
	struct weir_net_chain *chain;
	__u64 source[2], target[2];
	__u32 first;		/* of the run of selections */
	__u32 from, to;		/* ports */
	__u32 has_ports;
	__u32 protocol;
	__u32 selected;
};

static __always_inline int within(__u64 *address, __u64 *mask, __u64 *net)
{
	return (address[0] & mask[0]) == net[0] && (address[1] & mask[1]) == net[1];
}

static long compare(__u32 i, void *arg)
{
	struct seen *p = arg;
	struct weir_net_selection *s = net_at(net_selections, p->chain, p->first + i, net_half_selections);

	if (!s)
		return 1;
	if (s->protocol && s->protocol != p->protocol)
		return 0;
	if (!within(p->source, s->source_mask, s->source) || !within(p->target, s->target_mask, s->target))
		return 0;
	if (s->ports && (!p->has_ports || p->from < s->source_low || p->from > s->source_high || p->to < s->target_low ||
			 p->to > s->target_high))
		return 0;
	p->selected = 1;
	return 1;
}

/* Whether the packet is to pass the chain. */
static __always_inline __u32 is_selected(ctx_t *ctx, struct net *n, struct weir_net_steer *steer)
{
	struct seen p = { .chain = n->chain, .first = steer->selections };
	struct head h = { .len = ctx_len(ctx) };

	net_pull(ctx, HEADS);
	if (quick_parse(ctx, &h) != QUICK_OK)
		return 0;
	if (!steer->n_selections)
		return 1;
	p.protocol = h.kind & 255;
	p.has_ports = h.has_ports && (p.protocol == IPPROTO_TCP || p.protocol == IPPROTO_UDP || p.protocol == IPPROTO_SCTP);
	p.from = h.ports >> 16;
	p.to = h.ports & 0xffff;
	if (h.family == 4) {
		p.source[1] = NET_MAPPED(bpf_htonl((__u32)h.src_low));
		p.target[1] = NET_MAPPED(bpf_htonl((__u32)h.dst_low));
	} else {
		p.source[0] = bpf_cpu_to_be64(h.src_high);
		p.source[1] = bpf_cpu_to_be64(h.src_low);
		p.target[0] = bpf_cpu_to_be64(h.dst_high);
		p.target[1] = bpf_cpu_to_be64(h.dst_low);
	}
	bpf_loop(steer->n_selections & (SELECTIONS_MAX - 1), compare, &p, 0);
	return p.selected;
}

SEC(CTX_SECTION)
int steer(ctx_t *ctx)
{
	__u32 reason = WEIR_R_internal, vid = 0, *way;
	struct weir_net_steer *steer;
	struct net n = {};

	if (!net_enter(ctx, &n))
		goto leave;
	steer = net_at(net_steers, n.chain, n.in->instance, net_half_steers);
	if (!steer)
		goto leave;
	vid = n.in->onward;
	if (steer->n_ways && is_selected(ctx, &n, steer)) {
		way = net_at(net_lists, n.chain, steer->ways + spread_over(spread_hash(ctx), steer->n_ways), net_half_lists);
		if (!way)
			goto leave;
		vid = *way;
	}
	reason = WEIR_NO_REASON;
leave:
	return net_leave(ctx, &n, vid, reason);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
