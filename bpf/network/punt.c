// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * punt: hands packets to a helper in user space, with their place in the
 * network. A function with two interfaces: flows that the helper installed go
 * where it said, what is selected of the rest is handed over, everything else
 * goes on by the other interface. Bridges hand it what DHCP clients send.
 *
 * A helper that does not listen, does not keep up, or is sent too much costs the packets that were for it, and nothing else.
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
#include "clock.h"
#include "quick_parse.h"
#include "exact.h"
#include "network.h"
#include "netselect.h"
#include "netpunt.h"

#define RING_BYTES	(512 * 1024)
#define FLOWS_MAX	16384
#define RECORD_MASK	0x3fff	/* nothing that is handed over is longer */

const volatile __u32 net_half_punts = 1;

NET_ARRAY(net_punts, struct weir_net_punt);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} net_ring SEC(".maps");

/* A record is put together here: the ring takes one whose length is not known when compiling only as a copy. */
struct desk {
	struct weir_net_record record;
	__u8 data[WEIR_PUNT_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct desk);
} net_desk SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FLOWS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct weir_net_flow_key);
	__type(value, struct weir_net_flow);
} net_flows SEC(".maps");

/* Where the L4 checksum lies and its header begins, in the upper and the lower half, if the sender left the checksum to its device. */
static __always_inline __u32 unfinished(ctx_t *ctx, struct head *h)
{
#ifdef WEIR_HOOK_TC
	__u32 proto = h->kind & 255, at;

	if (!h->l4 || !h->has_ports || (proto != IPPROTO_TCP && proto != IPPROTO_UDP))
		return 0;
	at = h->l4 + (proto == IPPROTO_TCP ? 16 : 6) + ctx_beside(ctx);
	return ctx_is_unfinished(ctx, at) ? at << 16 | (h->l4 + ctx_beside(ctx)) : 0;
#else
	return 0;
#endif
}

static __always_inline int is_large(ctx_t *ctx)
{
#ifdef WEIR_HOOK_TC
	if (ctx_word(ctx, gso_size))
		return 1;
#endif
	return ctx_len(ctx) > WEIR_PUNT_MAX;
}

/* Whether one packet more is too many. The count is shared by CPUs, and a lost race lets one packet through. */
static __always_inline int is_over(struct weir_net_punted *p, __u64 now, __u32 rate)
{
	__u64 second = now / 1000000000, was = p->window;

	if (!rate)
		return 0;
	if (was >> 32 != second)
		was = second << 32;
	p->window = was + 1;
	return (__u32)was >= rate;
}

/* Puts the packet into the ring. Returns a reason if it is lost. */
static __always_inline __u32 hand_over(ctx_t *ctx, struct net *n, __u32 rate, __u32 left)
{
	struct weir_net_punted *p = net_punted_at(n->chain->vid);
	__u32 zero = 0, len = ctx_len(ctx);
	struct desk *desk = bpf_map_lookup_elem(&net_desk, &zero);
	__u64 now = clock_ns();

	if (!p || !desk)
		return WEIR_R_internal;
	/* The helper's clock has no ticks, and is ahead of this one. */
	if (!p->heard_ns || (now > p->heard_ns && now - p->heard_ns > WEIR_PUNT_HEARD_NS))
		return WEIR_R_punt_no_listener;
	if (is_large(ctx))
		return WEIR_R_punt_large;
	if (is_over(p, now, rate))
		return WEIR_R_punt_limited;
	at_most(len, WEIR_PUNT_MAX);
	at_least_one(len);
	if (ctx_load_head(ctx, desk->data, len, WEIR_PUNT_MAX))
		return WEIR_R_frame_short;
	desk->record.time_ns = now;
	desk->record.generation = n->chain->generation;
	desk->record.vid = n->chain->vid;
	desk->record.tenant = n->in->tenant;
	desk->record.len = len;
	desk->record.unfinished = left >> 16;
	desk->record.l4 = left & 0xffff;
	/* The bounds of the 32-bit register alone do not reach the sum, which is one of 64 bits. */
	opaque(len);
	len &= RECORD_MASK;
	at_most(len, WEIR_PUNT_MAX);
	if (bpf_ringbuf_output(&net_ring, desk, sizeof(desk->record) + len, 0))
		return WEIR_R_punt_full;
	__sync_fetch_and_add(&p->punted, n->packets);
	return WEIR_NO_REASON;
}

/* What an installed flow says of the packet. Returns 0 if there is none that holds; else `vid` or `reason` is set. */
static __always_inline int follow(struct net *n, struct seen *seen, __u32 *vid, __u32 *reason)
{
	struct weir_net_flow_key key = {};
	struct weir_net_flow *flow;
	__u64 now;

	key.source[0] = seen->source[0];
	key.source[1] = seen->source[1];
	key.target[0] = seen->target[0];
	key.target[1] = seen->target[1];
	key.vid = n->chain->vid;
	key.protocol = seen->protocol;
	if (seen->has_ports) {
		key.from = seen->from;
		key.to = seen->to;
	}
	flow = bpf_map_lookup_elem(&net_flows, &key);
	if (!flow)
		return 0;
	now = clock_ns();
	/* The clock has ticks, and another CPU may have seen the next one. */
	if (flow->idle_ns && now > flow->seen_ns && now - flow->seen_ns > flow->idle_ns)
		return 0;
	flow->seen_ns = now;
	__sync_fetch_and_add(&flow->packets, n->packets);
	__sync_fetch_and_add(&flow->bytes, n->bytes);
	*vid = flow->vid;
	*reason = flow->action == WEIR_FA_FORWARD ? WEIR_NO_REASON : WEIR_R_punt_denied;
	return 1;
}

SEC(CTX_SECTION)
int punt(ctx_t *ctx)
{
	__u32 reason = WEIR_R_internal, vid = 0, rate = WEIR_PUNT_DHCP_RATE, left = 0;
	struct weir_net_punt *punt;
	int action = NET_DROPPED;
	struct seen seen = {};
	struct head h = {};
	struct net n = {};

	if (!net_enter_again(ctx, &n))
		goto leave;
	if (n.in->flags & WEIR_VF_PUNT) {
		/* Bridges have counted what they hand on. */
		net_count(n.chain, n.packets, n.bytes, 0);
		punt = net_at(net_punts, n.chain, n.in->instance, net_half_punts);
		if (!punt)
			goto leave;
		vid = n.in->onward;
		reason = WEIR_NO_REASON;
		net_pull(ctx, HEADS);
		h.len = ctx_len(ctx);
		if (quick_parse(ctx, &h) != QUICK_OK)
			goto leave;
		net_seen(&seen, &h);
		if (follow(&n, &seen, &vid, &reason))
			goto leave;
		if (!net_seen_in(&seen, n.chain, punt->selections, punt->n_selections))
			goto leave;
		rate = punt->rate;
		left = unfinished(ctx, &h);
	} else if (!(n.in->flags & WEIR_VF_DHCP)) {
		goto leave;
	}
	reason = hand_over(ctx, &n, rate, left);
	if (reason != WEIR_NO_REASON)
		goto leave;
	/* It ends here: what comes of it is the helper's. */
	n.stats->verdict[XDP_REDIRECT] += n.packets;
	netwatch_say(ctx, n.chain, NETWATCH_TO(0, WEIR_NS_PUNT), WEIR_W_END, NETWATCH_WHAT(XDP_REDIRECT, 0));
	goto out;
leave:
	action = net_leave(ctx, &n, vid, reason);
out:
	return action;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
