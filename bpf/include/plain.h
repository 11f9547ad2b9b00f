/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The commonest packets, read where they lie: no header window is copied, no
 * loop runs. They are untagged, whole, IPv4 without options or IPv6 without
 * extension headers, with UDP, or with TCP that has no options or just
 * timestamps as all stacks lay them out (RFC 7323, appendix A).
 *
 * What is filled in is what parse() would fill in. Any doubt, and every mistake of a packet, is left to parse(): plain() has
 * changed nothing then. Who needs the header window of a plain packet after all calls need_window().
 */
#ifndef WEIR_PLAIN_H
#define WEIR_PLAIN_H

/* Options and payloads need the window, or what only parse() fills in. */
#define may_be_plain()	(!(weir_features & (WEIR_F_SLOTS | WEIR_F_TCPOPT | WEIR_F_OPTION_OPS | WEIR_F_PAYLOAD_OPS | WEIR_F_EXPECT)))

#define PLAIN_IP4	14	/* offsets of headers in such a frame */
#define PLAIN_IP4_L4	34
#define PLAIN_IP6_L4	54
#define PLAIN_TIMESTAMP	0x0101080a	/* NOP, NOP, and kind and length of a timestamp */

/* Zeroes the words of the key between those of the addresses and the options. */
static __always_inline void clear_words(struct scratch *s, const __u32 first, const __u32 end)
{
	__u32 i;

#pragma unroll
	for (i = first; i < end; i++)
		s->key[i] = 0;
}

/*
 * The L4 header at l4, which is `off` into the frame; `len` bytes from there to the end of the IP packet. Fills in what lies there and returns 1,
 * or 0: leave it to parse().
 */
static __always_inline int plain_l4(struct scratch *s, __u8 *l4, __u8 *end, __u32 off, __u32 proto, __u32 len)
{
	__u64 *to = s->key + WEIR_K_L4 / 8;
	__u32 own;

	if (proto == IPPROTO_TCP) {
		if (l4 + 20 > end || len < 20)
			return 0;
		/* What begins or ends a connection has its checksum verified, and its options read. */
		if (weir_features & WEIR_F_STATE && l4[13] & (TCP_FLAG_FIN | TCP_FLAG_SYN | TCP_FLAG_RST))
			return 0;
		own = (l4[12] >> 4) * 4;
		if (own != 20) {
			if (own != 32 || len < 32 || l4 + 24 > end)
				return 0;
			if (*(__u32 *)(l4 + 20) != bpf_htonl(PLAIN_TIMESTAMP))
				return 0;
		}
		s->key[0] = WEIR_V_TCP | WEIR_V_PORTS;
		s->l4_csum = off + 16;
		s->opts = off + 20;
		s->opts_len = own - 20;
		to[1] = *(__u64 *)(l4 + 8);
		to[2] = *(__u32 *)(l4 + 16);
	} else if (proto == IPPROTO_UDP) {
		if (l4 + 8 > end || len < 8)
			return 0;
		own = bpf_ntohs(*(__be16 *)(l4 + 4));
		if (own < 8 || own > len)
			return 0;
		len = own;
		own = 8;
		s->key[0] = WEIR_V_UDP | WEIR_V_PORTS;
		s->l4_csum = off + 6;
		to[1] = 0;
		to[2] = 0;
	} else {
		return 0;
	}
	to[0] = *(__u64 *)l4;
	s->base[WEIR_B_L4] = off;
	s->l4_proto = proto;
	s->ip_payload = off;
	s->l4_payload = off + own;
	s->l4_payload_end = off + len;
	s->hdr_end = off + own;
	return 1;
}

/* Fills scratch from the frame and returns 1 if it is a plain one. */
static __always_inline int plain(struct walk *w)
{
	struct scratch *s = w->s;
	__u8 *data = packet_word(w->ctx, data), *end = packet_word(w->ctx, data_end), *ip = data + PLAIN_IP4;
	__u32 avail = s->frame_len - PLAIN_IP4, total;
	__u64 sum;

	if (ctx_beside(w->ctx) || data + PLAIN_IP4_L4 > end)
		return 0;
	if (*(__be16 *)(data + 12) == bpf_htons(ETH_P_IP)) {
		if (ip[0] != 0x45 || !ip[8] || *(__be16 *)(ip + 6) & bpf_htons(0x3fff))
			return 0;
		total = bpf_ntohs(*(__be16 *)(ip + 2));
		if (total < 20 || total > avail)
			return 0;
		sum = (__u64)*(__u32 *)ip + *(__u32 *)(ip + 4) + *(__u32 *)(ip + 8) + *(__u32 *)(ip + 12) + *(__u32 *)(ip + 16);
		if (csum_fold(sum) != 0xffff)
			return 0;
		if (!plain_l4(s, data + PLAIN_IP4_L4, end, PLAIN_IP4_L4, ip[9], total - 20))
			return 0;
		s->key[0] |= WEIR_V_IP4;
		s->key[WEIR_K_IP4 / 8] = *(__u64 *)ip;
		s->key[WEIR_K_IP4 / 8 + 1] = *(__u64 *)(ip + 8);
		s->key[WEIR_K_IP4 / 8 + 2] = *(__u32 *)(ip + 16);
		clear_words(s, WEIR_K_IP6 / 8, WEIR_K_L4 / 8);
	} else if (*(__be16 *)(data + 12) == bpf_htons(ETH_P_IPV6)) {
		if (data + PLAIN_IP6_L4 > end || ip[0] >> 4 != 6 || !ip[7])
			return 0;
		total = bpf_ntohs(*(__be16 *)(ip + 4)) + 40;
		if (total > avail)
			return 0;
		if (!plain_l4(s, data + PLAIN_IP6_L4, end, PLAIN_IP6_L4, ip[6], total - 40))
			return 0;
		s->key[0] |= WEIR_V_IP6;
		clear_words(s, WEIR_K_IP4 / 8, WEIR_K_IP6 / 8);
		s->key[WEIR_K_IP6 / 8] = *(__u64 *)ip;
		s->key[WEIR_K_IP6 / 8 + 1] = *(__u64 *)(ip + 8);
		s->key[WEIR_K_IP6 / 8 + 2] = *(__u64 *)(ip + 16);
		s->key[WEIR_K_IP6 / 8 + 3] = *(__u64 *)(ip + 24);
		s->key[WEIR_K_IP6 / 8 + 4] = *(__u64 *)(ip + 32);
	} else {
		return 0;
	}
	*(__be16 *)((__u8 *)s->key + WEIR_K_ETHER) = *(__be16 *)(data + 12);
	s->key[WEIR_K_VLAN / 8] = 0;
	clear_words(s, WEIR_K_FRAG6 / 8, WEIR_K_SLOT / 8);
	s->base[WEIR_B_IP4] = PLAIN_IP4;
	s->base[WEIR_B_IP6] = PLAIN_IP4;
	s->ip_end = PLAIN_IP4 + total;
	if (weir_features & (WEIR_F_MAC | WEIR_F_SETS)) {
		*(__u64 *)s->hdr = *(__u64 *)data;
		*(__u32 *)(s->hdr + 8) = *(__u32 *)(data + 8);
	}
	if (total < avail)
		note(w, WEIR_R_trailer);
	if (s->key[0] & WEIR_V_UDP && !(s->key[WEIR_K_L4 / 8] >> 48))
		note(w, WEIR_R_udp_zero_checksum);
	return 1;
}

#endif
