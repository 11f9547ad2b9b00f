/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frame -> flat key and offsets, once a packet. Follows docs/semantics.md
 * section 1 check by check. Reads the header window in scratch, never the packet,
 * so that no offset needs a packet bound; every offset is checked against the frame first.
 */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#define PARSED		-1	/* parse() found nothing to drop for */

#define ETH_P_IP	0x0800
#define ETH_P_8021Q	0x8100
#define ETH_P_IPV6	0x86dd
#define ETH_P_8021AD	0x88a8
#define ETH_P_QINQ1	0x9100

#define IPPROTO_HOPOPTS		0
#define IPPROTO_ICMP		1
#define IPPROTO_TCP		6
#define IPPROTO_UDP		17
#define IPPROTO_DCCP		33
#define IPPROTO_ROUTING		43
#define IPPROTO_FRAGMENT	44
#define IPPROTO_ESP		50
#define IPPROTO_AH		51
#define IPPROTO_ICMPV6		58
#define IPPROTO_DSTOPTS		60
#define IPPROTO_MH		135
#define IPPROTO_UDPLITE		136
#define IPPROTO_HIP		139
#define IPPROTO_SHIM6		140
#define IPPROTO_SCTP		132

#define TCP_FLAG_FIN	0x01
#define TCP_FLAG_SYN	0x02
#define TCP_FLAG_RST	0x04
#define TCP_FLAG_ACK	0x10
#define TCP_FLAG_URG	0x20

/* What callbacks of bpf_loop get: pointers only, numbers live in scratch. */
struct walk {
	ctx_t *ctx;
	struct scratch *s;
	struct weir_stats *stats;
};

/* Counts a reason, once for every packet on the wire. */
static __always_inline void note(struct walk *w, __u32 reason)
{
	w->stats->reason[reason & (WEIR_REASONS - 1)] += w->s->packets;
}

static __always_inline void key_set_be16(struct scratch *s, __u32 at, __u16 value)
{
	*(__be16 *)((__u8 *)s->key + at) = bpf_htons(value);
}

static __always_inline void bit_set(struct scratch *s, __u32 map_at, __u32 bit)
{
	__u8 *map = (__u8 *)s->key + map_at;

	bit &= 255;
	map[bit >> 3] |= 1 << (bit & 7);
}

/*
 * Steps over what is no option at walk. Returns the length of the option there (2 and more, inside the list), 1 after
 * a NOP, 0 at the end of the list: walk is walk_end then, or beyond it if the list is malformed.
 */
static __always_inline __u32 option_length(struct scratch *s, __u32 *kind)
{
	__u32 len;

	if (s->walk >= s->walk_end)
		return 0;
	*kind = hdr_u8(s, s->walk);
	if (*kind == 0) {
		s->walk = s->walk_end;
		return 0;
	}
	if (*kind == 1) {
		s->walk++;
		return 1;
	}
	if (s->walk + 1 >= s->walk_end)
		goto bad;
	len = hdr_u8(s, s->walk + 1);
	if (len < 2 || s->walk + len > s->walk_end)
		goto bad;
	return len;
bad:
	s->walk = s->walk_end + 1;
	return 0;
}

/* One option of an IPv4 header. */
static long ip4_option(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 kind = 0, len = option_length(s, &kind);

	if (len < 2)
		return !len;
	bit_set(s, WEIR_K_IP4OPT, kind);
	s->key[0] |= WEIR_V_IP4OPT;
	s->walk += len;
	return 0;
}

