/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Translating a packet of a connection: addresses, ports, identification, sequence numbers and SACK blocks,
 * and what an ICMP error quotes. Before any rewriting, in the header window.
 * Follows docs/semantics.md section 7, step by step: checksums are compared byte for byte.
 */
#ifndef WEIR_TRANSLATE_H
#define WEIR_TRANSLATE_H

#define COVERS_IP4	1	/* the word is in the IPv4 header checksum */
#define COVERS_L4	2	/* ... in the L4 checksum */
#define COVERS_PSEUDO	4	/* ... in the pseudo-header of the L4 checksum */

/* Writes one word of a header, as in memory, and lets checksums follow. */
static __noinline int put_word(struct walk *w, __u32 at, __u32 new, __u32 covers)
{
	struct scratch *s = w->s;
	__u32 old = *(__u32 *)hdr_at(s, at), o, n;

	if (old == new)
		return 0;
	*(__u32 *)hdr_at(s, at) = new;
	s->dirty = 1;
	o = csum_halves(bpf_ntohl(old));
	n = csum_halves(bpf_ntohl(new));
	if (covers & COVERS_IP4)
		update_ip4(s, o, n);
	if (covers & (COVERS_L4 | COVERS_PSEUDO))
		update_l4(s, o, n, covers & COVERS_PSEUDO);
	return 0;
}

/* The tuple that the packet leaves with. */
static __always_inline void target_tuple(struct scratch *s, struct weir_tuple *to, __u32 reverse)
{
	if (!reverse) {
		*to = s->f.trans;
		return;
	}
	to->src[0] = s->f.orig.dst[0];
	to->src[1] = s->f.orig.dst[1];
	to->dst[0] = s->f.orig.src[0];
	to->dst[1] = s->f.orig.src[1];
	to->sport = s->f.orig.dport;
	to->dport = s->f.orig.sport;
	to->proto = s->f.orig.proto;
	to->family = s->f.orig.family;
	to->what = WEIR_TUPLE_PACKET;
}

/* One of the two addresses of the outer header. */
static __always_inline void put_address(struct walk *w, __u64 *address, const int is_destination)
{
	struct scratch *s = w->s;
	__u32 at, i;

	if (s->key[0] & WEIR_V_IP4) {
		at = s->base[WEIR_B_IP4] + (is_destination ? 16 : 12);
		put_word(w, at, address[0], COVERS_IP4 | COVERS_PSEUDO);
		return;
	}
	at = s->base[WEIR_B_IP6] + (is_destination ? 24 : 8);
#pragma unroll
	for (i = 0; i < 4; i++)
		put_word(w, at + i * 4, address[i / 2] >> (i % 2 * 32), COVERS_PSEUDO);
}

/* An edge of a SACK block moves with the acknowledgements. */
static __always_inline void move_edge(struct scratch *s, __u32 at, __u32 by)
{
	*(__u32 *)hdr_at(s, at) = bpf_htonl(bpf_ntohl(*(__u32 *)hdr_at(s, at)) + by);
}

static long sack_option(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 kind = 0, len = option_length(s, &kind), k;

	if (len < 2)
		return !len;
	if (kind == 5 && len > 2 && (len - 2) % 8 == 0) {
		/* Four blocks are what a header can hold. */
#pragma unroll
		for (k = 0; k < 8; k++)
			if (k * 4 + 2 < len)
				move_edge(s, s->walk + 2 + k * 4, s->op_len);
	}
	s->walk += len;
	return 0;
}

/* Sum of the TCP options in the window. */
static __always_inline __u32 window_options_sum(struct scratch *s)
{
	__u64 *from = (__u64 *)hdr_at(s, s->opts), *to = (__u64 *)s->opts_new;
	__u32 i;

#pragma unroll
	for (i = 0; i < 5; i++)
		to[i] = from[i] & first_bytes(s->opts_len - i * 8);
	return options_sum(s->opts_new);
}

static __always_inline void move_sack(struct walk *w, __u32 by)
{
	struct scratch *s = w->s;
	__u32 before;

	if (!s->opts_len || !by)
		return;
	before = window_options_sum(s);
	s->op_len = by;
	s->walk = s->opts;
	s->walk_end = s->opts + s->opts_len;
	bpf_loop(40, sack_option, w, 0);
	s->dirty = 1;
	update_l4(s, before, window_options_sum(s), 0);
}

