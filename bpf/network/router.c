// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * router: a router of a virtual network. Answers ARP, neighbour solicitations
 * and echo requests for its own addresses; sends IP packets to the neighbour
 * they are for, or by the route with the longest prefix.
 *
 * One program for all routers. RFC 1812, RFC 8200; what it does not route it drops with a reason, and `refuse` tells the sender.
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

#define NEIGHBOUR_AGE	600	/* seconds that a learned neighbour lasts without asking again */
#define NEED4		(14 + 20)
#define NEED6		(14 + 40)

NET_ARRAY(net_routers, struct weir_net_router);
NET_ARRAY(net_hops, struct weir_net_hop);

/* Where a packet goes. */
struct way {
	struct weir_net_router *router;
	__u32 number;		/* of the router */
	__u64 high, low;	/* destination, then next hop, as in keys of exact matches */
	__u32 vid;		/* of the interface that it leaves by */
	__u64 mac;		/* of the next hop, a number; 0: not known */
	__u32 own;		/* it is for the router itself */
	__u32 cause;		/* enum weir_net_cause, of a packet that is dropped */
	__u32 mtu;		/* WEIR_NE_TOO_BIG: what the way on carries */
};

static __always_inline __u64 mac_number(__u8 *mac)
{
	return (__u64)mac[0] << 40 | (__u64)mac[1] << 32 | (__u64)mac[2] << 24 | (__u64)mac[3] << 16 |
	       (__u64)mac[4] << 8 | mac[5];
}

/* Whether the frame is for this station: its own address, or one of many. */
static __always_inline int is_ours(__u8 *data, struct weir_vi *in)
{
	if (data[0] & 1)
		return 1;
	return *(__u32 *)data == *(__u32 *)in->mac && *(__u16 *)(data + 4) == *(__u16 *)(in->mac + 4);
}

/*
 * Addresses that no router sends packets from or to (RFC 1812, 5.3.7; RFC 4291, 2.5): of this network, of the host itself, of several
 * stations, reserved ones; and to groups of the link (RFC 5771, 4).
 */
static __always_inline int is_martian4(__be32 address, int source)
{
	__u32 a = bpf_ntohl(address), first = a >> 24;

	return !first || first == 127 || first >= 240 || (source ? first >= 224 : a >> 8 == 0xe00000);
}

static __always_inline int is_martian6(__u32 *a, int source)
{
	__u32 first = bpf_ntohl(a[0]), scope = first >> 16 & 15;

	/* ::, ::1, and addresses of IPv4 in the clothes of IPv6, which keys of exact matches look like. */
	if (!(a[0] | a[1]) && (a[2] == bpf_htonl(0xffff) || (!a[2] && bpf_ntohl(a[3]) <= 1)))
		return 1;
	return first >> 24 == 0xff && (source || scope <= 2);
}

/* Addresses of a link, which the router itself may be spoken to with, and nothing behind it (RFC 3927, 2.7; RFC 4291, 2.5.6). */
static __always_inline int is_of_link4(__be32 address)
{
	return bpf_ntohl(address) >> 16 == 0xa9fe;
}

/* Whether an address is one of the router's own. */
static __always_inline int is_own(struct net *n, struct way *w, __u64 high, __u64 low)
{
	struct weir_exact *known = net_find(n->chain, exact_scope(WEIR_EX_NEIGHBOUR, w->number, 0), high, low);

	return known && !known->value;
}

/* The first `bits` of an address, whose words are as in packets. */
static __always_inline __u64 masked(__u64 word, __u32 bits)
{
	if (bits >= 64)
		return word;
	return bits ? word & bpf_cpu_to_be64(~0ULL << (64 - bits)) : 0;
}

