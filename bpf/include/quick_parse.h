/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The few header fields that a filter judges by, read where they lie in the
 * packet: no window is copied. Only what a rule asks for is read: without ports and flags
 * the L4 header is not looked at, and a short one is nobody's affair.
 *
 * docs/filter.md says which packets are malformed; they leave here with their reason.
 */
#ifndef WEIR_QUICK_PARSE_H
#define WEIR_QUICK_PARSE_H

#define QUICK_OK	-1	/* nothing to drop for */
#define QUICK_OTHER	-2	/* neither IPv4 nor IPv6 */

#define ETH_P_IP	0x0800
#define ETH_P_8021Q	0x8100
#define ETH_P_IPV6	0x86dd
#define ETH_P_8021AD	0x88a8
#define ETH_P_QINQ1	0x9100

#define IPPROTO_TCP	6
#define IPPROTO_UDP	17
#define IPPROTO_DCCP	33
#define IPPROTO_FRAGMENT	44
#define IPPROTO_ESP	50
#define IPPROTO_AH	51
#define IPPROTO_SCTP	132
#define IPPROTO_UDPLITE	136

/* Protocol numbers of IPv6 extension headers that are walked, below 64 and from 128 on. */
#define EH_LOW		(1ULL << 0 | 1ULL << 43 | 1ULL << 44 | 1ULL << 51 | 1ULL << 60)
#define EH_HIGH		(1ULL << (135 - 128) | 1ULL << (139 - 128) | 1ULL << (140 - 128))

#define TCP_FIN		1
#define TCP_SYN		2
#define TCP_RST		4
#define TCP_ACK		16

struct head {
	__u32 len;		/* of the frame */
	__u32 family;		/* 4 or 6 */
	__u32 kind;		/* protocol and WEIR_KIND_* */
	__u32 l3, l4;		/* offsets in the frame; l4 0: not looked at */
	__u32 frag;		/* IPv6: offset of the fragment header, with WEIR_FIND_FRAGMENTS */
	__u32 ip_end;
	__u32 ports;		/* source << 16 | destination */
	__u32 has_ports;
	__u32 tcp_flags;
	__u32 zero;		/* see blur() */
	__u64 src_high, src_low;	/* host order; IPv4: low only */
	__u64 dst_high, dst_low;
};

/* Hides a value's history from the compiler, so that the bound that follows reaches the verifier. */
#ifndef opaque
#define opaque(x) asm volatile("" : "+r"(x))
#endif

static __always_inline __u32 be16_at(__u8 *p)
{
	return bpf_ntohs(*(__be16 *)p);
}

static __always_inline __u32 be32_at(__u8 *p)
{
	return bpf_ntohl(*(__be32 *)p);
}

/* Addresses of IPv6 lie at multiples of 4 only, which is as good as any on the hosts weir knows. */
static __always_inline __u64 be64_at(__u8 *p)
{
	return bpf_be64_to_cpu(*(__be64 *)p);
}

static __always_inline int is_tag(__u32 type)
{
	return type == ETH_P_8021Q || type == ETH_P_8021AD || type == ETH_P_QINQ1;
}

/* Bytes that the program cannot see: behind the end of the packet, or of the frame's first buffer. */
static __always_inline int short_by(struct head *h, __u32 need, int truncated)
{
	return h->len < need ? truncated : WEIR_R_head_split;
}

