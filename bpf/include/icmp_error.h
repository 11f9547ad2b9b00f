/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * ICMP and ICMPv6 errors: turns the packet in hand into the error that answers
 * it, back to the station it came from. RFC 792, 1812 (4.3.2), 4443 (2.4, 3).
 *
 * The packet is quoted as it was received, up to 576 bytes of error in IPv4 and 1,280 in IPv6, as Linux does. Packets that must not be
 * answered are told by icmp_answerable(). Callers limit the rate.
 */
#ifndef WEIR_ICMP_ERROR_H
#define WEIR_ICMP_ERROR_H

#define ICMP_DEST_UNREACH	3
#define ICMP_NET_UNREACH	0
#define ICMP_HOST_UNREACH	1
#define ICMP_FRAG_NEEDED	4
#define ICMP_PKT_FILTERED	13
#define ICMP_TIME_EXCEEDED	11
#define ICMP6_DEST_UNREACH	1
#define ICMP6_NOROUTE		0
#define ICMP6_ADM_PROHIBITED	1
#define ICMP6_PKT_TOOBIG	2
#define ICMP6_TIME_EXCEED	3

#define ICMP_ERROR_TTL		64
#define ICMP_QUOTE4		(576 - 20 - 8)
#define ICMP_QUOTE6		(1280 - 40 - 8)
#define ICMP_PRECEDENCE		0xc0	/* internetwork control: RFC 1812, 4.3.2.5 */

struct icmp_error {
	__u32 family;		/* of the packet: 4 or 6 */
	__u32 l3;		/* offset of its IP header: 14, or 18 behind a tag */
	__u32 ip_len;		/* bytes of the packet, at most what the frame holds */
	__u32 type, code;
	__u32 word;		/* second word of the ICMP header, host order: MTU */
	__u32 from[4];		/* address of the error; IPv4: the first word */

	/* While it is made: beside it, because callers have more stack to spare than icmp_error() has. */
	__u32 to[4];
	__u8 l2[20];
};

/* Types of ICMP that ask or answer, and may be answered by errors: all others are errors, or unknown. */
static __always_inline int icmp_is_query(__u32 type)
{
	return type == 0 || type == 8 || (type >= 13 && type <= 18) || (type >= 9 && type <= 10);
}

/*
 * Whether an IPv4 packet may be answered by an error: no fragment but the first, no ICMP error, to and from one station each.
 * `ip`: its first 20 bytes; `l4`: the first byte behind them, 0 if the packet has none.
 */
static __always_inline int icmp_answerable4(__u8 *ip, __u8 *l4)
{
	__u32 src = ip[12], dst = ip[16];

	if ((ip[6] & 0x1f) | ip[7])
		return 0;
	if (src == 0 || src == 127 || (src & 0xf0) == 224 || *(__u32 *)(ip + 12) == 0xffffffff)
		return 0;
	if ((dst & 0xf0) == 224 || *(__u32 *)(ip + 16) == 0xffffffff)
		return 0;
	return ip[9] != 1 || (l4 && icmp_is_query(*l4));
}

/* Headers behind which an ICMPv6 error may hide: whether such a packet may be answered is not told by its first 40 bytes. */
static __always_inline int icmp_is_hidden6(__u8 *ip)
{
	switch (ip[6]) {
	case 0:		/* hop-by-hop */
	case 43:	/* routing */
	case 44:	/* fragment */
	case 51:	/* AH */
	case 60:	/* destination options */
	case 135:	/* mobility */
	case 139:	/* HIP */
	case 140:	/* Shim6 */
		return 1;
	}
	return 0;
}

/* The same for IPv6; not asked about what icmp_is_hidden6(). */
static __always_inline int icmp_answerable6(__u8 *ip, __u8 *l4)
{
	__u32 *src = (void *)(ip + 8);

	if (ip[8] == 0xff || ip[24] == 0xff || !(src[0] | src[1] | src[2] | src[3]))
		return 0;
	return ip[6] != 58 || (l4 && *l4 >= 128);
}