/* The hop by which packets to `w` leave, by the longest prefix; 0: there is no route. */
static __always_inline struct weir_net_hop *route(ctx_t *ctx, struct net *n, struct way *w, __u8 *lengths)
{
	struct weir_exact *found = 0;
	__u32 i, bits, scope, at;

	for (i = 0; i < WEIR_NET_LENGTHS && !found; i++) {
		bits = lengths[i];
		if (!bits)
			break;
		bits--;
		scope = exact_scope(WEIR_EX_ROUTE, w->number, bits);
		found = net_find(n->chain, scope, masked(w->high, bits), bits > 64 ? masked(w->low, bits - 64) : 0);
	}
	if (!found)
		return 0;
	at = found->value;
	if (found->extra > 1)
		at += spread_over(spread_hash(ctx), found->extra);
	return net_at(net_hops, n->chain, at, net_half_hops);
}

/* Fills in the interface and the next hop's MAC address, if it is known. Returns a reason to drop the packet. */
static __always_inline __u32 find_way(ctx_t *ctx, struct net *n, struct way *w, __u8 *lengths)
{
	struct weir_net_learned *learned;
	struct weir_exact *known;
	struct weir_net_hop *hop;

	known = net_find(n->chain, exact_scope(WEIR_EX_NEIGHBOUR, w->number, 0), w->high, w->low);
	if (known) {
		w->own = !known->value;
		w->vid = known->value;
		w->mac = known->extra;
		return WEIR_NO_REASON;
	}
	hop = route(ctx, n, w, lengths);
	if (!hop) {
		w->cause = WEIR_NE_NO_ROUTE;
		return WEIR_R_no_route;
	}
	if (hop->kind == WEIR_NH_UNREACHABLE)
		w->cause = WEIR_NE_UNREACHABLE;
	else if (hop->kind == WEIR_NH_PROHIBIT)
		w->cause = WEIR_NE_PROHIBITED;
	if (hop->kind != WEIR_NH_GATEWAY && hop->kind != WEIR_NH_LINK)
		return WEIR_R_no_route;
	w->vid = hop->vid;
	w->mac = mac_number(hop->mac);
	if (w->mac)
		return WEIR_NO_REASON;
	if (hop->kind == WEIR_NH_GATEWAY) {
		w->high = (__u64)hop->gateway[1] << 32 | hop->gateway[0];
		w->low = (__u64)hop->gateway[3] << 32 | hop->gateway[2];
	}
	if (w->router->learned_mask) {
		learned = net_learned_find(w->router->learned, w->router->learned_mask, NEIGHBOUR_AGE, w->high, w->low ^ w->vid);
		if (learned)
			w->mac = learned->extra;
	}
	return WEIR_NO_REASON;
}

/* Turns the packet in hand into a question for the next hop's address: the packet is lost, its sender sends another. */
static __always_inline __u32 ask(ctx_t *ctx, struct net *n, struct way *w, struct weir_vi *out)
{
#ifdef WEIR_HOOK_TC
	__u8 *data, *end, *p;
	__u32 low;

	/* Neighbours of IPv6 are declared, or make themselves known by asking for the router. */
	if (w->high || (__u32)w->low != 0xffff0000 || !out->address4 || ctx_word(ctx, gso_size))
		return WEIR_R_unknown_neighbour;
	if (bpf_skb_change_tail(ctx, 14 + ARP_BYTES, 0))
		return WEIR_R_unknown_neighbour;
	net_pull(ctx, 14 + ARP_BYTES);
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	p = data + 14;
	if (p + ARP_BYTES > end)
		return WEIR_R_unknown_neighbour;
	low = w->low >> 32;
	__builtin_memset(data, 0xff, 6);
	__builtin_memcpy(data + 6, out->mac, 6);
	*(__be16 *)(data + 12) = bpf_htons(ETH_P_ARP);
	*(__u32 *)p = bpf_htonl(0x00010800);
	*(__u32 *)(p + 4) = bpf_htonl(0x06040001);
	__builtin_memcpy(p + 8, out->mac, 6);
	*(__u32 *)(p + 14) = out->address4;
	__builtin_memset(p + 18, 0, 6);
	*(__u32 *)(p + 24) = low;
	n->stats->reason[WEIR_R_unknown_neighbour]++;
	return WEIR_NO_REASON;
#else
	return WEIR_R_unknown_neighbour;
#endif
}

