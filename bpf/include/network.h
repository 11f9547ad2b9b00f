/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The patch panel of virtual networks: interfaces, the way from one to the
 * next, out of a device, and around the kernel's limit of calls
 * (docs/design/network.md).
 *
 * What configuration says is read from the half of the arrays that the packet's generation names; who writes it never writes the half
 * that is read. Programs count what they received before anything else and leave by net_leave().
 */
#ifndef WEIR_NETWORK_H
#define WEIR_NETWORK_H

#include "stats.h"
#include "netwatch.h"

#define ETH_P_ARP	0x0806

/* Records of a half of each array: set before load, like the maps' sizes. */
const volatile __u32 net_half_interfaces = 1;
const volatile __u32 net_half_bridges = 1;
const volatile __u32 net_half_routers = 1;
const volatile __u32 net_half_hops = 1;
const volatile __u32 net_half_remotes = 1;
const volatile __u32 net_half_tunnels = 1;
const volatile __u32 net_half_lists = 1;
const volatile __u32 net_half_buckets = 1;	/* of exact matches: a power of two */

/* Index of the near end of the veth pair that packets are recirculated by. */
const volatile __u32 net_pair = 0;

#define NET_ARRAY(name, record) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 2); \
		__type(key, __u32); \
		__type(value, record); \
	} name SEC(".maps")

NET_ARRAY(net_interfaces, struct weir_vi);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, WEIR_NET_PROGRAMS);
	__type(key, __u32);
	__type(value, __u32);
} net_programs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_net_chain);
} net_chain SEC(".maps");

/* What came in, by VID of the interface that it came in by. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_net_count);
} net_counts SEC(".maps");

/* Drops by interface and reason: touched by drops only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct weir_net_drop);
	__type(value, __u64);
} net_drops SEC(".maps");

/* What a function has in hand of a packet. */
struct net {
	struct weir_stats *stats;
	struct weir_net_chain *chain;
	struct weir_vi *in;		/* the interface that it came in by */
	__u32 packets;			/* on the wire */
	__u32 bytes;			/* of the frame, with its tag */
};

#ifdef WEIR_HOOK_TC
#define NET_DROPPED	TC_ACT_SHOT

/* Bytes behind the Ethernet header; of a packet that is cut later, which its sender's MTU already bounds, 0. */
static __always_inline __u32 net_packet_len(ctx_t *ctx)
{
	return ctx_word(ctx, gso_size) ? 0 : ctx_word(ctx, len) - 14;
}

static __always_inline int net_recirculate(ctx_t *ctx)
{
	return bpf_redirect(net_pair, BPF_F_INGRESS);
}

/* Makes the first `need` bytes readable, if the frame has them. Headers lie there nearly always: pulling them copies. */
static __always_inline void net_pull(ctx_t *ctx, __u32 need)
{
	if (packet_word(ctx, data) + need > packet_word(ctx, data_end))
		bpf_skb_pull_data(ctx, need < ctx->len ? need : ctx->len);
}
#else
#define NET_DROPPED	XDP_DROP

static __always_inline __u32 net_packet_len(ctx_t *ctx)
{
	return ctx_len(ctx) - 14;
}

/* XDP keeps nothing for who goes around. */
static __always_inline int net_recirculate(ctx_t *ctx)
{
	return XDP_DROP;
}

static __always_inline void net_pull(ctx_t *ctx, __u32 need)
{
}
#endif

static __always_inline struct weir_net_chain *net_chain_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&net_chain, &zero);
}

/* Record `at` of the half of the packet's generation. */
#define net_at(map, chain, at, records) ({ \
	__u32 at_ = (at) + ((chain)->half ? (records) : 0); \
	bpf_map_lookup_elem(&(map), &at_); })

static __always_inline struct weir_vi *net_interface(struct weir_net_chain *chain, __u32 vid)
{
	return net_at(net_interfaces, chain, vid, net_half_interfaces);
}

/* An IPv4 address as the second word of an IPv6 one, in the byte order of packets. */
#define NET_MAPPED(address)	((__u64)(address) << 32 | 0xffff0000ULL)

/* The cell of an exact match in the half of the packet's generation. */
static __always_inline struct weir_exact *net_find(struct weir_net_chain *chain, __u32 scope, __u64 k0, __u64 k1)
{
	return exact_find(chain->half ? net_half_buckets : 0, net_half_buckets - 1, scope, k0, k1);
}

#ifdef WEIR_HOOK_TC
static __always_inline __u32 ctx_port_in(ctx_t *ctx)
{
	struct weir_net_chain *chain = net_chain_here();
	struct weir_vi *in = chain ? net_interface(chain, chain->vid) : 0;

	return in ? in->room : 0;
}
#endif

