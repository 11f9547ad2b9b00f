/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * SYN cookies in front of the local stack: SYNs are answered here, by TX of a SYN-ACK whose sequence number the kernel can
 * recompute, and only an acknowledgement of such a number opens the way for its flow. Nothing is remembered of a SYN.
 *
 * Cookies are the kernel's own (raw helpers of Linux 6.0), so the listening socket accepts the acknowledgement; it does so only while
 * net.ipv4.tcp_syncookies is 2 and it has sent a cookie itself within two minutes, for which a SYN now and then is let through.
 * The SYN-ACK carries the segment size alone: window scale, SACK and timestamps would have to be hidden in a timestamp whose
 * offset only the stack knows (docs/filter.md).
 */
#ifndef WEIR_COOKIES_H
#define WEIR_COOKIES_H

#define COOKIE_OPEN	0	/* the packet may go on */
#define COOKIE_ANSWERED	1	/* it is a SYN-ACK now, to be sent back */
#define COOKIE_BAD	2

#define COOKIE_THROUGH_NS	20000000000ULL	/* a SYN for each destination is let through so often */
#define COOKIE_ALL_NS		10000000ULL	/* ... and of each rule at most 100 a second, */
#define COOKIE_BURST_NS		990000000ULL	/* 100 of them at once */
#define COOKIE_FRESH_NS		1000000000ULL	/* how stale the time of a flow may be */
#define COOKIE_WINDOW		64240
#define COOKIE_TCP		24	/* TCP header with the segment size */

const volatile __u32 weir_flow_mask = 0;	/* buckets - 1 */

/* Flows whose handshake was completed: tag, and when they were last seen. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_filter_limit);
} verified SEC(".maps");

static __always_inline int is_verified(__u64 tag, __u64 now_ns)
{
	__u32 at = tag & weir_flow_mask, i;
	struct weir_filter_limit *bucket = bpf_map_lookup_elem(&verified, &at);

	if (!bucket)
		return 0;
	tag |= 1ULL << 63;
#pragma unroll
	for (i = 0; i < WEIR_FILTER_WAYS; i++) {
		if (bucket->tag[i] == tag) {
			if (now_ns - bucket->ahead_ns[i] > COOKIE_FRESH_NS)
				bucket->ahead_ns[i] = now_ns;
			return 1;
		}
	}
	return 0;
}

static __always_inline void verify(__u64 tag, __u64 now_ns)
{
	__u32 at = tag & weir_flow_mask, i, victim = 0;
	struct weir_filter_limit *bucket = bpf_map_lookup_elem(&verified, &at);
	__u64 least = ~0ULL, seen;

	if (!bucket)
		return;
#pragma unroll
	for (i = 0; i < WEIR_FILTER_WAYS; i++) {
		seen = bucket->tag[i] ? bucket->ahead_ns[i] : 0;
		if (seen < least) {
			least = seen;
			victim = i;
		}
	}
	victim &= WEIR_FILTER_WAYS - 1;
	bucket->ahead_ns[victim] = now_ns;
	bucket->tag[victim] = tag | 1ULL << 63;
}

/* One's complement sum of n 16-bit words as they lie. */
static __always_inline __u32 sum_words(__u8 *from, const __u32 n)
{
	__u32 sum = 0, i;

#pragma unroll
	for (i = 0; i < n; i++)
		sum += *(__u16 *)(from + 2 * i);
	return sum;
}

static __always_inline void put16(__u8 *to, __u16 value)
{
	*(__u16 *)to = bpf_htons(value);
}

/* The TCP header of the answer; `pseudo`: sum of the addresses as they lie. */
static __always_inline void answer_tcp(__u8 *to, __u8 *syn, __u32 cookie, __u16 mss, __u32 pseudo)
{
	*(__u16 *)to = *(__u16 *)(syn + 2);
	*(__u16 *)(to + 2) = *(__u16 *)syn;
	*(__u32 *)(to + 4) = bpf_htonl(cookie);
	*(__u32 *)(to + 8) = bpf_htonl(bpf_ntohl(*(__u32 *)(syn + 4)) + 1);
	to[12] = COOKIE_TCP / 4 << 4;
	to[13] = TCP_SYN | TCP_ACK;
	put16(to + 14, COOKIE_WINDOW);
	*(__u32 *)(to + 16) = 0;
	to[20] = 2;
	to[21] = 4;
	put16(to + 22, mss);
	pseudo += bpf_htons(IPPROTO_TCP) + bpf_htons(COOKIE_TCP) + sum_words(to, COOKIE_TCP / 2);
	*(__u16 *)(to + 16) = ~csum_fold(pseudo);
}

