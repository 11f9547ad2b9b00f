/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Tunnels between edges, on tc: VXLAN (RFC 7348), Geneve (RFC 8926, with an option that names the tenant) and GRE with a key (RFC 2784, 2890:
 * transparent Ethernet bridging), over IPv4 and IPv6. docs/design/tunnels.md says why things are as they are.
 *
 * What the kernel is told when room is made keeps large frames whole: what is inside, and where, so that whoever cuts them later
 * fills in all headers. Invariant: after tunnel_grow() and tunnel_cut(), skb->protocol is that of the bytes, no tag of the
 * frame inside is beside the data of the one outside, and a checksum that a sender left to its device is still left.
 */
#ifndef WEIR_TUNNEL_H
#define WEIR_TUNNEL_H

#define BPF_ADJ_ROOM_MAC			1
#define BPF_F_ADJ_ROOM_FIXED_GSO		(1ULL << 0)
#define BPF_F_ADJ_ROOM_ENCAP_L3_IPV4		(1ULL << 1)
#define BPF_F_ADJ_ROOM_ENCAP_L3_IPV6		(1ULL << 2)
#define BPF_F_ADJ_ROOM_ENCAP_L4_GRE		(1ULL << 3)
#define BPF_F_ADJ_ROOM_ENCAP_L4_UDP		(1ULL << 4)
#define BPF_F_ADJ_ROOM_ENCAP_L2_ETH		(1ULL << 6)
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV4		(1ULL << 7)	/* Linux 6.3 */
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV6		(1ULL << 8)
#define BPF_F_ADJ_ROOM_ENCAP_L2(len)		((__u64)(len) << 56)
#define BPF_F_TUNINFO_IPV6			(1ULL << 0)
#define BPF_F_ZERO_CSUM_TX			(1ULL << 1)
#define BPF_F_DONT_FRAGMENT			(1ULL << 2)
#define EINVAL		22
#define EALREADY	114
#define EPROTO		71

/* The kernel's own; addresses of IPv4 in host order. */
struct bpf_tunnel_key {
	__u32 tunnel_id;
	union {
		__u32 remote_ipv4;
		__u32 remote_ipv6[4];
	};
	__u8 tunnel_tos;
	__u8 tunnel_ttl;
	__u16 tunnel_ext;
	__u32 tunnel_label;
	union {
		__u32 local_ipv4;
		__u32 local_ipv6[4];
	};
};

#define TUNNEL_HOPS	64
#define TUNNEL_DF	0x4000
#define TUNNEL_TAGS	2		/* tags of a frame inside, at most */
#define TUNNEL_GENEVE	16		/* bytes: header and the option with the tenant */
#define TUNNEL_PADDED	60		/* bytes of the shortest frame of Ethernet, its check sequence apart */
#define ETH_P_TEB	0x6558
#define IPPROTO_GRE	47
#define ECN_CE		3
#define VXLAN_HAS_ID	0x08000000
#define GENEVE_CONTROL	0x80		/* second byte: the O bit */
#define GENEVE_CRITICAL	0x80		/* of an option's type */
#define GRE_HAS_KEY	0x2000
#define GRE_HAS_SUM	0x8000
#define GRE_HAS_NUMBER	0x1000

/*
 * Sets skb->protocol by the bytes of the frame, and puts its first tag, if any is in the data, beside them: what the kernel
 * does to a tag that it takes out of the data. Two are put on and taken off.
 */
static __always_inline long tunnel_look_anew(ctx_t *ctx)
{
	if (bpf_skb_vlan_push(ctx, bpf_htons(ETH_P_8021Q), 1))
		return -1;
	if (bpf_skb_vlan_push(ctx, bpf_htons(ETH_P_8021Q), 1))
		return -1;
	if (bpf_skb_vlan_pop(ctx))
		return -1;
	return bpf_skb_vlan_pop(ctx);
}

/* ---- out ---- */

/* A frame on its way into a tunnel. */
struct tunnel_out {
	__u16 pad;
	__u8 l2[14 + TUNNEL_TAGS * VLAN_BYTES];	/* its Ethernet header, tags included */
	__u32 l2_len;
	__u32 type;		/* EtherType behind all tags, as in packets */
	__u32 ecn;
	__u32 hash;
	__u32 ip_len;		/* bytes behind l2 of the longest packet that it is cut into */
};

