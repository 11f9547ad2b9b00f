// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * tunnel: takes frames to other edges. What comes in by the interface of a
 * tunnel leaves by the underlay, in a packet to the edge that the interface
 * belongs to or that the bridge in front of it named.
 *
 * One program for all tunnels. A frame that does not fit is answered with the MTU that would (RFC 1191, 8201).
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
#include "csum.h"
#include "spread.h"
#include "exact.h"
#include "network.h"
#include "tunnel.h"
#include "icmp_error.h"

#define ERROR_INTERVAL_NS	1000000ULL	/* one a millisecond on average, */
#define ERROR_BURST_NS		50000000ULL	/* 50 at once: as Linux limits its own */

NET_ARRAY(net_remotes, struct weir_net_remote);
NET_ARRAY(net_tunnels, struct weir_net_tunnel);

/* When the next error to who sends by an interface is due. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_TN_ERRORS);
	__type(key, __u32);
	__type(value, __u64);
} net_errors SEC(".maps");

/* Makes the frame the error that tells its sender the MTU, as if the station that it is for had sent it. Returns 1 if it is. */
static __always_inline int answer(ctx_t *ctx, struct net *n, struct tunnel_out *t, __u32 mtu)
{
	__u32 slot = n->chain->origin & (WEIR_TN_ERRORS - 1);
	struct icmp_error e = {};
	__u64 *due = bpf_map_lookup_elem(&net_errors, &slot);
	__u8 ip[40], l4 = 0;
	__u32 off = 20;

	if (t->type == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(ctx, 14, ip, 20))
			return 0;
		off = (ip[0] & 15) * 4;
		if (bpf_skb_load_bytes(ctx, 14 + off, &l4, 1) || !icmp_answerable4(ip, &l4))
			return 0;
		e.family = 4;
		e.type = ICMP_DEST_UNREACH;
		e.code = ICMP_FRAG_NEEDED;
		e.from[0] = *(__u32 *)(ip + 16);
		e.ip_len = bpf_ntohs(*(__be16 *)(ip + 2));
	} else if (t->type == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(ctx, 14, ip, 40))
			return 0;
		if (bpf_skb_load_bytes(ctx, 14 + 40, &l4, 1) || icmp_is_hidden6(ip) || !icmp_answerable6(ip, &l4))
			return 0;
		e.family = 6;
		e.type = ICMP6_PKT_TOOBIG;
		__builtin_memcpy(e.from, ip + 24, 16);
		e.ip_len = 40 + bpf_ntohs(*(__be16 *)(ip + 4));
	} else {
		return 0;
	}
	/* A length that does not say: a segment longer than 65,535 bytes. */
	if (e.ip_len <= 40)
		e.ip_len = ctx_word(ctx, len) - 14;
	e.word = mtu;
	if (!due || !icmp_error_due(due, clock_ns(), ERROR_INTERVAL_NS, ERROR_BURST_NS))
		return 0;
	return icmp_error(ctx, &e);
}

/* By a device of the kernel's that takes the outer headers from a key. UDP over IPv6 has a checksum there, which that device can leave to others. */
static __always_inline __u32 by_kernel(ctx_t *ctx, struct net *n, struct weir_net_remote *r, struct weir_net_tunnel *net, int *action)
{
	struct bpf_tunnel_key key = {};
	__u64 flags = BPF_F_DONT_FRAGMENT;

	key.tunnel_id = net->identifier;
	key.tunnel_ttl = TUNNEL_HOPS;
	if (r->family == 6) {
		__builtin_memcpy(key.remote_ipv6, r->address, 16);
		__builtin_memcpy(key.local_ipv6, r->local, 16);
		flags = BPF_F_TUNINFO_IPV6;
	} else {
		key.remote_ipv4 = bpf_ntohl(r->address[0]);
		key.local_ipv4 = bpf_ntohl(r->local[0]);
		flags |= BPF_F_ZERO_CSUM_TX;
	}
	if (bpf_skb_set_tunnel_key(ctx, &key, sizeof(key), flags))
		return WEIR_R_internal;
	*action = bpf_redirect(r->device, 0);
	return WEIR_NO_REASON;
}