/* One option of a TCP header. With load-time slots also its value. */
static long tcp_option(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 kind = 0, slot, len = option_length(s, &kind);
	__u64 *out, number;

	if (len < 2)
		return !len;
	if (weir_features & WEIR_F_STATE && kind == 3 && len == 3) {
		__u32 scale = hdr_u8(s, s->walk + 2);

		s->scale = (scale > 14 ? 14 : scale) + 1;
	}
	if (weir_features & WEIR_F_TCPOPT) {
		bit_set(s, WEIR_K_TCPOPT, kind);
		s->key[0] |= WEIR_V_TCPOPT;
	}
	if (weir_features & WEIR_F_SLOTS) {
		slot = weir_slot_of[kind & 255];
		if (slot < WEIR_SLOTS) {
			opaque(slot);
			slot &= WEIR_SLOTS - 1;
			s->key[0] |= 1ULL << (WEIR_V_SLOT + slot);
			s->slot_at[slot] = s->walk + 2 - s->opts;
			number = bpf_be64_to_cpu(*(__u64 *)hdr_at(s, s->walk + 2));
			if (len == 2)
				number = 0;
			else if (len < 10)
				number >>= (10 - len) * 8;
			out = s->key + WEIR_K_SLOT / 8;
			out[slot * 2] = len - 2;
			out[slot * 2 + 1] = bpf_cpu_to_be64(number);
		}
	}
	s->walk += len;
	return 0;
}

/* Whether the number is that of an IPv6 extension header which another header follows. */
static __always_inline int is_extension(__u32 proto)
{
	switch (proto) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_AH:
	case IPPROTO_DSTOPTS:
	case IPPROTO_MH:
	case IPPROTO_HIP:
	case IPPROTO_SHIM6:
		return 1;
	}
	return 0;
}

/* One IPv6 extension header at walk, its protocol number in l4_proto. walk_n counts them; reason in op_kind. */
static long ip6_extension(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 proto = s->l4_proto, len = 8, off, bit;

	switch (proto) {
	case IPPROTO_HOPOPTS:
		bit = 0;
		break;
	case IPPROTO_ROUTING:
		bit = 1;
		break;
	case IPPROTO_FRAGMENT:
		bit = 2;
		break;
	case IPPROTO_ESP:
		bit = 3;
		break;
	case IPPROTO_AH:
		bit = 4;
		break;
	case IPPROTO_DSTOPTS:
		bit = 5;
		break;
	case IPPROTO_MH:
		bit = 6;
		break;
	case IPPROTO_HIP:
		bit = 7;
		break;
	case IPPROTO_SHIM6:
		bit = 8;
		break;
	default:
		return 1;
	}
	if (s->walk_n >= WEIR_EH_MAX) {
		s->op_kind = WEIR_R_ip6_eh_deep;
		return 1;
	}
	s->walk_n++;
	off = s->walk;
	if (off + 8 > s->ip_end) {
		s->op_kind = WEIR_R_ip6_eh_truncated;
		return 1;
	}
	/* The headers before this one are at most WEIR_EH_BYTES long, so it starts inside the window. */
	if (proto == IPPROTO_AH)
		len = (hdr_u8(s, off + 1) + 2) * 4;
	else if (proto != IPPROTO_FRAGMENT && proto != IPPROTO_ESP)
		len = (hdr_u8(s, off + 1) + 1) * 8;
	if (off + len > s->ip_end) {
		s->op_kind = WEIR_R_ip6_eh_truncated;
		return 1;
	}
	if (off + len - s->ip_payload > WEIR_EH_BYTES) {
		s->op_kind = WEIR_R_ip6_eh_long;
		return 1;
	}
	s->key[0] |= WEIR_V_EH | (WEIR_V_EH_HOPBYHOP << bit);
	if (proto == IPPROTO_ESP)
		return 1;
	s->l4_proto = hdr_u8(s, off);
	s->walk = off + len;
	if (proto == IPPROTO_FRAGMENT) {
		__u32 frag = hdr_be16(s, off + 2);

		/* The last fragment header decides what the packet is. */
		s->key[0] &= ~(WEIR_V_FRAG | WEIR_V_FRAG_FIRST | WEIR_V_FRAG_LATER);
		s->key[0] |= WEIR_V_FRAG6;
		s->key[WEIR_K_FRAG6 / 8] = *(__u64 *)hdr_at(s, off);
		s->frag_data = off + 8;
		if ((frag & 0xfff8) + (s->ip_end - s->walk) > 65535) {
			s->op_kind = WEIR_R_frag_past_end;
			return 1;
		}
		if (frag & 0xfff8) {
			s->key[0] |= WEIR_V_FRAG | WEIR_V_FRAG_LATER;
			return 1;
		}
		if (frag & 1)
			s->key[0] |= WEIR_V_FRAG | WEIR_V_FRAG_FIRST;
	}
	return 0;
}

