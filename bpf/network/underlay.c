// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * underlay: where tunnels end. Takes packets to this edge that are tunnels
 * out of what the device receives, and lets the frame inside go on behind the
 * interface that its identifier belongs to. All else goes to the stack untouched.
 *
 * Nothing of a packet is believed: who sent it must be an edge, use a kind that is taken from it, have a part in the network of the identifier and,
 * where the packet says so, mean its tenant.
 *
 * Hooks: tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_replay = 0;

/* Ports that VXLAN and Geneve come to. */
const volatile __u32 tunnel_vxlan_port = WEIR_TN_VXLAN_PORT;
const volatile __u32 tunnel_geneve_port = WEIR_TN_GENEVE_PORT;

#include "ctx.h"
#include "stats.h"
#include "clock.h"
#include "csum.h"
#include "spread.h"
#include "exact.h"
#include "network.h"
#include "netentry.h"
#include "tunnel.h"
#include "tunnel_in.h"

#define GENEVE_OPTIONS	8	/* at most in a packet */
#define FRAGMENTED	0x3fff	/* of an IPv4 header: more fragments, and where */

/* An outer packet. */
struct outer {
	__u64 src[2], dst[2];	/* as keys of exact matches */
	__u32 v6;
	__u32 kind;
	__u32 ecn;
	__u32 l4;		/* offset of what follows the IP header */
	__u32 inner;		/* ... of the frame inside */
	__u32 payload;		/* bytes that the IP header says follow it */
	__u32 identifier;
	__u32 tenant;		/* that it names, 0: none */
};

enum { NOT_OURS = -1 };

/* Fills o up to l4 and kind. Returns 0, NOT_OURS or a reason. `kind` is 0 for UDP still. */
static __always_inline int look_ip(ctx_t *ctx, struct outer *o)
{
	__u32 type = ctx_word(ctx, protocol), proto;
	__u8 ip[40];

	if (ctx_word(ctx, vlan_present))
		return NOT_OURS;
	if (type == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(ctx, 14, ip, 20) || ip[0] >> 4 != 4)
			return NOT_OURS;
		proto = ip[9];
		/* Nobody fragments tunnels here; a first fragment is told by look_udp(), the others are the stack's affair. */
		if (bpf_ntohs(*(__be16 *)(ip + 6)) & FRAGMENTED & 0x1fff)
			return NOT_OURS;
		o->src[1] = NET_MAPPED(*(__u32 *)(ip + 12));
		o->dst[1] = NET_MAPPED(*(__u32 *)(ip + 16));
		o->ecn = ip[1] & ECN_CE;
		o->l4 = 14 + (ip[0] & 15) * 4;
		if (o->l4 < 34)
			return NOT_OURS;
		o->payload = bpf_ntohs(*(__be16 *)(ip + 2)) + 14 - o->l4;
		if (bpf_ntohs(*(__be16 *)(ip + 6)) & FRAGMENTED)
			o->inner = 1;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(ctx, 14, ip, 40))
			return NOT_OURS;
		proto = ip[6];
		o->src[0] = *(__u64 *)(ip + 8);
		o->src[1] = *(__u64 *)(ip + 16);
		o->dst[0] = *(__u64 *)(ip + 24);
		o->dst[1] = *(__u64 *)(ip + 32);
		o->ecn = ip[1] >> 4 & ECN_CE;
		o->l4 = 14 + 40;
		o->payload = bpf_ntohs(*(__be16 *)(ip + 4));
		o->v6 = 1;
	} else {
		return NOT_OURS;
	}
	if (proto == IPPROTO_UDP)
		return 0;
	if (proto != IPPROTO_GRE)
		return NOT_OURS;
	o->kind = WEIR_TK_GRE;
	return 0;
}

/* Whether the IP header says more than there is. Lengths of a packet that is to be cut are those of its pieces, or none. */
static __always_inline int is_short(ctx_t *ctx, struct outer *o)
{
	return !ctx_word(ctx, gso_size) && (o->payload > 0xffff || o->l4 + o->payload > ctx_word(ctx, len));
}

/*
 * RFC 2784 and 2890. A checksum is not looked at (the frame inside has its own), a sequence number neither. Returns 0, NOT_OURS or a reason. GRE of other
 * kinds than bridging with a key is not for tunnels of ours.
 */
static __always_inline int look_gre(ctx_t *ctx, struct outer *o)
{
	__u32 flags, off = o->l4 + 4;
	__u8 gre[4];
	__be32 key;

	if (bpf_skb_load_bytes(ctx, o->l4, gre, 4))
		return NOT_OURS;
	flags = gre[0] << 8 | gre[1];
	if ((gre[2] << 8 | gre[3]) != ETH_P_TEB || !(flags & GRE_HAS_KEY) || flags & ~(GRE_HAS_KEY | GRE_HAS_SUM | GRE_HAS_NUMBER))
		return NOT_OURS;
	if (o->inner || is_short(ctx, o))
		return WEIR_R_tunnel_bad;
	if (flags & GRE_HAS_SUM)
		off += 4;
	if (bpf_skb_load_bytes(ctx, off, &key, 4))
		return WEIR_R_tunnel_bad;
	o->identifier = bpf_ntohl(key);
	o->inner = off + (flags & GRE_HAS_NUMBER ? 8 : 4);
	return o->identifier >> 24 ? WEIR_R_tunnel_unknown : 0;
}

