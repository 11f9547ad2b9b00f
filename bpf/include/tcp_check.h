/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is asked of every TCP packet before connections are looked at: flags that a stack sends together, and of those that begin
 * or end a connection a right checksum, because nobody behind weir would believe them with a wrong one.
 * Follows docs/semantics.md section 7, "Flags".
 */
#ifndef WEIR_TCP_CHECK_H
#define WEIR_TCP_CHECK_H

/* Whether a stack sends these flags together; PSH, ECE and CWR go with anything (docs/semantics.md section 7). */
static __always_inline int sane_flags(__u32 flags)
{
	const __u64 sane = 1ULL << TCP_FLAG_SYN | 1ULL << (TCP_FLAG_SYN | TCP_FLAG_URG) | 1ULL << (TCP_FLAG_SYN | TCP_FLAG_ACK) |
			   1ULL << TCP_FLAG_RST | 1ULL << (TCP_FLAG_RST | TCP_FLAG_ACK) |
			   1ULL << (TCP_FLAG_FIN | TCP_FLAG_ACK) | 1ULL << (TCP_FLAG_FIN | TCP_FLAG_ACK | TCP_FLAG_URG) |
			   1ULL << TCP_FLAG_ACK | 1ULL << (TCP_FLAG_ACK | TCP_FLAG_URG);

	return sane >> (flags & (TCP_FLAG_FIN | TCP_FLAG_SYN | TCP_FLAG_RST | TCP_FLAG_ACK | TCP_FLAG_URG)) & 1;
}

/* Adds the next bytes. */
static long sum_chunk(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 left = s->sum_end - s->sum_at;

	if (left > SUM_CHUNK)
		left = SUM_CHUNK;
	opaque(left);
	if (!left || left > SUM_CHUNK)
		return 1;
	/* An odd last byte counts with a zero behind it. */
	*(__u32 *)(s->chunk + (left & ~3U)) = 0;
	if (ctx_load(w->ctx, s->sum_at, s->chunk, left))
		return 1;
	s->sum_at += left;
	left = (left + 3) & ~3U;
	opaque(left);
	if (left > SUM_CHUNK)
		return 1;
	s->sum = bpf_csum_diff(0, 0, (void *)s->chunk, left, s->sum);
	return 0;
}

/* Whether the checksum of a whole TCP packet is right, or still to be finished by a device. */
static __noinline int checksum_right(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 len = s->ip_end - s->ip_payload;

	if (is_unfinished(w))
		return 1;
	s->sum_at = s->ip_payload;
	s->sum_end = s->ip_end;
	s->sum = 0;
	bpf_loop(len / SUM_CHUNK + 1, sum_chunk, w, 0);
	return s->sum_at == s->sum_end && csum_fold(pseudo_sum(s, len) + bpf_ntohs(csum_fold(s->sum))) == 0xffff;
}

/* Returns PARSED or the reason to drop the packet. */
static __always_inline int check_tcp(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 flags = ((__u8 *)s->key)[WEIR_K_L4 + 13];

	if (!(s->key[0] & WEIR_V_TCP))
		return PARSED;
	if (!sane_flags(flags))
		return WEIR_R_tcp_flags;
	if (!(flags & (TCP_FLAG_SYN | TCP_FLAG_FIN | TCP_FLAG_RST)) || s->key[0] & WEIR_V_FRAG)
		return PARSED;
	return checksum_right(w) ? PARSED : WEIR_R_tcp_checksum;
}

#endif