static __always_inline int parse_ip4(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 l3 = s->base[WEIR_B_IP4], avail = s->frame_len - l3, ihl, total, frag, i;
	__u8 *ip = hdr_at(s, l3);
	__u64 sum = 0;

	if (avail < 20)
		return WEIR_R_ip4_truncated;
	if (ip[0] >> 4 != 4)
		return WEIR_R_ip4_bad_version;
	ihl = (ip[0] & 15) * 4;
	if (ihl < 20 || ihl > avail)
		return WEIR_R_ip4_bad_ihl;
	total = bpf_ntohs(*(__be16 *)(ip + 2));
	if (total < ihl)
		return WEIR_R_ip4_bad_len;
	if (total > avail)
		return WEIR_R_ip4_len_over;
	for (i = 0; i < 15; i++) {
		if (i * 4 >= ihl)
			break;
		sum += *(__u32 *)(ip + i * 4);
	}
	if (csum_fold(sum) != 0xffff)
		return WEIR_R_ip4_bad_checksum;
	if (!ip[8])
		return WEIR_R_ttl_zero;

	s->key[0] |= WEIR_V_IP4;
	*(__u64 *)((__u8 *)s->key + WEIR_K_IP4) = *(__u64 *)ip;
	*(__u64 *)((__u8 *)s->key + WEIR_K_IP4 + 8) = *(__u64 *)(ip + 8);
	*(__u32 *)((__u8 *)s->key + WEIR_K_IP4 + 16) = *(__u32 *)(ip + 16);
	s->l4_proto = ip[9];
	s->ip_payload = l3 + ihl;
	s->ip_end = l3 + total;
	s->hdr_end = l3 + ihl;
	frag = bpf_ntohs(*(__be16 *)(ip + 6)) & 0x3fff;

	if (ihl > 20) {
		s->walk = l3 + 20;
		s->walk_end = l3 + ihl;
		bpf_loop(40, ip4_option, w, 0);
		if (s->walk > s->walk_end)
			return WEIR_R_ip4_bad_option;
	}
	if (frag) {
		if ((frag & 0x1fff) * 8 + total - ihl > 65535)
			return WEIR_R_frag_past_end;
		if (frag & 0x1fff)
			s->key[0] |= WEIR_V_FRAG | WEIR_V_FRAG_LATER;
		else
			s->key[0] |= WEIR_V_FRAG | WEIR_V_FRAG_FIRST;
	}
	if (total < avail)
		note(w, WEIR_R_trailer);
	return PARSED;
}