/* Returns 0 or a reason. Each call is a form of its own, with all offsets known. */
static __always_inline int put(ctx_t *ctx, struct tunnel_out *t, struct weir_net_remote *r, struct weir_net_tunnel *net, __u32 transit, const int v6)
{
	switch (r->kind) {
	case WEIR_TK_VXLAN:
		return tunnel_put(ctx, t, r, net, transit, v6, WEIR_TK_VXLAN);
	case WEIR_TK_GENEVE:
		return tunnel_put(ctx, t, r, net, transit, v6, WEIR_TK_GENEVE);
	case WEIR_TK_GRE:
		return tunnel_put(ctx, t, r, net, transit, v6, WEIR_TK_GRE);
	}
	return WEIR_R_no_remote_vtep;
}

/*
 * Sends the frame: `action` is what the program returns, or there is a reason to drop it. *back: it became the error that answers it, and goes back
 * by its interface.
 */
static __always_inline __u32 send(ctx_t *ctx, struct net *n, int *action, int *back)
{
	struct weir_net_chain *chain = n->chain;
	struct weir_net_tunnel *net = net_at(net_tunnels, chain, n->in->instance, net_half_tunnels);
	__u32 number, mtu, reason, transit = chain->place & WEIR_CW_TUNNEL;
	struct weir_net_remote *r;
	struct tunnel_out t = {};

	if (!net)
		return WEIR_R_no_remote_vtep;
	if (net->tenant != n->in->tenant)
		return WEIR_R_tunnel_tenant;
	number = net->remote ? net->remote : chain->remote;
	if (!number || number >= net_half_remotes)
		return WEIR_R_no_remote_vtep;
	r = net_at(net_remotes, chain, number, net_half_remotes);
	if (!r || (r->family != 4 && r->family != 6))
		return WEIR_R_no_remote_vtep;
	reason = tunnel_look(ctx, &t);
	if (reason)
		return reason;
	mtu = tunnel_too_big(&t, r);
	if (mtu) {
		if (!answer(ctx, n, &t, mtu))
			return WEIR_R_path_mtu;
		/* It comes from where the packet was to go: bridges learn nothing wrong. */
		chain->remote = number;
		*back = 1;
		return WEIR_NO_REASON;
	}
	if (r->kind == WEIR_TK_KERNEL)
		return by_kernel(ctx, n, r, net, action);
	t.hash = spread_hash(ctx);
	reason = tunnel_take_tags(ctx, &t);
	if (reason)
		return reason;
	if (r->family == 6) {
		reason = put(ctx, &t, r, net, transit, 1);
		if (reason)
			return reason;
		*action = tunnel_leave(ctx, r, 1);
	} else {
		reason = put(ctx, &t, r, net, transit, 0);
		if (reason)
			return reason;
		*action = tunnel_leave(ctx, r, 0);
	}
	return *action == TC_ACT_SHOT ? WEIR_R_internal : WEIR_NO_REASON;
}

#ifdef WEIR_WATCH
/* Which edge the packet went to, for who watches. */
static __always_inline __u32 remote_of(struct net *n)
{
	struct weir_net_tunnel *net = net_at(net_tunnels, n->chain, n->in->instance, net_half_tunnels);

	return net && net->remote ? net->remote : n->chain->remote;
}
#endif

SEC(CTX_SECTION)
int tunnel(ctx_t *ctx)
{
	int action = NET_DROPPED, back = 0;
	__u32 reason = WEIR_R_internal;
	struct net n = {};

	if (!net_enter(ctx, &n))
		goto out;
	reason = send(ctx, &n, &action, &back);
	if (back) {
		n.stats->reason[WEIR_R_answered]++;
		reason = net_send(ctx, &n, n.chain->vid, &action);
	} else if (reason == WEIR_NO_REASON) {
		n.stats->verdict[XDP_REDIRECT] += n.packets;
		netwatch_say(ctx, n.chain, NETWATCH_TO(remote_of(&n), WEIR_NS_TUNNEL), WEIR_W_END, NETWATCH_WHAT(XDP_REDIRECT, 0));
	}
out:
	if (reason != WEIR_NO_REASON)
		action = net_drop(ctx, &n, reason);
	return action;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