#ifndef opaque
#define opaque(x) asm volatile("" : "+r"(x))
#endif

#ifdef WEIR_HOOK_TC

#define ICMP_CHUNK	256

/* What is summed, piece by piece. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[ICMP_CHUNK]);
} weir_icmp_chunk SEC(".maps");

/* Sum of the frame's bytes from `off` on up to `end`, -1: they cannot be read. A tag beside the data is not counted. */
static __always_inline __s64 icmp_sum(ctx_t *ctx, __u32 off, __u32 end)
{
	__u32 zero = 0, left, i, sum = 0;
	__u8 *chunk = bpf_map_lookup_elem(&weir_icmp_chunk, &zero);

	if (!chunk)
		return -1;
	for (i = 0; i < (ICMP_QUOTE6 + 48) / ICMP_CHUNK + 1; i++) {
		if (off >= end)
			break;
		left = end - off;
		if (left >= ICMP_CHUNK) {
			if (bpf_skb_load_bytes(ctx, off, chunk, ICMP_CHUNK))
				return -1;
			sum = bpf_csum_diff(0, 0, (void *)chunk, ICMP_CHUNK, sum);
			off += ICMP_CHUNK;
			continue;
		}
		opaque(left);
		left &= ICMP_CHUNK - 1;
		/* An odd last byte counts with a zero behind it. */
		*(__u32 *)(chunk + (left & (ICMP_CHUNK - 4))) = 0;
		at_least_one(left);
		if (bpf_skb_load_bytes(ctx, off, chunk, left))
			return -1;
		off += left;
		left = (left + 3) & ~3U;
		at_most(left, ICMP_CHUNK);
		sum = bpf_csum_diff(0, 0, (void *)chunk, left, sum);
	}
	return sum;
}

/*
 * If the packet at `l3` has left its TCP or UDP checksum to a device, that will be written into the quote of it. What is quoted from
 * the first byte that is summed (*from) on adds up to the inverse of what the field holds now (*rest), then. `proto` is at offset l4.
 */
static __always_inline int icmp_unfinished(ctx_t *ctx, __u32 proto, __u32 l4, __u32 *rest)
{
	__u32 field = l4 + (proto == 6 ? 16 : 6);
	__u16 now;

	/* Nobody will write into the packets of a replay. */
	if (weir_replay || (proto != 6 && proto != 17))
		return 0;
	if (bpf_skb_load_bytes(ctx, field, &now, sizeof(now)))
		return 0;
	*rest = ~now & 0xffff;
	return ctx_is_unfinished(ctx, field + ctx_beside(ctx));
}

/*
 * Turns the packet in hand, whose IP header is at offset 14 of the data (a tag lies beside them), into an error. Returns 1 if it is the error now;
 * 0: it could not be made, and the packet is of no more use. A packet that was to be cut is quoted as it was: one segment of it is never seen here.
 */