static __always_inline int parse_ip6(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 l3 = s->base[WEIR_B_IP6], avail = s->frame_len - l3, len, next;
	__u8 *ip = hdr_at(s, l3);
	__u64 *to = s->key + WEIR_K_IP6 / 8;

	if (avail < 40)
		return WEIR_R_ip6_truncated;
	if (ip[0] >> 4 != 6)
		return WEIR_R_ip6_bad_version;
	if (!ip[7])
		return WEIR_R_ttl_zero;
	len = bpf_ntohs(*(__be16 *)(ip + 4));
	next = ip[6];
	if (!len && next == IPPROTO_HOPOPTS)
		return WEIR_R_ip6_jumbo;
	if (len + 40 > avail)
		return WEIR_R_ip6_len_over;
	if (len + 40 < avail)
		note(w, WEIR_R_trailer);

	s->key[0] |= WEIR_V_IP6;
	to[0] = *(__u64 *)ip;
	to[1] = *(__u64 *)(ip + 8);
	to[2] = *(__u64 *)(ip + 16);
	to[3] = *(__u64 *)(ip + 24);
	to[4] = *(__u64 *)(ip + 32);
	s->l4_proto = next;
	s->ip_payload = l3 + 40;
	s->ip_end = l3 + 40 + len;
	s->hdr_end = l3 + 40;

	if (next == IPPROTO_TCP || next == IPPROTO_UDP || next == IPPROTO_ICMPV6)
		return PARSED;
	if (s->window < s->frame_len) {
		__u32 want = s->frame_len;

		if (want > WEIR_WINDOW_EH)
			want = WEIR_WINDOW_EH;
		opaque(want);
		want &= HDR_BYTES - 1;
		if (!want || ctx_load_head(w->ctx, s->hdr, want, HDR_BYTES))
			return WEIR_R_internal;
		s->window = want;
	}
	s->walk = s->ip_payload;
	s->walk_n = 0;
	s->op_kind = WEIR_R_MAX;
	bpf_loop(WEIR_EH_MAX + 1, ip6_extension, w, 0);
	if (s->op_kind != WEIR_R_MAX)
		return s->op_kind;
	s->ip_payload = s->walk;
	s->hdr_end = s->walk;
	return PARSED;
}

static __always_inline int parse_tcp(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 l4 = s->ip_payload, plen = s->ip_end - l4, doff;
	__u8 *tcp = hdr_at(s, l4);
	__u8 *to = (__u8 *)s->key + WEIR_K_L4;

	if (plen < 20)
		return WEIR_R_tcp_truncated;
	doff = (tcp[12] >> 4) * 4;
	if (doff < 20 || doff > plen)
		return WEIR_R_tcp_bad_offset;
	s->key[0] |= WEIR_V_TCP | WEIR_V_PORTS;
	*(__u64 *)to = *(__u64 *)tcp;
	*(__u64 *)(to + 8) = *(__u64 *)(tcp + 8);
	*(__u32 *)(to + 16) = *(__u32 *)(tcp + 16);
	s->opts = l4 + 20;
	s->opts_len = doff - 20;
	s->l4_payload = l4 + doff;
	s->l4_payload_end = s->ip_end;
	s->l4_csum = l4 + 16;
	s->hdr_end = l4 + doff;
	if (doff > 20) {
		s->walk = s->opts;
		s->walk_end = l4 + doff;
		bpf_loop(40, tcp_option, w, 0);
		if (s->walk > s->walk_end)
			return WEIR_R_tcp_bad_option;
	}
	return PARSED;
}

/* The ports of a protocol that has no other fields. */
static __always_inline void ports_of_others(struct scratch *s, __u64 *to, __u32 l4)
{
	s->key[0] |= WEIR_V_PORTS;
	*to = *(__u64 *)hdr_at(s, l4);
}

