/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Puts the headers of a tunnel in front of an IP packet: IPv4 or IPv6, then nothing or UDP (GUE, version 1 without a header of its own, version
 * 0 with four bytes). Tags in front of the packet stay there.
 *
 * The outer header, on purpose: DF set and identification 0 (an atomic datagram, RFC 6864), 64 hops, DSCP and ECN of the packet inside
 * (RFC 6040, normal mode), as its source an address of a configured prefix that follows from the flow, so that receivers spread flows over their queues
 * though all of them come from one balancer. UDP has no checksum: the packet inside has its own (RFC 6935, RFC 6936 over IPv6).
 */
#ifndef WEIR_ENCAP_H
#define WEIR_ENCAP_H

#define IPPROTO_IPIP	4
#define IPPROTO_IPV6	41
#define TUNNEL_HOPS	64
#define TUNNEL_DF	0x4000
#define TUNNEL_TAGS	18	/* bytes of four tags and the EtherType */

const volatile __u32 weir_lb_source4 = 0;	/* host order; host bits are 0 */
const volatile __u32 weir_lb_hosts4 = 0;	/* the host bits */
const volatile __u64 weir_lb_source6[2] = {};	/* high, low */
const volatile __u32 weir_lb_hosts6 = 0;	/* of the low end */

struct tunnel {
	__u32 l3;		/* where the packet begins */
	__u32 inner;		/* bytes of the packet */
	__u32 inner6;
	__u32 outer6;
	__u32 mode;		/* WEIR_LB_IPIP, GUE, GUE0 */
	__u32 port;		/* GUE: destination port */
	__u32 hash;		/* of the flow */
	__u32 mtu;		/* of the way, 0: not known */
	__u32 more;		/* out: bytes of the headers */
};

static __always_inline void put16(__u8 *at, __u32 value)
{
	*(__be16 *)at = bpf_htons(value);
}

static __always_inline void put32(__u8 *at, __u32 value)
{
	*(__be32 *)at = bpf_htonl(value);
}

static __always_inline void put64(__u8 *at, __u64 value)
{
	put32(at, value >> 32);
	put32(at + 4, value);
}

static __always_inline void encap_ip4(__u8 *ip, struct tunnel *t, __u32 tos, __u32 proto, __u32 total, __u8 *address)
{
	__u32 src = weir_lb_source4 | (t->hash & weir_lb_hosts4), dst = be32_at(address), sum;

	sum = (0x4500 | tos) + total + TUNNEL_DF + (TUNNEL_HOPS << 8 | proto) + csum_halves(src) + csum_halves(dst);
	put16(ip, 0x4500 | tos);
	put16(ip + 2, total);
	put32(ip + 4, TUNNEL_DF);
	put16(ip + 8, TUNNEL_HOPS << 8 | proto);
	put16(ip + 10, ~csum_fold(sum));
	put32(ip + 12, src);
	put32(ip + 16, dst);
}

static __always_inline void encap_ip6(__u8 *ip, struct tunnel *t, __u32 tos, __u32 proto, __u32 payload, __u8 *address)
{
	put32(ip, 6U << 28 | tos << 20 | (t->hash & 0xfffff));
	put16(ip + 4, payload);
	put16(ip + 6, proto << 8 | TUNNEL_HOPS);
	put64(ip + 8, weir_lb_source6[0]);
	put64(ip + 16, weir_lb_source6[1] | (t->hash & weir_lb_hosts6));
	*(__u32 *)(ip + 24) = *(__u32 *)address;
	*(__u32 *)(ip + 28) = *(__u32 *)(address + 4);
	*(__u32 *)(ip + 32) = *(__u32 *)(address + 8);
	*(__u32 *)(ip + 36) = *(__u32 *)(address + 12);
}

/* The UDP header and, in version 0, the four bytes behind it. */
static __always_inline void encap_gue(__u8 *udp, struct tunnel *t, __u32 length)
{
	put16(udp, 0xc000 | (t->hash & 0x3fff));
	put16(udp + 2, t->port);
	put16(udp + 4, length);
	put16(udp + 6, 0);
	if (t->mode == WEIR_LB_GUE0)
		put32(udp + 8, (t->inner6 ? IPPROTO_IPV6 : IPPROTO_IPIP) << 16);
}

/*
 * The headers, in front of the packet at t->l3, towards `address` (network order). MAC addresses are left to the caller. Returns QUICK_OK or a
 * reason, and then the packet is as it was.
 */
static __always_inline int encap(ctx_t *ctx, struct tunnel *t, __u8 *address)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip;
	__u32 l3 = t->l3, extra = 0, more, tos, proto, type, tagged = l3 - 12;
	__u64 tags[3];

	if (t->mode == WEIR_LB_GUE)
		extra = 8;
	if (t->mode == WEIR_LB_GUE0)
		extra = 12;
	more = (t->outer6 ? 40 : 20) + extra;
	t->more = more;
	if (t->inner + more > 65535 || (t->mtu && t->inner + more > t->mtu))
		return WEIR_R_path_mtu;
	opaque(l3);
	l3 &= 31;
	ip = data + l3;
	if (ip + 20 > end)
		return WEIR_R_head_split;
	tos = t->inner6 ? be16_at(ip) >> 4 & 0xff : ip[1];
	if (l3 != WEIR_FRAME_MIN) {
		opaque(tagged);
		if (tagged > TUNNEL_TAGS || ctx_load(ctx, 12, tags, tagged))
			return WEIR_R_internal;
	}
	if (ctx_grow_head(ctx, more))
		return WEIR_R_head_room;
	if (l3 != WEIR_FRAME_MIN && ctx_store(ctx, 12, tags, tagged))
		return WEIR_R_internal;
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	ip = data + l3;
	if (ip + 52 > end)
		return WEIR_R_head_split;
	proto = extra ? IPPROTO_UDP : t->inner6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	type = l3 - 2;
	opaque(type);
	type &= 31;
	if (data + type + 2 > end)
		return WEIR_R_head_split;
	put16(data + type, t->outer6 ? ETH_P_IPV6 : ETH_P_IP);
	if (t->outer6) {
		encap_ip6(ip, t, tos, proto, t->inner + extra, address);
		if (extra)
			encap_gue(ip + 40, t, t->inner + extra);
	} else {
		encap_ip4(ip, t, tos, proto, t->inner + more, address);
		if (extra)
			encap_gue(ip + 20, t, t->inner + extra);
	}
	return QUICK_OK;
}

#endif
