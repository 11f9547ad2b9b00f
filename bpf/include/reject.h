/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What answers a packet that a rule rejects: docs/semantics.md section 3, "Answers". The packet in hand becomes its answer, a TCP reset or
 * an ICMP error, and goes back by the device that it came in by. Resets are made in the header window, errors by icmp_error.h.
 */
#ifndef WEIR_REJECT_H
#define WEIR_REJECT_H

#include "icmp_error.h"

/* How fast a rule answers: docs/semantics.md section 3. */
#define ANSWER_PERIOD_NS	1000000ULL
#define ANSWER_LIMIT_NS		(49 * ANSWER_PERIOD_NS)

/* Where the IP header of a packet may begin that an error answers, in the bytes of the packet: icmp_error() takes no more tags. */
#ifdef WEIR_HOOK_TC
#define ERROR_L3_MAX	14
#else
#define ERROR_L3_MAX	18
#endif

enum answer_kind { ANSWER_NONE, ANSWER_RESET, ANSWER_ERROR };

/* Whether anything answers the packet, and what. */
static __always_inline int answer_kind(struct walk *w)
{
	struct scratch *s = w->s;
	__u64 valid = s->key[0];
	__u8 *key = (__u8 *)s->key, *l4 = key + WEIR_K_L4;

	if (ctx_transmits() || !(valid & (WEIR_V_IP4 | WEIR_V_IP6)) || s->hdr[0] & 1 || valid & WEIR_V_FRAG_LATER)
		return ANSWER_NONE;
	if (valid & WEIR_V_IP4 ? !icmp_answerable4(key + WEIR_K_IP4, l4) :
				 icmp_is_hidden6(key + WEIR_K_IP6) || !icmp_answerable6(key + WEIR_K_IP6, l4))
		return ANSWER_NONE;
	if (valid & WEIR_V_TCP) {
		if (l4[13] & TCP_FLAG_RST)
			return ANSWER_NONE;
		if (s->answer & WEIR_ANSWER_RESET)
			return !(valid & WEIR_V_FRAG) && checksum_right(w) ? ANSWER_RESET : ANSWER_NONE;
	}
	return s->base[WEIR_B_IP4] - ctx_beside(w->ctx) > ERROR_L3_MAX ? ANSWER_NONE : ANSWER_ERROR;
}

/* As above_rate(), of the rule that answers. */
static __always_inline int answers_too_often(struct scratch *s)
{
	__u32 at = s->answer_slot, i;
	__u64 *tat = bpf_map_lookup_elem(&rates, &at), t = now(s), old, base;

	if (!tat)
		return 1;
#pragma unroll
	for (i = 0; i < 4; i++) {
		old = *(volatile __u64 *)tat;
		base = old > t ? old : t;
		if (base - t > ANSWER_LIMIT_NS)
			return 1;
		if (__sync_val_compare_and_swap(tat, old, base + ANSWER_PERIOD_NS) == old)
			return 0;
	}
	return 1;
}

static __always_inline void swap_stations(struct scratch *s)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < 6; i++) {
		__u8 to = s->hdr[i];

		s->hdr[i] = s->hdr[i + 6];
		s->hdr[i + 6] = to;
	}
}