static __always_inline void move_sequence(struct walk *w, __u32 reverse)
{
	struct scratch *s = w->s;
	__u32 at = s->base[WEIR_B_L4], seq = s->f.seq_off, ack = s->f.ack_off;

	if (!(s->key[0] & WEIR_V_TCP) || !(seq | ack))
		return;
	if (reverse) {
		seq = s->f.ack_off;
		ack = s->f.seq_off;
	}
	ack = -ack;
	put_word(w, at + 4, bpf_htonl(hdr_be32(s, at + 4) + seq), COVERS_L4);
	if (!(hdr_u8(s, at + 13) & TCP_FLAG_ACK))
		return;
	put_word(w, at + 8, bpf_htonl(hdr_be32(s, at + 8) + ack), COVERS_L4);
	move_sack(w, ack);
}

/* Identification or flow label, the same in both directions. */
static __always_inline void put_identity(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 at, word, value;

	if (s->key[0] & WEIR_V_IP4) {
		if (!(s->f.what & (WEIR_FLOW_ID_SET | WEIR_FLOW_ID_MOVED)))
			return;
		at = s->base[WEIR_B_IP4] + 4;
		word = hdr_be32(s, at);
		value = s->f.identity;
		if (s->f.what & WEIR_FLOW_ID_MOVED)
			value += word >> 16;
		put_word(w, at, bpf_htonl((word & 0xffff) | value << 16), COVERS_IP4);
		return;
	}
	if (!(s->f.what & (WEIR_FLOW_LABEL_SET | WEIR_FLOW_LABEL_MOVED)))
		return;
	at = s->base[WEIR_B_IP6];
	word = hdr_be32(s, at);
	value = s->f.identity;
	if (s->f.what & WEIR_FLOW_LABEL_MOVED)
		value += word;
	put_word(w, at, bpf_htonl((word & 0xfff00000) | (value & 0xfffff)), 0);
}

/* The port word of an L4 header at `at`, or the identifier word of an ICMP query, for a tuple. */
static __always_inline __u32 ports_word(struct scratch *s, struct weir_tuple *to, __u32 at, __u32 *where)
{
	__u32 type, id;

	if (to->proto == IPPROTO_TCP || to->proto == IPPROTO_UDP) {
		*where = at;
		return to->sport | (__u32)to->dport << 16;
	}
	/* The identifier is the port of the side that asks. */
	*where = at + 4;
	type = hdr_u8(s, at);
	id = type == 0 || type == 14 || type == 129 ? to->dport : to->sport;
	return id | (*(__u32 *)hdr_at(s, at + 4) & 0xffff0000);
}

/* ---- what an ICMP error quotes ---- */

/* Words of the quote from its IP header to what is rewritten of its L4 header. */
static long sum_quote(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;

	s->sum_new += hdr_be16(s, s->quote + i * 2);
	return 0;
}

static __noinline __u32 quote_sum(struct walk *w, __u32 words)
{
	w->s->sum_new = 0;
	bpf_loop(words, sum_quote, w, 0);
	return w->s->sum_new;
}

/* A checksum in the quote after a word of what it covers changed. is_udp: 0 is none, and never results. */
static __always_inline void follow(struct scratch *s, __u32 at, __u32 o, __u32 n, int is_udp)
{
	__u32 old = hdr_be16(s, at), new;

	if (o == n || (is_udp && !old))
		return;
	new = csum_update(old, o, n);
	if (is_udp && !new)
		new = 0xffff;
	hdr_set_be16(s, at, new);
}

/* Writes a word of the quote; its own checksums follow. quote_csum: the L4 checksum in it, 0: none. */
static __noinline int put_quote_word(struct walk *w, __u32 at, __u32 new, __u32 covers)
{
	struct scratch *s = w->s;
	__u32 old = *(__u32 *)hdr_at(s, at), o, n;

	if (old == new)
		return 0;
	*(__u32 *)hdr_at(s, at) = new;
	o = csum_halves(bpf_ntohl(old));
	n = csum_halves(bpf_ntohl(new));
	if (covers & COVERS_IP4)
		follow(s, s->quote + 10, o, n, 0);
	if (!s->quote_csum || (covers & COVERS_PSEUDO && s->f.orig.proto == IPPROTO_ICMP))
		return 0;
	follow(s, s->quote_csum, o, n, s->f.orig.proto == IPPROTO_UDP);
	return 0;
}