/* Options of Geneve: the tenant, if weir sent it. One that is critical and not known is refused (RFC 8926, 3.5). */
static __always_inline int look_options(ctx_t *ctx, struct outer *o, __u32 off, __u32 end)
{
	__be32 tenant;
	__u8 option[4];
	__u32 i;

	for (i = 0; i < GENEVE_OPTIONS; i++) {
		if (off >= end)
			break;
		if (bpf_skb_load_bytes(ctx, off, option, 4))
			return WEIR_R_tunnel_bad;
		if ((option[0] << 8 | option[1]) == WEIR_TN_CLASS && option[2] == WEIR_TN_TENANT && (option[3] & 31) == 1) {
			if (bpf_skb_load_bytes(ctx, off + 4, &tenant, 4))
				return WEIR_R_tunnel_bad;
			o->tenant = bpf_ntohl(tenant);
		} else if (option[2] & GENEVE_CRITICAL) {
			return WEIR_R_tunnel_bad;
		}
		off += 4 + (option[3] & 31) * 4;
	}
	return off == end ? 0 : WEIR_R_tunnel_bad;
}

/* Checksums of UDP may be there or not; what is there is not looked at: the frame inside has its own. Returns 0, NOT_OURS or a reason. */
static __always_inline int look_udp(ctx_t *ctx, struct outer *o)
{
	__u32 port, off = o->l4 + 8, word, id;
	__u8 head[16];

	if (bpf_skb_load_bytes(ctx, o->l4, head, 8))
		return NOT_OURS;
	port = head[2] << 8 | head[3];
	if (port != tunnel_vxlan_port && port != tunnel_geneve_port)
		return NOT_OURS;
	o->kind = port == tunnel_vxlan_port ? WEIR_TK_VXLAN : WEIR_TK_GENEVE;
	if (o->inner || is_short(ctx, o) || bpf_skb_load_bytes(ctx, off, head + 8, 8))
		return WEIR_R_tunnel_bad;
	/* All of the packet is the datagram. */
	if (!ctx_word(ctx, gso_size) && (head[4] << 8 | head[5]) != o->payload)
		return WEIR_R_tunnel_bad;
	word = bpf_ntohl(*(__be32 *)(head + 8));
	id = bpf_ntohl(*(__be32 *)(head + 12));
	o->identifier = id >> 8;
	if (port == tunnel_vxlan_port) {
		o->inner = off + 8;
		return word & VXLAN_HAS_ID ? 0 : WEIR_R_tunnel_bad;
	}
	/* Version 0, not control, and a frame. */
	if (head[8] >> 6 || head[9] & GENEVE_CONTROL || (word & 0xffff) != ETH_P_TEB)
		return WEIR_R_tunnel_bad;
	o->inner = off + 8 + (head[8] & 63) * 4;
	return look_options(ctx, o, off + 8, o->inner);
}

/* Sends the packet back by the device that it came in by: addresses of both layers change places. The hops begin anew. */
static __always_inline int turn(ctx_t *ctx, struct outer *o)
{
	__u8 b[16], swapped[16];
	__be16 word;

	if (bpf_skb_load_bytes(ctx, 0, b, 12))
		return 0;
	__builtin_memcpy(swapped, b + 6, 6);
	__builtin_memcpy(swapped + 6, b, 6);
	if (bpf_skb_store_bytes(ctx, 0, swapped, 12, 0))
		return 0;
	if (o->v6) {
		if (bpf_skb_load_bytes(ctx, 14 + 8, b, 16) || bpf_skb_load_bytes(ctx, 14 + 24, swapped, 16))
			return 0;
		if (bpf_skb_store_bytes(ctx, 14 + 8, swapped, 16, BPF_F_RECOMPUTE_CSUM) ||
		    bpf_skb_store_bytes(ctx, 14 + 24, b, 16, BPF_F_RECOMPUTE_CSUM))
			return 0;
		b[0] = TUNNEL_HOPS;
		return !bpf_skb_store_bytes(ctx, 14 + 7, b, 1, BPF_F_RECOMPUTE_CSUM);
	}
	if (bpf_skb_load_bytes(ctx, 14 + 8, b, 12))
		return 0;
	word = bpf_htons(TUNNEL_HOPS << 8 | b[1]);
	__builtin_memcpy(swapped + 4, b + 8, 4);
	__builtin_memcpy(swapped + 8, b + 4, 4);
	*(__be16 *)(swapped + 2) = bpf_htons(csum_update(bpf_ntohs(*(__be16 *)(b + 2)), bpf_ntohs(*(__be16 *)b), bpf_ntohs(word)));
	*(__be16 *)swapped = word;
	return !bpf_skb_store_bytes(ctx, 14 + 8, swapped, 12, BPF_F_RECOMPUTE_CSUM);
}