/* Bytes of the packet, or of the largest segment that it will be cut into, behind the Ethernet header. */
static __always_inline __u32 packet_len(ctx_t *ctx, __u32 v6)
{
#ifdef WEIR_HOOK_TC
	__u32 gso = ctx_word(ctx, gso_size), l4 = 40, proto;
	__u8 head[14];

	if (!gso)
		return ctx_word(ctx, len) - 14;
	if (bpf_skb_load_bytes(ctx, 14, head, 10))
		return 0;
	proto = v6 ? head[6] : head[9];
	if (!v6)
		l4 = (head[0] & 15) * 4;
	if (proto != IPPROTO_TCP)
		return l4 + 8 + gso;
	if (bpf_skb_load_bytes(ctx, 14 + l4, head, 14))
		return 0;
	return l4 + (head[12] >> 4) * 4 + gso;
#else
	return ctx_len(ctx) - 14;
#endif
}

/* Sends the packet on by `w`: the TTL or hop limit has been looked at. */
static __always_inline __u32 send_on(ctx_t *ctx, struct net *n, struct way *w, __u32 v6)
{
	struct weir_vi *out = net_interface(n->chain, w->vid);
	__u8 *data, *end, *ip;
	__u32 sum;

	if (!out)
		return WEIR_R_no_link;
	if (out->mtu && packet_len(ctx, v6) > out->mtu) {
		data = packet_word(ctx, data);
		end = packet_word(ctx, data_end);
		/* A router of a virtual network does not cut packets: who lets it be cut is not told, and sends less by himself. */
		if (v6 || (data + NEED4 <= end && data[14 + 6] & 0x40))
			w->cause = WEIR_NE_TOO_BIG;
		w->mtu = out->mtu;
		return WEIR_R_path_mtu;
	}
	if (!w->mac)
		return ask(ctx, n, w, out);
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	ip = data + 14;
	if (data + NEED4 > end || (v6 && data + NEED6 > end))
		return WEIR_R_head_split;
	net_write_mac(data, w->mac);
	__builtin_memcpy(data + 6, out->mac, 6);
	if (v6) {
#ifdef WEIR_HOOK_TC
		/* The sum of the bytes that a device may have left (skb->csum) follows; that of IPv4 does not change. */
		__u8 limit = ip[7] - 1;

		if (bpf_skb_store_bytes(ctx, 14 + 7, &limit, 1, BPF_F_RECOMPUTE_CSUM))
			return WEIR_R_internal;
#else
		ip[7]--;
#endif
	} else {
		/* RFC 1624 for one less in the upper byte. */
		sum = bpf_ntohs(*(__be16 *)(ip + 10)) + 0x100;
		*(__be16 *)(ip + 10) = bpf_htons(sum + (sum >> 16));
		ip[8]--;
	}
	return WEIR_NO_REASON;
}

