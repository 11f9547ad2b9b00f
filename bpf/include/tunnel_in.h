/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What comes out of tunnels: who may send what, and the probes by which edges
 * know that a tunnel carries. For programs on devices that outer packets, or
 * frames with a key of the kernel's, come in by.
 */
#ifndef WEIR_TUNNEL_IN_H
#define WEIR_TUNNEL_IN_H

NET_ARRAY(net_remotes, struct weir_net_remote);
NET_ARRAY(net_tunnels, struct weir_net_tunnel);
NET_ARRAY(net_heard, struct weir_net_heard);

/*
 * The record of the edge that the packet comes from, if it may send such; else 0 and a reason, WEIR_NO_REASON where a device of the kernel's is to take it.
 * Sets the chain's remote.
 */
static __always_inline struct weir_net_remote *sender(struct net *n, __u64 *src, __u32 kind, __u32 *reason)
{
	struct weir_exact *peer = net_find(n->chain, exact_scope(WEIR_EX_PEER, 0, 0), src[0], src[1]);
	struct weir_net_remote *r;

	*reason = WEIR_R_unknown_vtep;
	if (!peer || peer->value >= net_half_remotes)
		return 0;
	r = net_at(net_remotes, n->chain, peer->value, net_half_remotes);
	if (!r)
		return 0;
	/* On the wire, the kernel's VXLAN is VXLAN. */
	*reason = kind == WEIR_TK_VXLAN && r->accepts >> WEIR_TK_KERNEL & 1 ? WEIR_NO_REASON : WEIR_R_tunnel_kind;
	if (!(r->accepts >> kind & 1))
		return 0;
	n->chain->remote = peer->value;
	return r;
}

/* VID of the interface that an identifier belongs to, if the sender has a part in its network; else 0 and a reason. The interface counts `bytes`. */
static __always_inline __u32 owner(struct net *n, __u32 identifier, __u32 tenant, __u32 bytes, __u32 *reason)
{
	struct weir_exact *found = net_find(n->chain, exact_scope(WEIR_EX_TUNNEL, 0, 0), identifier, 0);
	struct weir_net_chain *chain = n->chain;
	struct weir_net_tunnel *net;
	struct weir_vi *vi;

	*reason = WEIR_R_tunnel_unknown;
	if (!found)
		return 0;
	vi = net_interface(chain, found->value);
	if (!vi)
		return 0;
	chain->vid = found->value;
	net_count(chain, n->packets, bytes, 0);
	*reason = WEIR_R_tunnel_member;
	if (!net_find(chain, exact_scope(WEIR_EX_MEMBER, 0, 0), identifier, chain->remote))
		return 0;
	*reason = WEIR_R_tunnel_tenant;
	net = net_at(net_tunnels, chain, vi->instance, net_half_tunnels);
	if (!net || net->tenant != vi->tenant || (tenant && tenant != net->tenant))
		return 0;
	return chain->vid;
}

/* ---- probes ---- */

/* Frame and probe as they lie in the packet. */
struct probe {
	__u16 pad;
	__u8 l2[14];
	struct weir_net_probe probe;
};

/* Notes an answer to the probe that is out. */
static __always_inline void heard(struct weir_net_heard *h, struct weir_net_probe *p)
{
	__u64 now = bpf_ktime_get_ns(), sent = bpf_be64_to_cpu(p->sent_ns);

	if (!h->nonce || bpf_be64_to_cpu(p->nonce) != h->nonce || sent > now)
		return;
	h->rtt_ns = now - sent;
	h->heard_ns = now;
	h->answers++;
}

/* Reads a probe at `off`; 0: it is none. */
static __always_inline int is_probe(ctx_t *ctx, __u32 off, struct probe *p)
{
	if (bpf_skb_load_bytes(ctx, off, p->l2, sizeof(*p) - 2))
		return 0;
	return *(__be16 *)(p->l2 + 12) == bpf_htons(WEIR_TP_ETHERTYPE) && p->probe.magic == bpf_htonl(WEIR_TP_MAGIC) &&
	       p->probe.op == (__u16)~p->probe.anti;
}

static __always_inline struct weir_net_heard *heard_from(struct weir_net_remote *r)
{
	__u32 state = r->state;

	return bpf_map_lookup_elem(&net_heard, &state);
}

/* Writes the operation of an answer. Its two words are the question's in sum, so that checksums around it stay right. */
static __always_inline int answered(ctx_t *ctx, __u32 off)
{
	__be16 words[2] = { bpf_htons(WEIR_TP_ANSWER), bpf_htons((__u16)~WEIR_TP_ANSWER) };

	return !bpf_skb_store_bytes(ctx, off + 14 + __builtin_offsetof(struct weir_net_probe, op), words, 4, BPF_F_RECOMPUTE_CSUM);
}

/* Ends the program: what came out of the tunnel goes on by `vid`; without one, `action` is what the program returns. */
static __always_inline int tunnel_end(ctx_t *ctx, struct net *n, __u32 vid, int action, __u32 reason)
{
	/* What is not for tunnels is none of the networks'. A packet that stays in its tunnel is watched as it came. */
	if (n->chain && (reason != WEIR_NO_REASON || vid))
		netwatch_begin(ctx, n->chain, 0);
	if (reason == WEIR_NO_REASON && vid)
		reason = net_send(ctx, n, vid, &action);
	else if (reason == WEIR_NO_REASON)
		n->stats->verdict[action == TC_ACT_UNSPEC ? XDP_PASS : XDP_REDIRECT] += n->packets;
	if (reason != WEIR_NO_REASON)
		action = net_drop(ctx, n, reason);
	return action;
}

#endif