/* Whether an interface of a bridge has a VLAN: those with tags have a list, but for the one to other edges, which has all. */
static __always_inline int net_carries(struct weir_net_chain *chain, __u32 vid, struct weir_vi *vi, __u32 vlan)
{
	if (!(vi->flags & WEIR_VF_TRUNK) || vi->flags & WEIR_VF_TUNNEL)
		return 1;
	return net_find(chain, exact_scope(WEIR_EX_VLAN, vid, 0), vlan, 0) != 0;
}

static __always_inline void net_count(struct weir_net_chain *chain, __u32 packets, __u32 bytes, __u32 dropped)
{
	__u32 vid = chain->vid;
	struct weir_net_count *count = bpf_map_lookup_elem(&net_counts, &vid);

	if (!count)
		return;
	count->packets += packets;
	count->bytes += bytes;
	count->dropped += dropped;
}

/* The same packet in another program of the function. Returns 0 if it is to be dropped: net_drop() takes what is missing then. */
static __always_inline int net_enter_again(ctx_t *ctx, struct net *n)
{
	n->in = 0;
	n->packets = ctx_segments(ctx);
	n->stats = stats_here();
	n->chain = net_chain_here();
	if (!n->stats || !n->chain)
		return 0;
	n->stats->received += n->packets;
	n->bytes = ctx_len(ctx);
	n->stats->bytes += n->bytes;
	n->in = net_interface(n->chain, n->chain->vid);
	return n->in != 0;
}

/* Begins a function's work on a packet; as net_enter_again(). */
static __always_inline int net_enter(ctx_t *ctx, struct net *n)
{
	int entered = net_enter_again(ctx, n);

	if (entered)
		net_count(n->chain, n->packets, n->bytes, 0);
	return entered;
}

/* Counts a drop at the interface that the packet came in by. */
static __always_inline void net_count_drop(struct net *n, __u32 reason)
{
	struct weir_net_drop key = { .vid = n->chain->vid, .reason = reason };
	__u64 one = n->packets, *count;

	net_count(n->chain, 0, 0, n->packets);
	count = bpf_map_lookup_elem(&net_drops, &key);
	if (count)
		__sync_fetch_and_add(count, one);
	else
		bpf_map_update_elem(&net_drops, &key, &one, BPF_ANY);
}

static __always_inline int net_drop(ctx_t *ctx, struct net *n, __u32 reason)
{
	if (n->stats) {
		n->stats->reason[reason & (WEIR_REASONS - 1)] += n->packets;
		n->stats->verdict[XDP_DROP] += n->packets;
	}
	if (n->chain)
		net_count_drop(n, reason);
	netwatch_end(ctx, n->chain, XDP_DROP, reason);
	return NET_DROPPED;
}

/* What must not be lost while the packet goes around; it leaves by `vid` of `chain` then. */
static __always_inline void net_pack(ctx_t *ctx, struct weir_net_chain *chain, __u32 vid, __u32 remote, __u32 rounds)
{
#ifdef WEIR_HOOK_TC
	ctx->cb[WEIR_CB_VID] = vid;
	ctx->cb[WEIR_CB_WHERE] = (chain->half ? WEIR_CW_HALF : 0) | (chain->place & ~WEIR_CW_HALF) | rounds << 8;
	ctx->cb[WEIR_CB_REMOTE] = remote;
	ctx->cb[WEIR_CB_PORT] = chain->origin;
	ctx->cb[WEIR_CB_MAGIC] = WEIR_CB_IS_OURS;
#endif
}

/* The packet leaves by the device of interface `out`: `action` is what the program returns, or there is a reason to drop it. */
static __always_inline __u32 net_deliver(ctx_t *ctx, struct net *n, struct weir_vi *out, int *action)
{
	if (out->mtu && net_packet_len(ctx) > out->mtu)
		return WEIR_R_path_mtu;
	n->stats->verdict[XDP_REDIRECT] += n->packets;
	netwatch_say(ctx, n->chain, NETWATCH_TO(out->peer, WEIR_NS_DEVICE), WEIR_W_END, NETWATCH_WHAT(XDP_REDIRECT, 0));
	/* Where it ends, for who asks (replays and test runs). */
	n->chain->vid = out->peer;
#ifdef WEIR_HOOK_TC
	/*
	 * What came out of a tunnel keeps the protocol of the outer packet unless a device looks at it anew; and packet sockets on the device (tcpdump,
	 * `weir net ping`) see nothing of what goes straight to its peer.
	 */
	if (out->flags & WEIR_VF_PEER && !(n->chain->place & (WEIR_CW_TUNNEL | WEIR_CW_SHOWN))) {
		*action = bpf_redirect_peer(out->device, 0);
		return WEIR_NO_REASON;
	}
#endif
	*action = bpf_redirect(out->device, 0);
	return WEIR_NO_REASON;
}