/* Answers an echo request to the router itself, by turning it around. Returns 0 if it is none. */
static __always_inline int echo(ctx_t *ctx, struct net *n, __u32 v6)
{
	__u8 *data, *end, *p, mac[6];
	__u32 word, i, sum, head = v6 ? 14 + 40 : 14 + 20;

	net_pull(ctx, head + 8);
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	if (v6) {
		p = data + 14 + 40;
		if (p + 8 > end || data[14 + 6] != 58 || p[0] != 128)
			return 0;
		for (i = 0; i < 16; i += 4) {
			word = *(__u32 *)(data + 14 + 8 + i);
			*(__u32 *)(data + 14 + 8 + i) = *(__u32 *)(data + 14 + 24 + i);
			*(__u32 *)(data + 14 + 24 + i) = word;
		}
		data[14 + 7] = 64;
		p[0] = 129;
		sum = bpf_ntohs(*(__be16 *)(p + 2));
		sum = sum >= 0x100 ? sum - 0x100 : sum + 0xfeff;
	} else {
		p = data + 14 + 20;
		if (p + 8 > end || data[14 + 9] != 1 || p[0] != 8 || data[14] != 0x45 ||
		    *(__be16 *)(data + 14 + 6) & bpf_htons(0x3fff))
			return 0;
		word = *(__u32 *)(data + 14 + 12);
		*(__u32 *)(data + 14 + 12) = *(__u32 *)(data + 14 + 16);
		*(__u32 *)(data + 14 + 16) = word;
		/* TTL 64 in place of what it had. */
		sum = (__u16)~bpf_ntohs(*(__be16 *)(data + 14 + 10));
		sum += (__u16)~(data[14 + 8] << 8) + (64 << 8);
		data[14 + 8] = 64;
		*(__be16 *)(data + 14 + 10) = bpf_htons(~csum_fold(sum));
		p[0] = 0;
		sum = bpf_ntohs(*(__be16 *)(p + 2)) + 0x800;
		sum = (sum & 0xffff) + (sum >> 16);
	}
	*(__be16 *)(p + 2) = bpf_htons(sum);
	__builtin_memcpy(mac, data, 6);
	__builtin_memcpy(data, data + 6, 6);
	__builtin_memcpy(data + 6, n->in->mac, 6);
	return 1;
}

/* The answer goes back where the question came from. */
static __always_inline __u32 answered(struct net *n, struct way *w)
{
	n->stats->reason[WEIR_R_in_graph]++;
	w->vid = n->chain->vid;
	return WEIR_NO_REASON;
}

/* ARP and neighbour discovery: learns who speaks, and answers who asks for the router. Returns 0 if the frame is neither. */
static __always_inline int near(ctx_t *ctx, struct net *n, struct way *w, __u32 type, __u32 *reason)
{
	struct net_question q = {};
	__u8 *data, *end, *p;
	__u32 asked;

	asked = net_asked(ctx, type, &q) && is_own(n, w, q.high, q.low);
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	p = data + 14;
	/* Neighbours that nobody declared make themselves known by asking, or by answering what ask() sent. */
	if (type == bpf_htons(ETH_P_ARP) && p + ARP_BYTES <= end && w->router->learned_mask &&
	    ((asked && !q.probe) || (*(__u32 *)(p + 4) == bpf_htonl(0x06040002) && !(data[0] & 1))))
		net_learn(w->router->learned, w->router->learned_mask, NEIGHBOUR_AGE, 0,
			  NET_MAPPED(*(__u32 *)(p + 14)) ^ n->chain->vid, mac_number(p + 8), n->chain->vid);
	if (asked && net_answer(ctx, &q, mac_number(n->in->mac))) {
		*reason = answered(n, w);
		return 1;
	}
	*reason = WEIR_R_router_local;
	return type == bpf_htons(ETH_P_ARP);
}

/* The sender of a packet that no router may send on is not told (RFC 1812, 5.3.7). */
static __always_inline __u32 refused_silently(struct way *w)
{
	w->cause = 0;
	return WEIR_R_martian;
}

