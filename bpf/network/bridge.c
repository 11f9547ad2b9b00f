// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * bridge: one segment of a virtual network. Sends frames to the interface
 * behind which their station is, declared or learned; answers ARP and neighbour
 * solicitations for the addresses that are declared in the segment, so that
 * they need not be flooded; hands the rest to `flood`, or drops it.
 *
 * One program for all bridges. IEEE 802.1Q (filtering database, VLANs of interfaces), RFC 826, RFC 4861.
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

#include "ctx.h"
#include "stats.h"
#include "clock.h"
#include "csum.h"
#include "spread.h"
#include "exact.h"
#include "network.h"
#include "netarp.h"
#include "netlearn.h"
#include "netdhcp.h"
#include "nettag.h"

NET_ARRAY(net_bridges, struct weir_net_bridge);

/* A frame as this function sees it. */
struct frame {
	struct weir_net_bridge *bridge;
	__u32 number;		/* of the bridge */
	__u32 vlan;		/* that it is in */
	__u64 to;		/* key of its destination, WEIR_EX_STATION */
	__u64 from;
	__u32 type;		/* EtherType, as in packets */
	__u32 many;		/* it is for more than one station */
};

static __always_inline __u64 station(__u8 *mac, __u32 vlan)
{
	return (__u64)mac[0] << 56 | (__u64)mac[1] << 48 | (__u64)mac[2] << 40 | (__u64)mac[3] << 32 |
	       (__u64)mac[4] << 24 | (__u64)mac[5] << 16 | vlan;
}

/* Which VLAN of the bridge the frame is in; NO_VLAN if its interface does not carry it. */
#define NO_VLAN	0xffff

static __always_inline __u32 vlan_of(ctx_t *ctx, struct net *n)
{
	__u32 vlan = n->in->vlan;

#ifdef WEIR_HOOK_TC
	if (ctx_word(ctx, vlan_present)) {
		if (!(n->in->flags & WEIR_VF_TRUNK))
			return NO_VLAN;
		vlan = ctx_word(ctx, vlan_tci) & 0xfff;
	}
#endif
	return net_carries(n->chain, n->chain->vid, n->in, vlan) ? vlan : NO_VLAN;
}

static __always_inline int look_at(ctx_t *ctx, struct frame *f)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end);

	if (data + 14 > end)
		return 0;
	f->to = station(data, f->vlan);
	f->from = station(data + 6, f->vlan);
	f->type = *(__be16 *)(data + 12);
	f->many = data[0] & 1;
	return 1;
}

/* Answers for a declared station. Returns 1 if the packet is the answer now. */
static __always_inline int answer(ctx_t *ctx, struct net *n, struct frame *f)
{
	struct net_question q = {};
	struct weir_exact *known;

	if (!net_asked(ctx, f->type, &q))
		return 0;
	known = net_find(n->chain, exact_scope(WEIR_EX_ARP, f->number, 0), q.high, q.low);
	/* Nobody is told of himself: that is how a host finds a duplicate. */
	if (!known || known->extra == f->from >> 16)
		return 0;
	return net_answer(ctx, &q, known->extra);
}

/* Whether it is of a DHCP client whom the helper answers: by whatever station it is sent to, so that nobody else sees it. */
static __always_inline int is_for_helper(ctx_t *ctx, struct net *n, struct frame *f)
{
	if (!(n->in->flags & WEIR_VF_DHCP) || f->type != bpf_htons(ETH_P_IP))
		return 0;
	net_pull(ctx, DHCP_HEADS);
	return net_is_dhcp(packet_word(ctx, data), packet_word(ctx, data_end));
}