static __always_inline int parse_l4(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 l4 = s->ip_payload, plen = s->ip_end - l4, len;
	__u64 *to = (__u64 *)((__u8 *)s->key + WEIR_K_L4);

	s->base[WEIR_B_L4] = l4;
	switch (s->l4_proto) {
	case IPPROTO_TCP:
		return parse_tcp(w);
	case IPPROTO_UDP:
		if (plen < 8)
			return WEIR_R_udp_truncated;
		len = hdr_be16(s, l4 + 4);
		if (len < 8)
			return WEIR_R_udp_bad_len;
		if (len > plen) {
			if (!(s->key[0] & WEIR_V_FRAG_FIRST))
				return WEIR_R_udp_bad_len;
			len = plen;
		}
		s->key[0] |= WEIR_V_UDP | WEIR_V_PORTS;
		s->l4_csum = l4 + 6;
		s->l4_payload_end = l4 + len;
		if (!hdr_be16(s, l4 + 6))
			note(w, WEIR_R_udp_zero_checksum);
		break;
	case IPPROTO_ICMP:
		if (!(s->key[0] & WEIR_V_IP4))
			return PARSED;
		if (plen < 8)
			return WEIR_R_icmp_truncated;
		s->key[0] |= WEIR_V_ICMP;
		s->l4_csum = l4 + 2;
		s->l4_payload_end = s->ip_end;
		break;
	case IPPROTO_ICMPV6:
		if (!(s->key[0] & WEIR_V_IP6))
			return PARSED;
		if (plen < 8)
			return WEIR_R_icmp_truncated;
		s->key[0] |= WEIR_V_ICMP6;
		s->l4_csum = l4 + 2;
		s->l4_payload_end = s->ip_end;
		break;
	case IPPROTO_SCTP:
		if (weir_features & WEIR_F_PORTS && plen >= 8)
			ports_of_others(s, to, l4);
		return PARSED;
	case IPPROTO_DCCP:
	case IPPROTO_UDPLITE:
		if (plen < 8)
			return PARSED;
		if (weir_features & WEIR_F_PORTS)
			ports_of_others(s, to, l4);
		s->l4_csum = l4 + 6;
		s->pseudo_only = 1;
		s->hdr_end = l4 + 8;
		return PARSED;
	default:
		return PARSED;
	}
	*to = *(__u64 *)hdr_at(s, l4);
	s->l4_payload = l4 + 8;
	s->hdr_end = l4 + 8;
	return PARSED;
}

/* What few policies ask of a packet that was parsed. */
static __always_inline void extend_key(struct scratch *s)
{
	if (weir_features & WEIR_F_MAC) {
		s->key[WEIR_K_MAC / 8] = *(__u64 *)hdr_at(s, 0);
		s->key[WEIR_K_MAC / 8 + 1] = *(__u32 *)hdr_at(s, 8);
	}
	if (weir_features & WEIR_F_L4PROTO && s->key[0] & (WEIR_V_IP4 | WEIR_V_IP6))
		key_set_be16(s, WEIR_K_L4PROTO, 0x100 | s->l4_proto);
}

/* Fills scratch from the frame. Returns PARSED or the reason to drop it. */
static __always_inline int parse(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 off = 12, type, i;
	int reason;

	type = hdr_be16(s, 12);
#pragma unroll
	for (i = 0; i <= WEIR_VLAN_MAX; i++) {
		if (type != ETH_P_8021Q && type != ETH_P_8021AD && type != ETH_P_QINQ1)
			break;
		if (i == WEIR_VLAN_MAX)
			return WEIR_R_vlan_deep;
		if (off + 6 > s->frame_len)
			return WEIR_R_vlan_truncated;
		if (i == 0) {
			s->key[0] |= WEIR_V_VLAN;
			s->base[WEIR_B_VLAN] = off + 2;
			key_set_be16(s, WEIR_K_VLAN, hdr_be16(s, off + 2));
		} else if (i == 1) {
			s->key[0] |= WEIR_V_VLAN2;
			s->base[WEIR_B_VLAN2] = off + 2;
			key_set_be16(s, WEIR_K_VLAN2, hdr_be16(s, off + 2));
		}
		type = hdr_be16(s, off + 4);
		off += 4;
	}
	off += 2;
	key_set_be16(s, WEIR_K_ETHER, type);
	s->hdr_end = off;
	s->base[WEIR_B_IP4] = off;
	s->base[WEIR_B_IP6] = off;
	if (type == ETH_P_IP)
		reason = parse_ip4(w);
	else if (type == ETH_P_IPV6)
		reason = parse_ip6(w);
	else
		return PARSED;
	if (reason != PARSED)
		return reason;
	if (s->key[0] & (WEIR_V_FRAG_LATER | WEIR_V_EH_ESP))
		return PARSED;
	return parse_l4(w);
}

#endif
