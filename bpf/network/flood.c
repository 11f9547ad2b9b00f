// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * flood: a bridge's frame for many stations, or for one that it does not know:
 * a copy for each interface of its VLAN but the one it came by, and for each
 * other edge that has stations of the segment. What came from another edge
 * goes to none (split horizon), and to no function: those have seen it on the
 * edge where it started. No process takes part.
 *
 * Copies leave by a device at once, or, where a function or a tunnel follows, go on by the pair for recirculation.
 *
 * Hooks: tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_replay = 0;

#include "ctx.h"
#include "stats.h"
#include "clock.h"
#include "exact.h"
#include "network.h"

#define ETH_P_8021Q	0x8100
#define MEMBERS_MAX	4096	/* copies of one frame */

NET_ARRAY(net_bridges, struct weir_net_bridge);
NET_ARRAY(net_lists, __u32);

/* Frames for many stations that came in by an interface: second << 32 | frames of that second. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} net_storms SEC(".maps");

struct flood {
	ctx_t *ctx;
	struct net *n;
	__u32 first;		/* of the run of the list */
	__u32 vid;		/* that the frame came in by */
	__u32 vlan;
	__u32 tunnel;		/* VID towards other edges */
	__u32 copies, failed;
};

/* Whether one more frame is too many. The count is shared by CPUs, and a lost race lets one frame through. */
static __always_inline int is_storm(struct net *n, __u32 limit)
{
	__u32 vid = n->chain->vid;
	__u64 *word, now, was;

	if (!limit)
		return 0;
	word = bpf_map_lookup_elem(&net_storms, &vid);
	if (!word)
		return 0;
	now = clock_ns() / 1000000000;
	was = *word;
	if (was >> 32 != now)
		was = now << 32;
	*word = was + 1;
	return (__u32)was >= limit;
}

static __always_inline void copy(struct flood *f, __u32 vid, struct weir_vi *out, __u32 remote)
{
	struct weir_net_chain *chain = f->n->chain;
	long failed;

	netwatch_say(f->ctx, chain, NETWATCH_TO(out->slot == WEIR_NS_DEVICE ? out->peer : vid, out->slot), WEIR_W_COPY,
		     NETWATCH_WHAT(XDP_REDIRECT, remote));
	if (out->slot == WEIR_NS_DEVICE) {
		failed = bpf_clone_redirect(f->ctx, out->device, 0);
	} else {
		net_pack(f->ctx, chain, vid, remote, chain->rounds + 1);
		failed = bpf_clone_redirect(f->ctx, net_pair, BPF_F_INGRESS);
	}
	if (failed)
		f->failed++;
	else
		f->copies++;
}

/* The copy as it is outside: without a tag by access interfaces, with the frame's by trunks. The frame itself is as it was for the next copy. */
static __always_inline void copy_tagged(struct flood *f, __u32 vid, struct weir_vi *out, __u32 remote)
{
	if (out->flags & WEIR_VF_TRUNK && f->vlan != out->vlan && !f->ctx->vlan_present) {
		if (bpf_skb_vlan_push(f->ctx, bpf_htons(ETH_P_8021Q), f->vlan))
			return;
		copy(f, vid, out, remote);
		bpf_skb_vlan_pop(f->ctx);
	} else if (f->ctx->vlan_present && !(out->flags & WEIR_VF_TRUNK)) {
		if (bpf_skb_vlan_pop(f->ctx))
			return;
		copy(f, vid, out, remote);
		bpf_skb_vlan_push(f->ctx, bpf_htons(ETH_P_8021Q), f->vlan);
	} else {
		copy(f, vid, out, remote);
	}
}

/* Whether an interface of the bridge has the frame's VLAN. */
static __always_inline int carries(struct flood *f, __u32 vid, struct weir_vi *out)
{
	if (!(out->flags & WEIR_VF_TRUNK) && out->vlan != f->vlan)
		return 0;
	return net_carries(f->n->chain, vid, out, f->vlan);
}

static long to_member(__u32 i, void *arg)
{
	struct flood *f = arg;
	struct weir_net_chain *chain = f->n->chain;
	__u32 *vid = net_at(net_lists, chain, f->first + i, net_half_lists);
	struct weir_vi *out;

	if (!vid || *vid == f->vid)
		return 0;
	out = net_interface(chain, *vid);
	if (!out)
		return 0;
	/* Functions of the segment have seen it on the edge that it started at. */
	if (f->n->in->flags & WEIR_VF_TUNNEL && out->slot != WEIR_NS_DEVICE)
		return 0;
	if (carries(f, *vid, out))
		copy_tagged(f, *vid, out, 0);
	return 0;
}

static long to_remote(__u32 i, void *arg)
{
	struct flood *f = arg;
	struct weir_net_chain *chain = f->n->chain;
	__u32 *remote = net_at(net_lists, chain, f->first + i, net_half_lists);
	struct weir_vi *out = net_interface(chain, f->tunnel);

	/* The VLAN goes along: a frame without a tag would be of another one there. */
	if (remote && out && carries(f, f->tunnel, out))
		copy_tagged(f, f->tunnel, out, *remote);
	return 0;
}

SEC(CTX_SECTION)
int flood(ctx_t *ctx)
{
	struct flood f = { .ctx = ctx };
	struct weir_net_bridge *bridge;
	__u32 reason = WEIR_R_internal;
	int action = NET_DROPPED;
	struct net n = {};

	if (!net_enter_again(ctx, &n))
		goto leave;
	bridge = net_at(net_bridges, n.chain, n.in->instance, net_half_bridges);
	if (!bridge)
		goto leave;
	reason = WEIR_R_flood_rate_limited;
	if (is_storm(&n, bridge->storm))
		goto leave;
	f.n = &n;
	f.vid = n.chain->vid;
	f.vlan = ctx->vlan_present ? ctx->vlan_tci & 0xfff : n.in->vlan;
	f.tunnel = bridge->tunnel;
	f.first = bridge->members;
	bpf_loop(bridge->n_members & (MEMBERS_MAX - 1), to_member, &f, 0);
	if (bridge->tunnel && !(n.in->flags & WEIR_VF_TUNNEL)) {
		f.first = bridge->remotes;
		bpf_loop(bridge->n_remotes & (MEMBERS_MAX - 1), to_remote, &f, 0);
	}
	reason = f.failed ? WEIR_R_redirect_failed : WEIR_R_unknown_station;
	if (!f.copies)
		goto leave;
	/* The frame itself ends here: it has gone out as its copies. */
	n.stats->verdict[XDP_REDIRECT] += n.packets;
	netwatch_say(ctx, n.chain, NETWATCH_TO(f.copies, WEIR_NS_FLOOD), WEIR_W_END, NETWATCH_WHAT(XDP_REDIRECT, 0));
	goto out;
leave:
	action = net_drop(ctx, &n, reason);
out:
	return action;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