static __always_inline void put_quote_address(struct walk *w, __u64 *address, const int is_destination)
{
	struct scratch *s = w->s;
	__u32 at, i;

	if (s->key[0] & WEIR_V_IP4) {
		put_quote_word(w, s->quote + (is_destination ? 16 : 12), address[0], COVERS_IP4 | COVERS_PSEUDO);
		return;
	}
	at = s->quote + (is_destination ? 24 : 8);
#pragma unroll
	for (i = 0; i < 4; i++)
		put_quote_word(w, at + i * 4, address[i / 2] >> (i % 2 * 32), COVERS_PSEUDO);
}

/* An ICMP error about a packet of the connection: to its sender as it knows the packet. */
static __always_inline void translate_error(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 about_reverse = s->kind & 1, l4 = s->quote_l4, size = 8, words, before, where, word, offset;
	struct weir_tuple *to = &s->want;
	__u8 proto = s->f.orig.proto;
	int generic = is_generic(proto, s->f.orig.family);
	__u64 moves;

	/* The error travels against the quote: a quote of the forward side goes where the reverse side goes. */
	target_tuple(s, to, !about_reverse);
	/* Whoever sends it is seen as the side whose address is translated: a router behind this one, too. */
	if (about_reverse)
		moves = (s->f.orig.src[0] ^ s->f.trans.src[0]) | (s->f.orig.src[1] ^ s->f.trans.src[1]);
	else
		moves = (s->f.orig.dst[0] ^ s->f.trans.dst[0]) | (s->f.orig.dst[1] ^ s->f.trans.dst[1]);
	if (moves)
		put_address(w, to->src, 0);
	put_address(w, to->dst, 1);

	if (proto == IPPROTO_TCP) {
		size = (s->quote_end - l4) & ~1U;
		if (size > 20)
			size = 20;
	}
	s->quote_csum = 0;
	if (proto == IPPROTO_UDP)
		s->quote_csum = l4 + 6;
	else if (generic)
		s->quote_csum = 0;
	else if (proto != IPPROTO_TCP)
		s->quote_csum = l4 + 2;
	else if (size >= 18)
		s->quote_csum = l4 + 16;
	words = (l4 + size - s->quote) / 2;
	before = quote_sum(w, words);

	/* The quote is the other direction's packet: what the error's tuple is, reversed. */
	put_quote_address(w, to->dst, 0);
	put_quote_address(w, to->src, 1);
	if (!generic) {
		__u16 port = to->sport;

		to->sport = to->dport;
		to->dport = port;
		word = ports_word(s, to, l4, &where);
		put_quote_word(w, where, word, COVERS_L4);
	}
	offset = about_reverse ? s->f.ack_off : s->f.seq_off;
	if (weir_features & WEIR_F_SEQUENCE && proto == IPPROTO_TCP && offset)
		put_quote_word(w, l4 + 4, bpf_htonl(hdr_be32(s, l4 + 4) - offset), COVERS_L4);
	update_l4(s, before, quote_sum(w, words), 0);
	s->dirty = 1;
	s->hdr_end = l4 + size;
}

/* Translates a handled packet of a connection. */
static __always_inline void translate(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 reverse = s->kind & 1, at = s->base[WEIR_B_L4], where, word;
	struct weir_tuple *to = &s->want;

	if (s->is_error) {
		translate_error(w);
		return;
	}
	target_tuple(s, to, reverse);
	put_address(w, to->src, 0);
	put_address(w, to->dst, 1);
	put_identity(w);
	if (s->key[0] & WEIR_V_FRAG_LATER || is_generic(to->proto, to->family))
		return;
	word = ports_word(s, to, at, &where);
	put_word(w, where, word, COVERS_L4);
	if (weir_features & WEIR_F_SEQUENCE)
		move_sequence(w, reverse);
}

#endif