static __noinline int icmp_error(ctx_t *ctx, struct icmp_error *e)
{
	__u32 v6 = e->family == 6, head = v6 ? 48 : 28, quote = e->ip_len, len = ctx_word(ctx, len), l4, proto, rest = 0, i;
	struct {
		__u16 pad;
		__u8 l2[14];
		__u8 ip[48];
	} h = {};
	__u8 *icmp = h.ip + 20;
	__u64 pseudo = 0;
	int unfinished;
	__s64 sum;

	if (quote > (v6 ? ICMP_QUOTE6 : ICMP_QUOTE4))
		quote = v6 ? ICMP_QUOTE6 : ICMP_QUOTE4;
	if (len < 14 + quote)
		return 0;
	if (bpf_skb_load_bytes(ctx, 0, e->l2, 14) || bpf_skb_load_bytes(ctx, 14, h.ip, 20))
		return 0;
	l4 = v6 ? 40 : (h.ip[0] & 15) * 4;
	proto = v6 ? h.ip[6] : h.ip[9];
	if (v6 && bpf_skb_load_bytes(ctx, 14 + 8, e->to, 16))
		return 0;
	if (!v6)
		e->to[0] = *(__u32 *)(h.ip + 12);
	unfinished = icmp_unfinished(ctx, proto, 14 + l4, &rest);
	__builtin_memcpy(h.l2, e->l2 + 6, 6);
	__builtin_memcpy(h.l2 + 6, e->l2, 6);
	__builtin_memcpy(h.l2 + 12, e->l2 + 12, 2);
	if (bpf_skb_change_tail(ctx, 14 + quote, 0))
		return 0;
	/* 1 is BPF_ADJ_ROOM_MAC. */
	if (bpf_skb_adjust_room(ctx, head, 1, 0))
		return 0;
	if (v6) {
		*(__u32 *)h.ip = bpf_htonl(6U << 28);
		*(__u16 *)(h.ip + 4) = bpf_htons(8 + quote);
		h.ip[6] = 58;
		h.ip[7] = ICMP_ERROR_TTL;
#pragma unroll
		for (i = 0; i < 4; i++) {
			*(__u32 *)(h.ip + 8 + i * 4) = e->from[i];
			*(__u32 *)(h.ip + 24 + i * 4) = e->to[i];
			pseudo += (__u64)e->from[i] + e->to[i];
		}
		pseudo += bpf_htons(8 + quote);
		pseudo += bpf_htons(58);
		icmp = h.ip + 40;
	} else {
		*(__u16 *)h.ip = bpf_htons(0x4500 | (h.ip[1] & 0x1e) | ICMP_PRECEDENCE);
		*(__u16 *)(h.ip + 2) = bpf_htons(28 + quote);
		*(__u32 *)(h.ip + 4) = 0;
		*(__u16 *)(h.ip + 8) = bpf_htons(ICMP_ERROR_TTL << 8 | 1);
		*(__u16 *)(h.ip + 10) = 0;
		*(__u32 *)(h.ip + 12) = e->from[0];
		*(__u32 *)(h.ip + 16) = e->to[0];
#pragma unroll
		for (i = 0; i < 5; i++)
			pseudo += *(__u32 *)(h.ip + i * 4);
		*(__u16 *)(h.ip + 10) = ~csum_fold(pseudo);
		pseudo = 0;
	}
	icmp[0] = e->type;
	icmp[1] = e->code;
	*(__u32 *)(icmp + 4) = bpf_htonl(e->word);
	/* Only the header of the quote where its rest is known; the ICMP header is summed here. */
	sum = icmp_sum(ctx, 14 + head, 14 + head + (unfinished ? l4 : quote));
	if (sum < 0)
		return 0;
	pseudo += sum + rest * unfinished;
	pseudo += *(__u16 *)icmp;
	pseudo += *(__u32 *)(icmp + 4);
	*(__u16 *)(icmp + 2) = ~csum_fold(pseudo);
	if (bpf_skb_store_bytes(ctx, 0, h.l2, 14, 0))
		return 0;
	if (v6)
		return !bpf_skb_store_bytes(ctx, 14, h.ip, 48, BPF_F_RECOMPUTE_CSUM);
	return !bpf_skb_store_bytes(ctx, 14, h.ip, 28, BPF_F_RECOMPUTE_CSUM);
}

#else