/* Puts the frame into the VLAN that it has outside. Returns 0 if it cannot be. */
static __always_inline int leave_vlan(ctx_t *ctx, struct weir_vi *out, __u32 vlan)
{
#ifdef WEIR_HOOK_TC
	if (!(out->flags & WEIR_VF_TRUNK)) {
		if (out->vlan != vlan)
			return 0;
		return !ctx_word(ctx, vlan_present) || !bpf_skb_vlan_pop(ctx);
	}
	if (ctx_word(ctx, vlan_present) || vlan == out->vlan)
		return 1;
	return !bpf_skb_vlan_push(ctx, bpf_htons(ETH_P_8021Q), vlan);
#else
	return out->vlan == vlan;
#endif
}

/* By which interface of the bridge the frame goes, 0: by many. */
static __always_inline __u32 way_of(struct net *n, struct frame *f)
{
	struct weir_net_learned *learned;
	struct weir_exact *known;

	if (f->many)
		return 0;
	known = net_find(n->chain, exact_scope(WEIR_EX_STATION, f->number, 0), f->to, 0);
	if (known) {
		n->chain->remote = known->extra;
		return known->value;
	}
	if (!f->bridge->learned_mask)
		return 0;
	learned = net_learned_find(f->bridge->learned, f->bridge->learned_mask, f->bridge->age, f->to, 0);
	if (!learned)
		return 0;
	n->chain->remote = learned->extra;
	return learned->vid;
}

/* Sees to it that the frame may leave by interface `vid` of the bridge: a reason if it may not. */
static __always_inline __u32 admit(ctx_t *ctx, struct net *n, struct frame *f, __u32 vid)
{
	struct weir_vi *out = net_interface(n->chain, vid);

	if (!out)
		return WEIR_R_no_link;
	if (vid == n->chain->vid || (out->flags & n->in->flags & WEIR_VF_TUNNEL))
		return WEIR_R_split_horizon;
	if (!net_carries(n->chain, vid, out, f->vlan))
		return WEIR_R_vlan_not_allowed;
	return leave_vlan(ctx, out, f->vlan) ? WEIR_NO_REASON : WEIR_R_vlan_not_allowed;
}

SEC(CTX_SECTION)
int bridge(ctx_t *ctx)
{
	__u32 reason = WEIR_R_internal, vid = 0;
	struct frame f = {};
	struct net n = {};

	if (!net_enter(ctx, &n))
		goto leave;
	f.number = n.in->instance;
	f.bridge = net_at(net_bridges, n.chain, f.number, net_half_bridges);
	if (!f.bridge)
		goto leave;
	/* Out of tunnels: workloads have none left. */
	reason = net_untag_beside(ctx);
	if (reason != WEIR_NO_REASON)
		goto leave;
	reason = WEIR_R_vlan_not_allowed;
	f.vlan = vlan_of(ctx, &n);
	if (f.vlan == NO_VLAN)
		goto leave;
	reason = WEIR_R_frame_short;
	if (!look_at(ctx, &f))
		goto leave;
	if (n.in->flags & WEIR_VF_LEARN && f.bridge->learned_mask)
		net_learn(f.bridge->learned, f.bridge->learned_mask, f.bridge->age, f.from, 0, n.chain->remote, n.chain->vid);
	if (answer(ctx, &n, &f)) {
		n.stats->reason[WEIR_R_in_graph]++;
		n.chain->place &= ~WEIR_CW_PROBE;
		vid = n.chain->vid;
		reason = WEIR_NO_REASON;
		goto leave;
	}
	/* An address that is not the workload's, and nobody's that is known: who might be about to take it is not to hear of it. */
	reason = WEIR_R_neighbour_spoofed;
	if (n.chain->place & WEIR_CW_PROBE)
		goto leave;
	if (is_for_helper(ctx, &n, &f)) {
		reason = net_hand_on(ctx, &n, WEIR_NS_PUNT);
		goto leave;
	}
	vid = way_of(&n, &f);
	if (vid)
		reason = admit(ctx, &n, &f, vid);
	else if (f.many || !(f.bridge->flags & WEIR_BF_CLOSED))
		reason = net_hand_on(ctx, &n, WEIR_NS_FLOOD);
	else
		reason = WEIR_R_unknown_station;
leave:
	return net_leave(ctx, &n, vid, reason);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