/* A packet with the identifier of probes. Returns WEIR_NO_REASON or a reason; `action`: what the program returns. */
static __always_inline __u32 probed(ctx_t *ctx, struct outer *o, struct weir_net_remote *r, int *action)
{
	struct weir_net_heard *h = heard_from(r);
	struct probe p = {};

	if (!h || !is_probe(ctx, o->inner, &p))
		return WEIR_R_tunnel_bad;
	if (p.probe.op == bpf_htons(WEIR_TP_ANSWER)) {
		heard(h, &p.probe);
		return WEIR_R_probe;
	}
	if (p.probe.op != bpf_htons(WEIR_TP_ASK) || !answered(ctx, o->inner) || !turn(ctx, o))
		return WEIR_R_tunnel_bad;
	h->asked++;
	*action = bpf_redirect(ctx_word(ctx, ifindex), 0);
	return WEIR_NO_REASON;
}

/* ---- programs ---- */

/*
 * Whether a packet that is to be cut may be taken out of its tunnel. Of the kernel's marks that it is in one the last stays when the headers go (before the
 * flags that Linux 6.18 has not), and UDP inside would be cut as a tunnel of UDP. And where a device puts datagrams of a flow together
 * (rx-udp-gro-forwarding), several frames lie in one packet: the first one's length says so.
 */
static __always_inline int may_cut(ctx_t *ctx, struct outer *o, __be16 type)
{
	__u32 length, off = o->inner + 14;
	__u8 ip[10];

	if (!ctx_word(ctx, gso_size))
		return 1;
	if (bpf_skb_load_bytes(ctx, off, ip, sizeof(ip)))
		return 0;
	if (type == bpf_htons(ETH_P_IP)) {
		length = bpf_ntohs(*(__be16 *)(ip + 2));
		if (ip[9] == IPPROTO_UDP && o->kind != WEIR_TK_GRE)
			return 0;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		length = bpf_ntohs(*(__be16 *)(ip + 4));
		if (length)
			length += 40;
		if (ip[6] == IPPROTO_UDP && o->kind != WEIR_TK_GRE)
			return 0;
	} else {
		return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
	}
	return !length || off + length == ctx_word(ctx, len);
}

/* Takes the frame out; it goes on by the chain's VID then. */
static __always_inline __u32 unpack(ctx_t *ctx, struct outer *o)
{
	__u32 cut = o->inner, reason;
	struct {
		__u16 pad;
		__u8 l2[14];
	} eth = {};

	if (bpf_skb_load_bytes(ctx, o->inner, eth.l2, 14))
		return WEIR_R_tunnel_bad;
	if (!may_cut(ctx, o, *(__be16 *)(eth.l2 + 12)))
		return WEIR_R_tunnel_nested;
	/* All between the outer Ethernet header and the end of the inner one. */
	reason = tunnel_cut(ctx, cut, o->v6, eth.l2, *(__be16 *)(eth.l2 + 12));
	if (!reason)
		reason = tunnel_ecn(ctx, o->ecn);
	return reason ? reason : WEIR_NO_REASON;
}

/* Takes the packet, or says why not. *vid: the interface that what is inside goes on by, 0: `action` is what the program returns. */
static __always_inline __u32 take(ctx_t *ctx, struct net *n, struct outer *o, __u32 bad, __u32 *vid, int *action)
{
	struct weir_net_remote *r;
	__u32 reason;

	if (!net_find(n->chain, exact_scope(WEIR_EX_LOCAL, 0, 0), o->dst[0], o->dst[1]))
		return WEIR_NO_REASON;
	r = sender(n, o->src, o->kind, &reason);
	if (!r)
		return reason;
	if (bad)
		return bad;
	if (o->identifier == WEIR_TP_IDENTIFIER)
		return probed(ctx, o, r, action);
	/* Of the frame inside, as the interfaces behind it count it. */
	*vid = owner(n, o->identifier, o->tenant, ctx_len(ctx) > o->inner ? ctx_len(ctx) - o->inner : 0, &reason);
	if (!*vid)
		return reason;
	if (o->kind == WEIR_TK_GENEVE && !o->tenant && !(r->accepts & WEIR_TA_NO_TENANT)) {
		*vid = 0;
		return WEIR_R_tunnel_no_tenant;
	}
	n->chain->origin = *vid;
	n->chain->place = WEIR_CW_TUNNEL;
	return unpack(ctx, o);
}

SEC(CTX_SECTION)
int underlay(ctx_t *ctx)
{
	int action = TC_ACT_UNSPEC, bad;
	struct outer o = {};
	struct net n = {};
	__u32 reason, vid = 0;

	bad = look_ip(ctx, &o);
	if (!bad)
		bad = o.kind ? look_gre(ctx, &o) : look_udp(ctx, &o);
	if (bad == NOT_OURS)
		goto out;
	reason = WEIR_R_internal;
	if (net_begin(ctx, &n))
		reason = take(ctx, &n, &o, bad, &vid, &action);
	action = tunnel_end(ctx, &n, vid, action, reason);
out:
	return action;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