/* Ports and flags at offset l4. */
static __always_inline int quick_l4(struct head *h, __u8 *data, __u8 *end, __u32 proto)
{
	__u32 off = h->l4, need;
	__u8 *p;

	switch (proto) {
	case IPPROTO_TCP:
		need = 20;
		if (off + need > h->ip_end)
			return WEIR_R_tcp_truncated;
		break;
	case IPPROTO_UDP:
		need = 8;
		if (off + need > h->ip_end)
			return WEIR_R_udp_truncated;
		break;
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
	case IPPROTO_UDPLITE:
		need = 4;
		if (off + need > h->ip_end)
			return QUICK_OK;
		break;
	default:
		return QUICK_OK;
	}
	opaque(off);
	off &= 511;
	p = data + off;
	if (p + 4 > end)
		return WEIR_R_head_split;
	h->ports = be32_at(p);
	h->has_ports = 1;
	if (proto == IPPROTO_TCP) {
		if (p + 20 > end)
			return WEIR_R_head_split;
		h->tcp_flags = p[13];
		if ((h->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
			h->kind |= WEIR_KIND_SYN;
	}
	return QUICK_OK;
}

static __always_inline int quick_ip4(struct head *h, __u8 *data, __u8 *end)
{
	__u8 *ip = data + h->l3;
	__u32 ihl, total, frag;

	if (ip + 20 > end)
		return short_by(h, h->l3 + 20, WEIR_R_ip4_truncated);
	if (ip[0] >> 4 != 4)
		return WEIR_R_ip4_bad_version;
	ihl = (ip[0] & 15) * 4;
	if (ihl < 20 || h->l3 + ihl > h->len)
		return WEIR_R_ip4_bad_ihl;
	total = be16_at(ip + 2);
	if (total < ihl)
		return WEIR_R_ip4_bad_len;
	if (h->l3 + total > h->len)
		return WEIR_R_ip4_len_over;
	h->family = 4;
	h->kind = ip[9];
	h->src_low = be32_at(ip + 12);
	h->dst_low = be32_at(ip + 16);
	h->ip_end = h->l3 + total;
	frag = be16_at(ip + 6) & 0x3fff;
	if (frag)
		h->kind |= WEIR_KIND_FRAGMENT;
	if (!has(WEIR_FF_L4) || frag & 0x1fff)
		return QUICK_OK;
	h->l4 = h->l3 + ihl;
	return quick_l4(h, data, end, h->kind & 255);
}

static __always_inline int is_extension(__u32 proto)
{
	__u64 known = proto < 64 ? EH_LOW : proto >= 128 ? EH_HIGH : 0;

	return known >> (proto & 63) & 1 && proto < 192;
}

/* What quick_extensions() found: offset and protocol of what follows, and these. */
#define EH_OFFSET	0x3ff
#define EH_AT		10	/* shift of six bits: the fragment header is so many times four bytes behind the first header */
#define EH_PROTO	16	/* shift of the protocol */
#define EH_FRAGMENT	(1U << 24)
#define EH_LATER	(1U << 25)	/* a fragment that is not the first */
#define EH_REASON	(1U << 31)	/* malformed: a reason instead of an offset */

/*
 * Walks the extension headers from off on; the first one is of type proto. Global, so that the verifier walks it by itself and
 * knows nothing of what it found: else it would walk the rest of the program once for each number and mixture of headers.
 */
__noinline __u32 quick_extensions(ctx_t *ctx, __u32 off, __u32 proto, __u32 ip_end)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *p;
	__u32 start = off, found = 0, len, i;

	for (i = 0; i <= WEIR_EH_MAX; i++) {
		if (!is_extension(proto))
			break;
		if (i == WEIR_EH_MAX)
			return EH_REASON | WEIR_R_ip6_eh_deep;
		if (off + 8 > ip_end)
			return EH_REASON | WEIR_R_ip6_eh_truncated;
		opaque(off);
		off &= 511;
		p = data + off;
		if (p + 8 > end)
			return EH_REASON | WEIR_R_head_split;
		len = 8;
		if (proto == IPPROTO_AH)
			len = (p[1] + 2) * 4;
		else if (proto != IPPROTO_FRAGMENT)
			len = (p[1] + 1) * 8;
		if (off + len > ip_end)
			return EH_REASON | WEIR_R_ip6_eh_truncated;
		if (off + len - start > WEIR_EH_BYTES)
			return EH_REASON | WEIR_R_ip6_eh_long;
		if (proto == IPPROTO_FRAGMENT) {
			len = be16_at(p + 2);
			/* Atomic fragments (RFC 6946) are whole packets. */
			found = len & 0xfff9 ? EH_FRAGMENT : 0;
			if (len & 0xfff8)
				found |= EH_LATER;
#ifdef WEIR_FIND_FRAGMENTS
			found |= ((off - start) >> 2 & 63) << EH_AT;
#endif
			len = 8;
		}
		proto = p[0];
		off += len;
		if (found & EH_LATER)
			break;
	}
	return found | proto << EH_PROTO | (off & EH_OFFSET);
}

static __always_inline int quick_ip6(ctx_t *ctx, struct head *h, __u8 *data, __u8 *end)
{
	__u8 *ip = data + h->l3;
	__u32 proto, off, found = 0;

	if (ip + 40 > end)
		return short_by(h, h->l3 + 40, WEIR_R_ip6_truncated);
	if (ip[0] >> 4 != 6)
		return WEIR_R_ip6_bad_version;
	h->ip_end = h->l3 + 40 + be16_at(ip + 4);
	if (h->ip_end > h->len)
		return WEIR_R_ip6_len_over;
	h->family = 6;
	h->src_high = be64_at(ip + 8);
	h->src_low = be64_at(ip + 16);
	h->dst_high = be64_at(ip + 24);
	h->dst_low = be64_at(ip + 32);
	proto = ip[6];
	off = h->l3 + 40;
	if (has(WEIR_FF_PROTOCOL) && is_extension(proto)) {
		found = quick_extensions(ctx, off, proto, h->ip_end);
		if (found & EH_REASON)
			return found & (WEIR_REASONS - 1);
		proto = found >> EH_PROTO & 255;
		h->frag = off + (found >> EH_AT & 63) * 4;
		off = found & EH_OFFSET;
	}
	h->kind = WEIR_KIND_IP6 | proto;
	if (found & EH_FRAGMENT)
		h->kind |= WEIR_KIND_FRAGMENT;
	if (!has(WEIR_FF_L4) || found & EH_LATER)
		return QUICK_OK;
	h->l4 = off;
	return quick_l4(h, data, end, proto);
}

/*
 * 0, which the verifier does not know: two reads of one byte differ by any number. What it is added to is the same to the verifier on
 * every way that leads here, so that it walks the rest of the program once, and not once for each way.
 */
static __always_inline __u32 blur(__u8 *data)
{
	__u32 once, again;

	asm("%0 = *(u8 *)(%2 + 0)\n%1 = *(u8 *)(%2 + 0)" : "=&r"(once), "=r"(again) : "r"(data));
	return once - again;
}

/* Fills `h`, which is zero but for len. Returns QUICK_OK, QUICK_OTHER or a reason. */
static __always_inline int quick_parse(ctx_t *ctx, struct head *h)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end);
	__u32 type, off = WEIR_FRAME_MIN, i;

	if (data + WEIR_FRAME_MIN > end)
		return short_by(h, WEIR_FRAME_MIN, WEIR_R_frame_short);
#ifndef WEIR_FILTER_LEAN
	h->zero = blur(data);
#endif
	type = be16_at(data + 12);
#ifdef WEIR_FILTER_LEAN
	/* Untagged frames first, with all offsets constant; where more than this follows it would double what the verifier walks. */
	h->l3 = WEIR_FRAME_MIN;
	if (type == ETH_P_IP)
		return quick_ip4(h, data, end);
	if (type == ETH_P_IPV6)
		return quick_ip6(ctx, h, data, end);
#endif
#pragma unroll
	for (i = 0; i < WEIR_VLAN_MAX; i++) {
		if (!is_tag(type))
			break;
		if (data + off + 4 > end)
			return short_by(h, off + 4, WEIR_R_vlan_truncated);
		type = be16_at(data + off + 2);
		off += 4;
	}
	if (is_tag(type))
		return WEIR_R_vlan_deep;
	if (off > WEIR_FRAME_MIN) {
		off += blur(data);
		opaque(off);
		off &= 31;
	}
	h->l3 = off;
	if (type == ETH_P_IP)
		return quick_ip4(h, data, end);
	if (type == ETH_P_IPV6)
		return quick_ip6(ctx, h, data, end);
	return QUICK_OTHER;
}

#endif