/* Bytes that stand in front of the frame on the underlay, its Ethernet header apart. */
static __always_inline __u32 tunnel_overhead(struct weir_net_remote *r)
{
	__u32 ip = r->family == 6 ? 40 : 20;

	if (r->kind == WEIR_TK_GRE)
		return ip + 8;
	return ip + 8 + (r->kind == WEIR_TK_GENEVE ? TUNNEL_GENEVE : 8);
}

/* Takes the tags off the frame, into t->l2. Returns 0 or a reason to drop it. */
static __always_inline int tunnel_take_tags(ctx_t *ctx, struct tunnel_out *t)
{
	__be16 type = t->type;

	if (!ctx_word(ctx, vlan_present))
		return 0;
	*(__be16 *)(t->l2 + 12) = ctx_word(ctx, vlan_proto);
	*(__be16 *)(t->l2 + 14) = bpf_htons(ctx_word(ctx, vlan_tci));
	*(__be16 *)(t->l2 + 16) = type;
	t->l2_len = 18;
	if (bpf_skb_vlan_pop(ctx))
		return WEIR_R_internal;
	if (!ctx_word(ctx, vlan_present))
		return 0;
	/* The second one was in the data, and came out. */
	*(__be16 *)(t->l2 + 16) = ctx_word(ctx, vlan_proto);
	*(__be16 *)(t->l2 + 18) = bpf_htons(ctx_word(ctx, vlan_tci));
	if (bpf_skb_load_bytes(ctx, 12, t->l2 + 20, 2))
		return WEIR_R_internal;
	t->type = *(__be16 *)(t->l2 + 20);
	t->l2_len = 22;
	if (bpf_skb_vlan_pop(ctx))
		return WEIR_R_internal;
	return ctx_word(ctx, vlan_present) ? WEIR_R_vlan_deep : 0;
}

/* Notes what the frame is; changes nothing. Returns 0 or a reason to drop it. */
static __always_inline int tunnel_look(ctx_t *ctx, struct tunnel_out *t)
{
	__u32 segment = ctx_word(ctx, gso_size), len = ctx_word(ctx, len) - 14, l4 = 40, proto;
	__u8 head[20];

	t->l2_len = 14;
	t->ecn = 0;
	if (bpf_skb_load_bytes(ctx, 0, t->l2, 14))
		return WEIR_R_frame_short;
	t->type = *(__be16 *)(t->l2 + 12);
	if (t->type == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(ctx, 14, head, 20))
			return WEIR_R_ip4_truncated;
		t->ecn = head[1] & ECN_CE;
		l4 = (head[0] & 15) * 4;
		proto = head[9];
	} else if (t->type == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(ctx, 14, head, 20))
			return WEIR_R_ip6_truncated;
		t->ecn = head[1] >> 4 & ECN_CE;
		proto = head[6];
	} else {
		goto out;
	}
	if (segment) {
		len = l4 + 8 + segment;
		if (proto == IPPROTO_TCP) {
			if (bpf_skb_load_bytes(ctx, 14 + l4 + 12, head, 1))
				return WEIR_R_tcp_truncated;
			len = l4 + (head[0] >> 4) * 4 + segment;
		}
	}
out:
	t->ip_len = len;
	return 0;
}

/*
 * The MTU that the sender of the frame has to keep to on the way to `r`, if the frame does not; 0: it fits. Of a frame that is to be cut,
 * what it is cut into counts.
 */
static __always_inline __u32 tunnel_too_big(struct tunnel_out *t, struct weir_net_remote *r)
{
	__u32 more = tunnel_overhead(r) + t->l2_len;

	if (!r->mtu || t->ip_len + more <= r->mtu)
		return 0;
	return r->mtu > more ? r->mtu - more : 1;
}

/*
 * Makes `more` bytes of room behind the Ethernet header, of which the last t->l2_len are for that of the frame inside. The kernel takes
 * IP packets only, so that another frame is one until its own type stands inside. Returns 0 or a reason.
 */
