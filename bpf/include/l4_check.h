/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is asked of TCP packets and ICMP errors before connections are looked at: TCP flags that a stack sends together, a right
 * checksum of what begins or ends a connection and of errors, because no host behind weir would believe them with a wrong one, and
 * a path MTU that a path can have.
 * Follows docs/semantics.md section 7, "Flags" and "ICMP".
 */
#ifndef WEIR_L4_CHECK_H
#define WEIR_L4_CHECK_H

#define MIN_MTU_IP6	1280	/* RFC 8200 section 5 */

const volatile __u32 weir_min_pmtu = 0;	/* IPv4 */

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

/* Whether the checksum of a whole TCP, ICMP or ICMPv6 packet is right, or still to be finished by a device. */
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
	if (s->sum_at != s->sum_end)
		return 0;
	len = s->key[0] & WEIR_V_ICMP ? 0 : pseudo_sum(s, len);
	return csum_fold(len + bpf_ntohs(csum_fold(s->sum))) == 0xffff;
}

/* ICMP that tells a host or router what to do and that no connection asked for: it needs a rule that accepts its type. */
static __always_inline int needs_acceptance(struct scratch *s)
{
	__u32 type = ((__u8 *)s->key)[WEIR_K_L4];

	/* What this host sends is not judged. */
	if (ctx_transmits() && !*(__u16 *)((__u8 *)s->key + WEIR_K_IN))
		return 0;
	if (s->key[0] & WEIR_V_ICMP)
		return type == 4 || type == 5 || type == 9;
	return s->key[0] & WEIR_V_ICMP6 && (type == 134 || type == 137);
}

/* Whether an ICMP error names a path MTU that no path should have. */
static __always_inline int mtu_too_small(struct scratch *s)
{
	__u8 *icmp = (__u8 *)s->key + WEIR_K_L4;

	if (s->key[0] & WEIR_V_ICMP)
		return icmp[0] == 3 && icmp[1] == 4 && bpf_ntohs(*(__be16 *)(icmp + 6)) < weir_min_pmtu;
	return s->key[0] & WEIR_V_ICMP6 && icmp[0] == 2 && bpf_ntohl(*(__be32 *)(icmp + 4)) < MIN_MTU_IP6;
}

/* Returns PARSED or the reason to drop the packet. */
static __always_inline int check_l4(struct walk *w)
{
	struct scratch *s = w->s;
	__u8 *l4 = (__u8 *)s->key + WEIR_K_L4;
	__u32 flags = l4[13], wrong = WEIR_NO_REASON;

	if (s->key[0] & WEIR_V_TCP) {
		if (!sane_flags(flags))
			return WEIR_R_tcp_flags;
		if (flags & (TCP_FLAG_SYN | TCP_FLAG_FIN | TCP_FLAG_RST))
			wrong = WEIR_R_tcp_checksum;
	} else if (is_icmp_error(s->key[0], l4[0])) {
		wrong = WEIR_R_icmp_checksum;
	}
	wrong = forget(s, wrong);
	if (wrong == WEIR_NO_REASON)
		return PARSED;
	if (!(s->key[0] & WEIR_V_FRAG) && !checksum_right(w))
		return wrong;
	return mtu_too_small(s) ? WEIR_R_pmtu_floor : PARSED;
}

#endif