/*
 * Calls the program of a slot, and comes back if there is none. A call whose slot is a constant is a jump; any other goes through a
 * retpoline where the host has those, which takes longer than everything else that the panel does.
 */
static __always_inline void net_call(ctx_t *ctx, __u32 slot)
{
	switch (slot) {
	case WEIR_NS_BRIDGE:
		bpf_tail_call_static(ctx, &net_programs, WEIR_NS_BRIDGE);
		break;
	case WEIR_NS_ROUTER:
		bpf_tail_call_static(ctx, &net_programs, WEIR_NS_ROUTER);
		break;
	case WEIR_NS_TUNNEL:
		bpf_tail_call_static(ctx, &net_programs, WEIR_NS_TUNNEL);
		break;
	case WEIR_NS_EMPTY:
		bpf_tail_call_static(ctx, &net_programs, WEIR_NS_EMPTY);
		break;
	default:
		bpf_tail_call(ctx, &net_programs, slot);
	}
}

/* The packet comes in by interface `vid` to the function of `slot`. What comes back is a reason to drop it. */
static __always_inline __u32 net_follow(ctx_t *ctx, struct net *n, __u32 vid, __u32 slot)
{
	n->stats->verdict[WEIR_NEXT] += n->packets;
	n->chain->calls++;
	n->chain->vid = vid;
	netwatch_step(ctx, n->chain, vid, slot);
	net_call(ctx, slot);
	n->stats->verdict[WEIR_NEXT] -= n->packets;
	return WEIR_R_missed_call;
}

/* The packet leaves by interface `vid`. Comes back with `action` or with a reason to drop it, or not at all. */
static __always_inline __u32 net_send(ctx_t *ctx, struct net *n, __u32 vid, int *action)
{
	struct weir_net_chain *chain = n->chain;
	struct weir_vi *out = net_interface(chain, vid);

	if (!out)
		return WEIR_R_no_link;
	if (out->slot == WEIR_NS_DEVICE)
		return net_deliver(ctx, n, out, action);
	if (!out->peer)
		return WEIR_R_no_link;
	if (chain->calls >= WEIR_NET_CALLS) {
		if (chain->rounds >= WEIR_NET_ROUNDS)
			return WEIR_R_loop_guard;
		n->stats->verdict[WEIR_NEXT] += n->packets;
		netwatch_say(ctx, chain, NETWATCH_TO(vid, WEIR_NS_NOWHERE), WEIR_W_END, NETWATCH_WHAT(XDP_REDIRECT, 0));
		net_pack(ctx, chain, vid, chain->remote, chain->rounds + 1);
		*action = net_recirculate(ctx);
		return WEIR_NO_REASON;
	}
	return net_follow(ctx, n, out->peer, out->slot);
}

/* The packet came in by `in`, of a function with two interfaces, and leaves by the other one; as net_send(). */
static __always_inline __u32 net_send_onward(ctx_t *ctx, struct net *n, struct weir_vi *in, int *action)
{
	__u32 peer = in->address6[WEIR_ON_PEER], slot = in->address6[WEIR_ON_SLOT];

	/* One record less to read than net_send() has to, wherever nothing but a call follows. */
	if (peer && n->chain->calls < WEIR_NET_CALLS)
		return net_follow(ctx, n, peer, slot);
	return net_send(ctx, n, in->onward, action);
}

/* Ends a function's work: drops the packet for a reason, or sends it by interface `vid` if there is none. */
static __always_inline int net_leave(ctx_t *ctx, struct net *n, __u32 vid, __u32 reason)
{
	int action = NET_DROPPED;

	if (reason == WEIR_NO_REASON)
		reason = net_send(ctx, n, vid, &action);
	if (reason != WEIR_NO_REASON)
		action = net_drop(ctx, n, reason);
	return action;
}

/* Ends the work of a function with two interfaces: drops the packet for a reason, or lets it go on by the other interface. */
static __always_inline int net_leave_onward(ctx_t *ctx, struct net *n, __u32 reason)
{
	int action = NET_DROPPED;

	if (reason == WEIR_NO_REASON)
		reason = net_send_onward(ctx, n, n->in, &action);
	if (reason != WEIR_NO_REASON)
		action = net_drop(ctx, n, reason);
	return action;
}

/* Hands the packet to another program of the same function, as it came in. What comes back is a reason to drop it. */
static __always_inline __u32 net_hand_on(ctx_t *ctx, struct net *n, __u32 slot)
{
	n->chain->calls++;
	n->stats->verdict[WEIR_NEXT] += n->packets;
	bpf_tail_call(ctx, &net_programs, slot);
	n->stats->verdict[WEIR_NEXT] -= n->packets;
	return WEIR_R_missed_call;
}

#endif