static __always_inline int tunnel_grow(ctx_t *ctx, struct tunnel_out *t, __u32 more, const int v6, const int gre, __u32 transit)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L2_ETH | BPF_F_ADJ_ROOM_ENCAP_L2(t->l2_len);
	__be16 type = t->type == bpf_htons(ETH_P_IPV6) ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	long code;

	flags |= v6 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	flags |= gre ? BPF_F_ADJ_ROOM_ENCAP_L4_GRE : BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (type != t->type) {
		/* Short frames are padded, as a device would; the far end may have a use for it (tunnel_cut). */
		if (ctx_word(ctx, len) < TUNNEL_PADDED && bpf_skb_change_tail(ctx, TUNNEL_PADDED, 0))
			return WEIR_R_internal;
		if (bpf_skb_store_bytes(ctx, 12, &type, sizeof(type), 0))
			return WEIR_R_internal;
	}
	if (ctx_word(ctx, protocol) != type && tunnel_look_anew(ctx))
		return WEIR_R_internal;
	code = bpf_skb_adjust_room(ctx, more, BPF_ADJ_ROOM_MAC, flags);
	if (!code)
		return 0;
	if (code != -EALREADY)
		return WEIR_R_head_room;
	/*
	 * The kernel holds it for a frame in a tunnel. If it came out of one here, what the kernel knows of that one is right for the next one
	 * again: headers in front of the same frame. If it is a workload's own tunnel, a frame that is not to be cut needs nothing of it.
	 */
	if (!transit && ctx_word(ctx, gso_size))
		return WEIR_R_tunnel_nested;
	if (bpf_skb_adjust_room(ctx, more, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return WEIR_R_head_room;
	return 0;
}

/* A length of 16 bits; that of a frame to be cut may be more, and then says nothing, as in the kernel. */
static __always_inline __be16 tunnel_length(__u32 length)
{
	return length > 0xffff ? 0 : bpf_htons(length);
}

static __always_inline void tunnel_put32(__u8 *at, __u32 value)
{
	*(__be32 *)at = bpf_htonl(value);
}

static __always_inline void tunnel_put16(__u8 *at, __u32 value)
{
	*(__be16 *)at = bpf_htons(value);
}

static __always_inline void tunnel_ip4(__u8 *ip, struct weir_net_remote *r, __u32 ecn, __u32 proto, __u32 total)
{
	__be16 length = tunnel_length(total);
	__u64 sum;

	tunnel_put16(ip, 0x4500 | ecn);
	*(__be16 *)(ip + 2) = length;
	tunnel_put32(ip + 4, TUNNEL_DF);
	tunnel_put16(ip + 8, TUNNEL_HOPS << 8 | proto);
	*(__u32 *)(ip + 12) = r->local[0];
	*(__u32 *)(ip + 16) = r->address[0];
	sum = (0x4500 | ecn) + bpf_ntohs(length) + TUNNEL_DF + (TUNNEL_HOPS << 8 | proto);
	sum += csum_halves(bpf_ntohl(r->local[0])) + csum_halves(bpf_ntohl(r->address[0]));
	tunnel_put16(ip + 10, ~csum_fold(sum));
}

static __always_inline void tunnel_ip6(__u8 *ip, struct weir_net_remote *r, __u32 ecn, __u32 label, __u32 proto, __u32 payload)
{
	__u32 i;

	tunnel_put32(ip, 6U << 28 | ecn << 20 | (label & 0xfffff));
	*(__be16 *)(ip + 4) = tunnel_length(payload);
	tunnel_put16(ip + 6, proto << 8 | TUNNEL_HOPS);
#pragma unroll
	for (i = 0; i < 4; i++) {
		*(__u32 *)(ip + 8 + i * 4) = r->local[i];
		*(__u32 *)(ip + 24 + i * 4) = r->address[i];
	}
}

/* Room for the longest outer headers: two bytes in front, so that what lies behind the Ethernet header is aligned. */
struct tunnel_headers {
	__u16 pad;
	__u8 l2[14];
	__u8 bytes[40 + 8 + TUNNEL_GENEVE];
};

/* Puts the frame into a packet to `r`. Family and kind are constants: every offset is one, then. Returns 0 or a reason. */
static __always_inline int tunnel_put(ctx_t *ctx, struct tunnel_out *t, struct weir_net_remote *r, struct weir_net_tunnel *net, __u32 transit,
				      const int v6, const int kind)
{
	const __u32 ip = v6 ? 40 : 20, more = ip + 8 + (kind == WEIR_TK_VXLAN ? 8 : kind == WEIR_TK_GENEVE ? TUNNEL_GENEVE : 0);
	const __u32 proto = kind == WEIR_TK_GRE ? IPPROTO_GRE : IPPROTO_UDP;
	__u32 l2_len = t->l2_len, total;
	struct tunnel_headers h = {};
	__u8 *p = h.bytes + ip;
	int reason;

	reason = tunnel_grow(ctx, t, more + l2_len, v6, kind == WEIR_TK_GRE, transit);
	if (reason)
		return reason;
	total = ctx_word(ctx, len) - 14;
	if (v6)
		tunnel_ip6(h.bytes, r, t->ecn, t->hash, proto, total - 40);
	else
		tunnel_ip4(h.bytes, r, t->ecn, proto, total);
	if (kind != WEIR_TK_GRE) {
		tunnel_put16(p, 0xc000 | (t->hash & 0x3fff));
		tunnel_put16(p + 2, r->port);
		*(__be16 *)(p + 4) = tunnel_length(total - ip);
		p += 8;
	}
	switch (kind) {
	case WEIR_TK_VXLAN:
		tunnel_put32(p, VXLAN_HAS_ID);
		tunnel_put32(p + 4, net->identifier << 8);
		break;
	case WEIR_TK_GENEVE:
		tunnel_put16(p, (TUNNEL_GENEVE - 8) / 4 << 8);
		tunnel_put16(p + 2, ETH_P_TEB);
		tunnel_put32(p + 4, net->identifier << 8);
		tunnel_put16(p + 8, WEIR_TN_CLASS);
		tunnel_put16(p + 10, WEIR_TN_TENANT << 8 | 1);
		tunnel_put32(p + 12, net->tenant);
		break;
	case WEIR_TK_GRE:
		tunnel_put16(p, GRE_HAS_KEY);
		tunnel_put16(p + 2, ETH_P_TEB);
		tunnel_put32(p + 4, net->identifier);
		break;
	}
	if (bpf_skb_store_bytes(ctx, 14, h.bytes, more, BPF_F_RECOMPUTE_CSUM))
		return WEIR_R_internal;
	at_least_one(l2_len);
	at_most(l2_len, 22);
	if (bpf_skb_store_bytes(ctx, 14 + more, t->l2, l2_len, BPF_F_RECOMPUTE_CSUM))
		return WEIR_R_internal;
	return 0;
}

/* ---- the way to another edge ---- */

/* What one CPU knows of it. */
struct tunnel_near {
	__u32 until;		/* coarse time until which it holds, 0: never asked */
	__u32 device;		/* 0: the kernel has to say, each time */
	__u32 address;		/* a word of the remote's, which tells that the number has gone to another one */
	__u8 to[6], from[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_TN_NEAR);
	__type(key, __u32);
	__type(value, struct tunnel_near);
} net_near SEC(".maps");

#define TUNNEL_NEAR_SHIFT	30	/* a unit of time is 1.07 s */

/*
 * Sends the packet, whose headers are complete but for those of Ethernet. The kernel is asked for MAC addresses once a second; where it has none,
 * or is not set to forward (bpf_fib_lookup tells nothing then), the packet goes through its neighbour table, which asks. So does the one packet
 * of each second: the table finds out by use whether a neighbour is still there.
 */
static __always_inline int tunnel_leave(ctx_t *ctx, struct weir_net_remote *r, const int v6)
{
	__u32 time = (__u32)(clock_ns() >> TUNNEL_NEAR_SHIFT) + 1, state = r->state, word = r->address[v6 ? 3 : 0];
	struct tunnel_near *near = bpf_map_lookup_elem(&net_near, &state);
	__be16 type = v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	int asked = 0;
	struct {
		__u16 pad;
		__u8 to[6], from[6];
		__be16 type;
	} l2 = {};

	if (near && (near->until != time || near->address != word)) {
		struct weir_fib fib = { .family = v6 ? AF_INET6 : AF_INET, .ifindex = r->device };
		__u32 i;

#pragma unroll
		for (i = 0; i < (v6 ? 4 : 1); i++) {
			fib.src[i] = r->local[i];
			fib.dst[i] = r->address[i];
		}
		asked = 1;
		near->device = 0;
		near->until = time;
		near->address = word;
		if (bpf_fib_lookup(ctx, (void *)&fib, sizeof(fib), BPF_FIB_LOOKUP_OUTPUT) == BPF_FIB_LKUP_RET_SUCCESS) {
			__builtin_memcpy(near->to, fib.dmac, 6);
			__builtin_memcpy(near->from, fib.smac, 6);
			near->device = fib.ifindex;
		}
	}
	if (near && near->device) {
		__builtin_memcpy(l2.to, near->to, 6);
		__builtin_memcpy(l2.from, near->from, 6);
	}
	l2.type = type;
	if (bpf_skb_store_bytes(ctx, 0, l2.to, 14, 0))
		return TC_ACT_SHOT;
	/* A frame that was in a tunnel before keeps the protocol of what it carried. */
	if (ctx_word(ctx, protocol) != type && tunnel_look_anew(ctx))
		return TC_ACT_SHOT;
	if (near && near->device && !asked)
		return bpf_redirect(near->device, 0);
	return bpf_redirect_neigh(r->device, 0, 0, 0);
}

/* ---- in ---- */

/*
 * Takes `cut` bytes out behind the Ethernet header and puts `l2` in its place. Linux before 6.3 does not know the flags that say what
 * comes out: there, changing the outer packet into one of the other family takes the first 20 bytes, and the protocol, along.
 */
static __always_inline int tunnel_cut(ctx_t *ctx, __u32 cut, int v6, __u8 *l2, __be16 type)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	int to6 = type == bpf_htons(ETH_P_IPV6);
	long code;

	if (v6 && !to6)
		flags |= BPF_F_ADJ_ROOM_DECAP_L3_IPV4;
	if (!v6 && to6)
		flags |= BPF_F_ADJ_ROOM_DECAP_L3_IPV6;
	code = bpf_skb_adjust_room(ctx, -(int)cut, BPF_ADJ_ROOM_MAC, flags);
	if (code == -EINVAL && flags != BPF_F_ADJ_ROOM_FIXED_GSO) {
		code = 0;
		if (v6) {
			code = bpf_skb_change_proto(ctx, bpf_htons(ETH_P_IP), 0);
			cut -= 20;
		}
		if (!code)
			code = bpf_skb_adjust_room(ctx, -(int)cut, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO);
	}
	if (code || bpf_skb_store_bytes(ctx, 0, l2, 14, 0))
		return WEIR_R_tunnel_bad;
	if (ctx_word(ctx, protocol) != type && tunnel_look_anew(ctx))
		return WEIR_R_internal;
	return 0;
}