static __always_inline __u32 route4(ctx_t *ctx, struct net *n, struct way *w)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip = data + 14;
	__u64 sum = 0;
	__u32 i, ttl, reason, of_link;

	if (ip + 20 > end)
		return WEIR_R_ip4_truncated;
	if (ip[0] >> 4 != 4)
		return WEIR_R_ip4_bad_version;
	if ((ip[0] & 15) < 5)
		return WEIR_R_ip4_bad_ihl;
	/* Options are summed by who is asked to act on them: no router here. */
	if ((ip[0] & 15) == 5) {
#pragma unroll
		for (i = 0; i < 20; i += 4)
			sum += *(__u32 *)(ip + i);
		if (csum_fold(sum) != 0xffff)
			return WEIR_R_ip4_bad_checksum;
	}
	if (data[0] & 1)
		return WEIR_R_router_local;
	if (is_martian4(*(__be32 *)(ip + 12), 1) || is_martian4(*(__be32 *)(ip + 16), 0))
		return WEIR_R_martian;
	of_link = is_of_link4(*(__be32 *)(ip + 12)) || is_of_link4(*(__be32 *)(ip + 16));
	w->high = 0;
	w->low = NET_MAPPED(*(__u32 *)(ip + 16));
	ttl = ip[8];
	reason = find_way(ctx, n, w, w->router->length4);
	if (w->own)
		return echo(ctx, n, 0) ? answered(n, w) : WEIR_R_router_local;
	if (of_link)
		return refused_silently(w);
	if (reason != WEIR_NO_REASON)
		return reason;
	if (ttl <= 1) {
		w->cause = WEIR_NE_EXPIRED;
		return WEIR_R_ttl_expired;
	}
	return send_on(ctx, n, w, 0);
}

static __always_inline __u32 route6(ctx_t *ctx, struct net *n, struct way *w)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip = data + 14;
	__u32 ttl, reason, of_link;

	if (ip + 40 > end)
		return WEIR_R_ip6_truncated;
	if (ip[0] >> 4 != 6)
		return WEIR_R_ip6_bad_version;
	if (data[0] & 1 || (ip[24] == 0xfe && (ip[25] & 0xc0) == 0x80))
		return WEIR_R_router_local;
	if (is_martian6((void *)(ip + 8), 1) || is_martian6((void *)(ip + 24), 0))
		return WEIR_R_martian;
	of_link = ip[8] == 0xfe && (ip[9] & 0xc0) == 0x80;
	w->high = *(__u64 *)(ip + 24);
	w->low = *(__u64 *)(ip + 32);
	ttl = ip[7];
	reason = find_way(ctx, n, w, w->router->length6);
	if (w->own)
		return echo(ctx, n, 1) ? answered(n, w) : WEIR_R_router_local;
	if (of_link)
		return refused_silently(w);
	if (reason != WEIR_NO_REASON)
		return reason;
	if (ttl <= 1) {
		w->cause = WEIR_NE_EXPIRED;
		return WEIR_R_ttl_expired;
	}
	return send_on(ctx, n, w, 1);
}

SEC(CTX_SECTION)
int router(ctx_t *ctx)
{
	__u32 type, reason = WEIR_R_internal;
	__u8 *data, *end;
	struct net n = {};
	struct way w = {};

	if (!net_enter(ctx, &n))
		goto leave;
	w.number = n.in->instance;
	w.router = net_at(net_routers, n.chain, w.number, net_half_routers);
	if (!w.router)
		goto leave;
	net_pull(ctx, NEED6);
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	reason = WEIR_R_frame_short;
	if (data + 14 > end)
		goto leave;
	reason = WEIR_R_dst_mac_mismatch;
	if (!is_ours(data, n.in))
		goto leave;
	type = *(__be16 *)(data + 12);
	if (near(ctx, &n, &w, type, &reason))
		goto leave;
	if (type == bpf_htons(ETH_P_IP))
		reason = route4(ctx, &n, &w);
	else if (type == bpf_htons(ETH_P_IPV6))
		reason = route6(ctx, &n, &w);
	else
		reason = WEIR_R_router_local;
	/* Its sender is told by another program: few packets need that much code. */
	if (w.cause) {
		n.chain->cause = w.cause << 16 | w.mtu;
		n.chain->reason = reason;
		reason = net_hand_on(ctx, &n, WEIR_NS_REFUSE);
	}
leave:
	return net_leave(ctx, &n, w.vid, reason);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