/* Returns 1 if the packet is the error now; 0: it could not be made, and the packet is of no more use. Its length is another one. */
static __noinline int icmp_error(ctx_t *ctx, struct icmp_error *e)
{
	__u32 l3 = e->l3, v6 = e->family == 6, head = v6 ? 48 : 28, quote = e->ip_len, len = ctx_len(ctx), total, i;
	struct finish_state *sum;
	__u8 *data, *end, *ip;
	__u64 pseudo = 0;
	__u16 check;
	__u8 tos;

	if (l3 != 14 && l3 != 18)
		return 0;
	if (quote > (v6 ? ICMP_QUOTE6 : ICMP_QUOTE4))
		quote = v6 ? ICMP_QUOTE6 : ICMP_QUOTE4;
	if (len < l3 + quote)
		return 0;
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	if (data + 18 > end)
		return 0;
	__builtin_memcpy(e->l2, data + 6, 6);
	__builtin_memcpy(e->l2 + 6, data, 6);
	__builtin_memcpy(e->l2 + 12, data + 12, 6);
	if (l3 == 14)
		ip = data + 14;
	else
		ip = data + 18;
	/* As short as a frame can be: 34 bytes, without a tag and with nothing behind the header. */
	if (ip + 20 > end)
		return 0;
	tos = ip[1];
	if (v6) {
		if (ip + 24 > end)
			return 0;
#pragma unroll
		for (i = 0; i < 4; i++)
			e->to[i] = *(__u32 *)(ip + 8 + i * 4);
	} else {
		e->to[0] = *(__u32 *)(ip + 12);
	}
	/* A change of nothing is asked for, too: the helper takes it. */
	if (bpf_xdp_adjust_tail(ctx, (int)(l3 + quote) - (int)len))
		return 0;
	if (bpf_xdp_adjust_head(ctx, -(int)head))
		return 0;
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	if (data + 18 + 28 > end)
		return 0;
	__builtin_memcpy(data, e->l2, 14);
	if (l3 == 14) {
		ip = data + 14;
	} else {
		__builtin_memcpy(data + 14, e->l2 + 14, 4);
		ip = data + 18;
	}
	total = head + quote;
	if (v6) {
		if (ip + 48 > end)
			return 0;
		*(__u32 *)ip = bpf_htonl(6U << 28);
		*(__u16 *)(ip + 4) = bpf_htons(8 + quote);
		ip[6] = 58;
		ip[7] = ICMP_ERROR_TTL;
#pragma unroll
		for (i = 0; i < 4; i++) {
			*(__u32 *)(ip + 8 + i * 4) = e->from[i];
			*(__u32 *)(ip + 24 + i * 4) = e->to[i];
			pseudo += (__u64)e->from[i] + e->to[i];
		}
		pseudo += bpf_htons(8 + quote);
		pseudo += bpf_htons(58);
		ip += 40;
	} else {
		*(__u16 *)ip = bpf_htons(0x4500 | (tos & 0x1e) | ICMP_PRECEDENCE);
		*(__u16 *)(ip + 2) = bpf_htons(total);
		*(__u32 *)(ip + 4) = 0;
		*(__u16 *)(ip + 8) = bpf_htons(ICMP_ERROR_TTL << 8 | 1);
		*(__u16 *)(ip + 10) = 0;
		*(__u32 *)(ip + 12) = e->from[0];
		*(__u32 *)(ip + 16) = e->to[0];
#pragma unroll
		for (i = 0; i < 5; i++)
			pseudo += *(__u32 *)(ip + i * 4);
		*(__u16 *)(ip + 10) = ~csum_fold(pseudo);
		pseudo = 0;
		ip += 20;
	}
	if (ip + 8 > end)
		return 0;
	ip[0] = e->type;
	ip[1] = e->code;
	*(__u16 *)(ip + 2) = 0;
	*(__u32 *)(ip + 4) = bpf_htonl(e->word);
	sum = finish_sum(ctx, l3 + head - 8, l3 + total);
	if (!sum)
		return 0;
	check = ~csum_fold(pseudo + sum->sum);
	return !ctx_store(ctx, l3 + head - 6, &check, sizeof(check));
}

#endif

/* 1 if another error may be sent at `now_ns`: `interval_ns` apart on average, `burst_ns` ahead at most. Shared by all CPUs. */
static __always_inline int icmp_error_due(__u64 *word, __u64 now_ns, __u64 interval_ns, __u64 burst_ns)
{
	__u64 ahead = *word, next = (ahead > now_ns ? ahead : now_ns) + interval_ns;

	if (next > now_ns + burst_ns)
		return 0;
	return __sync_val_compare_and_swap(word, ahead, next) == ahead;
}

#endif