/* Carries the ECN field of the outer packet, `outer`, over to the one that was inside (RFC 6040, 4.2). Returns 0 or a reason. */
static __always_inline int tunnel_ecn(ctx_t *ctx, __u32 outer)
{
	__u32 type = ctx_word(ctx, protocol), inner, now, old, word;
	__u8 head[12];
	__be16 first;

	if (!(outer & 1))
		return 0;
	if (type == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(ctx, 14, head, 12))
			return WEIR_R_ip4_truncated;
		inner = head[1] & ECN_CE;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(ctx, 14, head, 2))
			return WEIR_R_ip6_truncated;
		inner = head[1] >> 4 & ECN_CE;
	} else {
		return 0;
	}
	if (!inner)
		return outer == ECN_CE ? WEIR_R_tunnel_ecn : 0;
	/* ECT(1) or CE outside, over ECT(0) inside, or CE over ECT(1). */
	now = inner | outer;
	if (inner == 2 && outer == 1)
		now = 1;
	if (now == inner)
		return 0;
	old = head[0] << 8 | head[1];
	if (type == bpf_htons(ETH_P_IPV6)) {
		first = bpf_htons((old & ~0x30) | now << 4);
		return bpf_skb_store_bytes(ctx, 14, &first, 2, BPF_F_RECOMPUTE_CSUM) ? WEIR_R_internal : 0;
	}
	word = (old & ~3) | now;
	first = bpf_htons(word);
	if (bpf_skb_store_bytes(ctx, 14, &first, 2, BPF_F_RECOMPUTE_CSUM))
		return WEIR_R_internal;
	first = bpf_htons(csum_update(bpf_ntohs(*(__be16 *)(head + 10)), old, word));
	return bpf_skb_store_bytes(ctx, 24, &first, 2, BPF_F_RECOMPUTE_CSUM) ? WEIR_R_internal : 0;
}

#endif
