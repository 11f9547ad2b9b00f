/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Questions for a link-layer address and their answers: ARP (RFC 826) and
 * neighbour discovery (RFC 4861), and those of who looks for a duplicate of his
 * address (RFC 5227, 4862). The answer is made of the question in place.
 */
#ifndef WEIR_NETARP_H
#define WEIR_NETARP_H

#define ARP_BYTES		28
#define ND_BYTES		32	/* ICMPv6 header, target and one option with a link-layer address */
#define ICMP6_SOLICIT		135
#define ICMP6_ADVERT		136
#define ND_ANSWER_FLAGS		0x60	/* solicited, override */
#define ND_PROBE_FLAGS		0x20	/* override */
#define ND_OPTION_NONCE		14	/* RFC 7527 */

/* Who is asked for, as in keys of exact matches. */
struct net_question {
	__u64 high, low;
	__u32 nd;		/* a neighbour solicitation, else ARP */
	__u32 probe;		/* who asks has no address yet: he looks for a duplicate */
	__u32 grow;		/* the answer is longer than the question */
};

/* Whether the frame asks for a neighbour of its sender's. Frames whose EtherType is `type`, without a tag in the data. */
static __always_inline int net_asked(ctx_t *ctx, __u32 type, struct net_question *q)
{
	__u8 *data, *end, *p;
	__u32 len;

	if (type != bpf_htons(ETH_P_ARP) && type != bpf_htons(ETH_P_IPV6))
		return 0;
	net_pull(ctx, type == bpf_htons(ETH_P_ARP) ? 14 + ARP_BYTES : 14 + 40 + 8);
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	p = data + 14;
	if (type == bpf_htons(ETH_P_ARP)) {
		if (p + ARP_BYTES > end)
			return 0;
		/* Ethernet, IPv4, 6, 4, request. */
		if (*(__u32 *)p != bpf_htonl(0x00010800) || *(__u32 *)(p + 4) != bpf_htonl(0x06040001))
			return 0;
		q->probe = !*(__u32 *)(p + 14);
		q->high = 0;
		q->low = NET_MAPPED(*(__u32 *)(p + 24));
		q->nd = 0;
		return 1;
	}
	if (p + 48 > end || p[6] != 58 || p[40] != ICMP6_SOLICIT)
		return 0;
	q->probe = !(*(__u64 *)(p + 8) | *(__u64 *)(p + 16));
	len = bpf_ntohs(*(__be16 *)(p + 4));
	/* Duplicates are looked for without an option, or with a nonce. */
	q->grow = q->probe && len == ND_BYTES - 8;
	if (len != ND_BYTES && !q->grow)
		return 0;
	net_pull(ctx, 14 + 40 + ND_BYTES);
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	p = data + 14;
	/* Hop limit 255: it came over no router. An option other than the sender's address, or none, is the station's own affair. */
	if (p + 40 + ND_BYTES - 8 > end || p[7] != 255 || p[40] != ICMP6_SOLICIT || p[41])
		return 0;
	if (!q->grow && (p + 40 + ND_BYTES > end || p[65] != 1 || p[64] != (q->probe ? ND_OPTION_NONCE : 1)))
		return 0;
	q->high = *(__u64 *)(p + 48);
	q->low = *(__u64 *)(p + 56);
	q->nd = 1;
	return 1;
}

static __always_inline void net_write_mac(__u8 *at, __u64 mac)
{
	at[0] = mac >> 40;
	at[1] = mac >> 32;
	at[2] = mac >> 24;
	at[3] = mac >> 16;
	at[4] = mac >> 8;
	at[5] = mac;
}

/* Gives the frame a length; its first bytes are readable then. Returns 0 if it has it. */
static __always_inline long net_resize(ctx_t *ctx, const __u32 len)
{
	long failed = ctx_grow_tail(ctx, (int)len - (int)(ctx_len(ctx) - ctx_beside(ctx)));

	net_pull(ctx, len);
	return failed;
}

/* Turns the question into the answer that `mac` (a number) has the address. Returns 0 if it cannot be. */
static __always_inline int net_answer(ctx_t *ctx, struct net_question *q, __u64 mac)
{
	__u8 *data, *end, *p;
	__u64 sum = 0;
	__u32 i, word;

	if (q->grow && net_resize(ctx, 14 + 40 + ND_BYTES))
		return 0;
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	p = data + 14;
	if (!q->nd) {
		if (p + ARP_BYTES > end)
			return 0;
		__builtin_memcpy(data, data + 6, 6);
		net_write_mac(data + 6, mac);
		p[7] = 2;
		__builtin_memcpy(p + 18, p + 8, 6);
		net_write_mac(p + 8, mac);
		word = *(__u32 *)(p + 24);
		*(__u32 *)(p + 24) = *(__u32 *)(p + 14);
		*(__u32 *)(p + 14) = word;
		return 1;
	}
	if (p + 40 + ND_BYTES > end)
		return 0;
	if (q->probe) {
		/* To all, as RFC 4861, 7.2.4 has it; it leaves by the interface that it came by. */
		*(__be16 *)(p + 4) = bpf_htons(ND_BYTES);
		net_write_mac(data, 0x333300000001ULL);
		*(__be32 *)(p + 24) = bpf_htonl(0xff020000);
		*(__u32 *)(p + 28) = 0;
		*(__u32 *)(p + 32) = 0;
		*(__be32 *)(p + 36) = bpf_htonl(1);
	} else {
		__builtin_memcpy(data, data + 6, 6);
		__builtin_memcpy(p + 24, p + 8, 16);
	}
	net_write_mac(data + 6, mac);
	*(__u64 *)(p + 8) = q->high;
	*(__u64 *)(p + 16) = q->low;
	p[40] = ICMP6_ADVERT;
	*(__u16 *)(p + 42) = 0;
	*(__u32 *)(p + 44) = bpf_htonl((__u32)(q->probe ? ND_PROBE_FLAGS : ND_ANSWER_FLAGS) << 24);
	p[64] = 2;
	p[65] = 1;
	net_write_mac(p + 66, mac);
#pragma unroll
	for (i = 8; i < 40 + ND_BYTES; i += 4)
		sum += *(__u32 *)(p + i);
	sum += bpf_htons(ND_BYTES);
	sum += bpf_htons(58);
	*(__u16 *)(p + 42) = ~csum_fold(sum);
	return 1;
}

#endif