/* Turns a SYN into its answer. */
static __always_inline int answer(ctx_t *ctx, struct head *h, struct filter_walk *walk, __u64 cookie)
{
	__u8 *ip = walk->ip, *to = walk->answer;
	__u32 size, l3 = h->l3, mtu = weir_mtu ? weir_mtu : 1500, macs[3];

	if (h->family == 4) {
		size = 20 + COOKIE_TCP;
		*(__u32 *)to = bpf_htonl(0x45000000 | size);
		*(__u32 *)(to + 4) = bpf_htonl(0x4000);
		*(__u32 *)(to + 8) = bpf_htonl(64 << 24 | IPPROTO_TCP << 16);
		*(__u32 *)(to + 12) = *(__u32 *)(ip + 16);
		*(__u32 *)(to + 16) = *(__u32 *)(ip + 12);
		*(__u16 *)(to + 10) = ~csum_fold(sum_words(to, 10));
		answer_tcp(to + 20, walk->tcp, cookie, mtu - 40, sum_words(to + 12, 4));
	} else {
		size = 40 + COOKIE_TCP;
		*(__u32 *)to = bpf_htonl(0x60000000);
		*(__u32 *)(to + 4) = bpf_htonl(COOKIE_TCP << 16 | IPPROTO_TCP << 8 | 64);
		*(__u64 *)(to + 8) = *(__u64 *)(ip + 24);
		*(__u64 *)(to + 16) = *(__u64 *)(ip + 32);
		*(__u64 *)(to + 24) = *(__u64 *)(ip + 8);
		*(__u64 *)(to + 32) = *(__u64 *)(ip + 16);
		answer_tcp(to + 40, walk->tcp, cookie, mtu - 60, sum_words(to + 8, 16));
	}
	if (ctx_load(ctx, 0, walk->macs, 12))
		return WEIR_R_internal;
	__builtin_memcpy(macs, walk->macs, 12);
	*(__u32 *)walk->macs = macs[1] >> 16 | macs[2] << 16;
	*(__u16 *)(walk->macs + 4) = macs[2] >> 16;
	*(__u16 *)(walk->macs + 6) = macs[0];
	*(__u32 *)(walk->macs + 8) = macs[0] >> 16 | macs[1] << 16;
	if (ctx_grow_tail(ctx, (int)(l3 + size) - (int)h->len))
		return WEIR_R_cookie_room;
	if (ctx_store(ctx, 0, walk->macs, 12) || ctx_store(ctx, l3, to, size))
		return WEIR_R_internal;
	return COOKIE_ANSWERED;
}

static __always_inline __u64 flow_tag(struct head *h)
{
	return mix(mix(h->src_high, h->src_low) ^ h->ports, mix(h->dst_high, h->dst_low));
}

/* Judges a TCP packet for which a rule asks for cookies: COOKIE_*, or a reason above COOKIE_BAD. */
static __always_inline int cookie(ctx_t *ctx, struct head *h, struct filter_walk *walk, __u32 rule)
{
	__u64 tag, made, *word, *all;
	__u32 len, off;
	int reason;

	if (!h->l4)
		return COOKIE_BAD;
	tag = flow_tag(h);
	if (!(h->tcp_flags & TCP_SYN) && is_verified(tag, walk->now_ns))
		return COOKIE_OPEN;
	if (h->tcp_flags & TCP_RST || (h->tcp_flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK))
		return COOKIE_BAD;
	if (!(h->tcp_flags & (TCP_SYN | TCP_ACK)))
		return COOKIE_BAD;
	if (ctx_load(ctx, h->l4, walk->tcp, 20))
		return WEIR_R_head_split;
	len = (walk->tcp[12] >> 4) * 4;
	if (len < 20 || h->l4 + len > h->ip_end)
		return WEIR_R_tcp_bad_offset;
	off = len - 20;
	opaque(off);
	off &= 63;
	if (off && ctx_load(ctx, h->l4 + 20, walk->tcp + 20, off))
		return WEIR_R_head_split;
	if (ctx_load(ctx, h->l3, walk->ip, 20))
		return WEIR_R_head_split;
	if (h->family == 6 && ctx_load(ctx, h->l3 + 20, walk->ip + 20, 20))
		return WEIR_R_head_split;
	if (!(h->tcp_flags & TCP_SYN)) {
		if (h->family == 4)
			reason = bpf_tcp_raw_check_syncookie_ipv4((void *)walk->ip, (void *)walk->tcp);
		else
			reason = bpf_tcp_raw_check_syncookie_ipv6((void *)walk->ip, (void *)walk->tcp);
		if (reason)
			return COOKIE_BAD;
		verify(tag, walk->now_ns);
		return COOKIE_OPEN;
	}
	word = limit_word(mix(h->dst_high ^ (h->ports & 0xffff), ~h->dst_low));
	/*
	 * Looked at before it is counted: a SYN that the rule holds back must not keep the next ones for its destination back, whose
	 * socket would reset all that the filter answers until then.
	 */
	if (word && *(volatile __u64 *)word <= walk->now_ns) {
		all = bpf_map_lookup_elem(&totals, &rule);
		if (all && !over(all, walk->now_ns, COOKIE_ALL_NS, COOKIE_BURST_NS) &&
		    !over(word, walk->now_ns, COOKIE_THROUGH_NS, 0))
			return COOKIE_OPEN;
	}
	len = off + 20;
	if (h->family == 4)
		made = bpf_tcp_raw_gen_syncookie_ipv4((void *)walk->ip, (void *)walk->tcp, len);
	else
		made = bpf_tcp_raw_gen_syncookie_ipv6((void *)walk->ip, (void *)walk->tcp, len);
	if ((__s64)made < 0)
		return COOKIE_BAD;
	return answer(ctx, h, walk, made);
}

#endif