/* RFC 9293 3.10.7.1. Returns 1 if the packet is the reset now. */
static __noinline int make_reset(struct walk *w)
{
	struct scratch *s = w->s;
	__u8 *key = (__u8 *)s->key;
	__be32 *l4 = (__be32 *)(key + WEIR_K_L4), *ip6 = (__be32 *)(key + WEIR_K_IP6), *ip4 = (__be32 *)(key + WEIR_K_IP4);
	__u32 l3 = s->base[WEIR_B_IP4], v6 = s->key[0] & WEIR_V_IP6 ? 1 : 0, at = l3 + (v6 ? 40 : 20), total = at + 20;
	__u32 flags = bpf_ntohl(l4[3]) >> 16 & 0xff, header = bpf_ntohl(l4[3]) >> 28 << 2, seq = 0, ack = 0, words, i;
	__u64 sum = pseudo_sum(s, 20);
	int unfinished = 0;

#ifdef WEIR_HOOK_TC
	/* Its device finishes the checksum where that of the packet was. */
	unfinished = !weir_replay && is_unfinished(w);
	if (unfinished && at != s->base[WEIR_B_L4])
		return 0;
#endif
	if (flags & TCP_FLAG_ACK) {
		seq = bpf_ntohl(l4[2]);
		words = 0x50000000 | TCP_FLAG_RST << 16;
	} else {
		ack = bpf_ntohl(l4[1]) + s->ip_end - s->base[WEIR_B_L4] - header;
		ack += (flags & TCP_FLAG_SYN ? 1 : 0) + (flags & TCP_FLAG_FIN ? 1 : 0);
		words = 0x50000000 | (TCP_FLAG_RST | TCP_FLAG_ACK) << 16;
	}
	swap_stations(s);
	if (v6) {
		*(__be32 *)hdr_at(s, l3) = bpf_htonl(6U << 28);
		*(__be32 *)hdr_at(s, l3 + 4) = bpf_htonl(20 << 16 | IPPROTO_TCP << 8 | ICMP_ERROR_TTL);
#pragma unroll
		for (i = 0; i < 4; i++) {
			*(__be32 *)hdr_at(s, l3 + 8 + i * 4) = ip6[6 + i];
			*(__be32 *)hdr_at(s, l3 + 24 + i * 4) = ip6[2 + i];
		}
	} else {
		__u32 first = 0x45000028, second = 0x4000, third = ICMP_ERROR_TTL << 24 | IPPROTO_TCP << 16;
		__u32 ends = csum_halves(bpf_ntohl(ip4[3])) + csum_halves(bpf_ntohl(ip4[4]));

		third |= ~csum_fold(csum_halves(first) + csum_halves(second) + csum_halves(third) + ends) & 0xffff;
		*(__be32 *)hdr_at(s, l3) = bpf_htonl(first);
		*(__be32 *)hdr_at(s, l3 + 4) = bpf_htonl(second);
		*(__be32 *)hdr_at(s, l3 + 8) = bpf_htonl(third);
		*(__be32 *)hdr_at(s, l3 + 12) = ip4[4];
		*(__be32 *)hdr_at(s, l3 + 16) = ip4[3];
	}
	if (!unfinished) {
		sum += csum_halves(bpf_ntohl(l4[0])) + csum_halves(seq) + csum_halves(ack) + csum_halves(words);
		sum = ~csum_fold(sum) & 0xffff;
	}
	*(__be32 *)hdr_at(s, at) = bpf_htonl(bpf_ntohl(l4[0]) << 16 | bpf_ntohl(l4[0]) >> 16);
	*(__be32 *)hdr_at(s, at + 4) = bpf_htonl(seq);
	*(__be32 *)hdr_at(s, at + 8) = bpf_htonl(ack);
	*(__be32 *)hdr_at(s, at + 12) = bpf_htonl(words);
	*(__be32 *)hdr_at(s, at + 16) = bpf_htonl((__u32)sum << 16);
	if (total != s->frame_len && ctx_grow_tail(w->ctx, (int)total - (int)s->frame_len))
		return 0;
#ifdef WEIR_HOOK_TC
	/* ctx_store_head() leaves them where a tag lies beside the packet. */
	if (bpf_skb_store_bytes(w->ctx, 0, s->hdr, 12, 0))
		return 0;
#endif
	opaque(total);
	total &= HDR_BYTES - 1;
	return total && !ctx_store_head(w->ctx, s->hdr, total);
}

/* Returns 1 if the packet is the error now. */
static __noinline int make_error(struct walk *w)
{
	struct scratch *s = w->s;
	__u8 *key = (__u8 *)s->key;
	__u32 v6 = s->key[0] & WEIR_V_IP6 ? 1 : 0, *from = (__u32 *)(key + (v6 ? WEIR_K_IP6 + 24 : WEIR_K_IP4 + 16)), i;
	struct icmp_error e = {
		.family = v6 ? 6 : 4,
		.l3 = s->base[WEIR_B_IP4],
		.type = v6 ? ICMP6_DEST_UNREACH : ICMP_DEST_UNREACH,
		.code = s->answer >> (v6 ? WEIR_ANSWER_ICMP6 : WEIR_ANSWER_ICMP4) & 0xff,
	};

	e.ip_len = s->ip_end - e.l3;
	e.l3 -= ctx_beside(w->ctx);
	e.from[0] = from[0];
	if (v6) {
#pragma unroll
		for (i = 1; i < 4; i++)
			e.from[i] = from[i];
	}
	return icmp_error(w->ctx, &e);
}

/* Answers a packet that the rules drop, one of which rejects it. Returns the verdict. */
static __noinline int reject(struct walk *w)
{
	struct scratch *s = w->s;
	int kind = forget(s, answer_kind(w));

	if (kind == ANSWER_NONE)
		goto none;
	if (answers_too_often(s)) {
		note(w, WEIR_R_answer_limited);
		return CTX_DROP;
	}
	if (!forget(s, kind == ANSWER_RESET ? make_reset(w) : make_error(w)))
		goto none;
	panel_resized(w->ctx);
	note(w, WEIR_R_answered);
	return XDP_TX;
none:
	note(w, WEIR_R_no_answer);
	return CTX_DROP;
}

#endif
