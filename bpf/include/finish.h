/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Completes TCP and UDP checksums that a local sender left to the device, for packets that leave weir by another way than the
 * stack: TX, REDIRECT to a device, cpumap, AF_XDP. Nothing behind those finishes them: the mark that asks for it (skb->ip_summed) is
 * gone once the frame is an XDP frame.
 *
 * Usage: `finish(ctx)` right before such a verdict; needs ctx.h and csum.h. Where weir_csum_mode is
 * WEIR_CSUM_COMPLETE no instruction of it is left, on tc there is none (the kernel keeps the mark).
 *
 * A packet is unfinished if its checksum field holds the plain sum of the pseudo-header (DESIGN section 5: one complete packet in 65,536
 * looks like that, too). Invariants: only the two bytes of the checksum change; a packet that is finished, a fragment, malformed, or
 * neither TCP nor UDP does not change at all.
 */
#ifndef WEIR_FINISH_H
#define WEIR_FINISH_H

#ifdef WEIR_HOOK_TC

static __always_inline int finish(ctx_t *ctx)
{
	return 0;
}

#else

/* The same definitions as in parse.h, which not every function needs. */
#define ETH_P_IP	0x0800
#define ETH_P_8021Q	0x8100
#define ETH_P_IPV6	0x86dd
#define ETH_P_8021AD	0x88a8
#define ETH_P_QINQ1	0x9100
#define IPPROTO_HOPOPTS		0
#define IPPROTO_TCP		6
#define IPPROTO_UDP		17
#define IPPROTO_ROUTING		43
#define IPPROTO_FRAGMENT	44
#define IPPROTO_AH		51
#define IPPROTO_ICMPV6		58
#define IPPROTO_DSTOPTS		60
#define IPPROTO_MH		135

#define FINISH_CHUNK	512	/* most that bpf_csum_diff takes at once (Linux 6.1: MAX_BPF_STACK) */

/* The sum under way. In a map, so that the verifier walks the loop once. */
struct finish_state {
	__u32 off, end;		/* what is still to be summed */
	__u32 sum;		/* ... or, before that, the number of the header at off */
	__u32 pad;
	__u8 bytes[FINISH_CHUNK];	/* of chunks that are not whole, or not linear */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct finish_state);
} weir_finish SEC(".maps");

struct finish_walk {
	ctx_t *ctx;
	struct finish_state *s;
};

/* Adds the next chunk. */
static long finish_chunk(__u32 i, void *arg)
{
	struct finish_walk *w = arg;
	struct finish_state *s = w->s;
	__u8 *data = (void *)(long)w->ctx->data, *end = (void *)(long)w->ctx->data_end;
	__u32 off = s->off, left = s->end - off;

	if (left < FINISH_CHUNK)
		goto rest;
	if (off > CTX_REACH)
		return 1;
	s->off = off + FINISH_CHUNK;
	/* The verifier draws no bound of a packet from an offset that may end past 65,535. */
	if (off <= CTX_REACH - FINISH_CHUNK && data + off + FINISH_CHUNK <= end) {
		s->sum = bpf_csum_diff(0, 0, (void *)(data + off), FINISH_CHUNK, s->sum);
		return 0;
	}
	if (ctx_load(w->ctx, off, s->bytes, FINISH_CHUNK))
		return 1;
	s->sum = bpf_csum_diff(0, 0, (void *)s->bytes, FINISH_CHUNK, s->sum);
	return 0;
rest:
	asm volatile("" : "+r"(left));
	left &= FINISH_CHUNK - 1;
	/* An odd last byte counts with a zero behind it. */
	*(__u32 *)(s->bytes + (left & ~3U)) = 0;
	if (ctx_load(w->ctx, off, s->bytes, left))
		return 1;
	s->off = off + left;
	left = (left + 3) & ~3U;
	asm volatile("" : "+r"(left));
	if (left > FINISH_CHUNK)
		return 1;
	s->sum = bpf_csum_diff(0, 0, (void *)s->bytes, left, s->sum);
	return 1;
}

/* Sums the bytes of the packet from off up to end into the state, which it returns; 0: they could not be read. Not inlined: bpf_loop's callback has one call site. */
static __noinline struct finish_state *finish_sum(ctx_t *ctx, __u32 off, __u32 end)
{
	struct finish_walk w = { .ctx = ctx };
	__u32 zero = 0;

	w.s = bpf_map_lookup_elem(&weir_finish, &zero);
	if (!w.s)
		return 0;
	w.s->off = off;
	w.s->end = end;
	w.s->sum = 0;
	bpf_loop((end - off) / FINISH_CHUNK + 1, finish_chunk, &w, 0);
	return w.s->off == end ? w.s : 0;
}

/* Where the TCP or UDP header of a packet lies and how long it is with its payload; 0 if the packet has none or is a fragment. */
struct finish_l4 {
	__u32 off, len;
	__u32 proto;
	__u64 pseudo;		/* sum of the pseudo-header, in the byte order of the packet */
};

static __always_inline int finish_find_ip4(__u8 *data, __u8 *end, struct finish_l4 *l4)
{
	__u8 *ip = data + l4->off;
	__u32 ihl, total;

	if (ip + 20 > end)
		return 0;
	ihl = (ip[0] & 15) * 4;
	total = bpf_ntohs(*(__be16 *)(ip + 2));
	if (ip[0] >> 4 != 4 || ihl < 20 || total < ihl || *(__be16 *)(ip + 6) & bpf_htons(0x3fff))
		return 0;
	l4->proto = ip[9];
	l4->off += ihl;
	l4->len = total - ihl;
	l4->pseudo = (__u64)*(__u32 *)(ip + 12) + *(__u32 *)(ip + 16);
	return 1;
}

/* One IPv6 extension header at off; the packet ends at end, sum is the number of what comes next. Stops where TCP or UDP may be. */
static long finish_extension(__u32 i, void *arg)
{
	struct finish_walk *w = arg;
	struct finish_state *s = w->s;
	__u8 *data = (void *)(long)w->ctx->data, *end = (void *)(long)w->ctx->data_end, *eh;
	__u32 off = s->off, len;

	if (off > CTX_REACH / 2)
		return 1;
	eh = data + off;
	if (eh + 8 > end)
		return 1;
	len = (eh[1] + 1) * 8;
	switch (s->sum) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
	case IPPROTO_MH:
		break;
	case IPPROTO_AH:
		len = (eh[1] + 2) * 4;
		break;
	case IPPROTO_FRAGMENT:
		len = 8;
		/* Only a packet in one piece goes on. */
		if (*(__be16 *)(eh + 2) & bpf_htons(0xfff9))
			return 1;
		break;
	default:
		return 1;
	}
	s->sum = eh[0];
	s->off = off + len;
	return 0;
}

static __always_inline int finish_find_ip6(struct finish_walk *w, __u8 *data, __u8 *end, struct finish_l4 *l4)
{
	__u8 *ip = data + l4->off;
	struct finish_state *s;
	__u32 i, zero = 0, l4_end;

	if (ip + 40 > end || ip[0] >> 4 != 6)
		return 0;
	l4->len = bpf_ntohs(*(__be16 *)(ip + 4));
	l4->proto = ip[6];
	l4->pseudo = 0;
#pragma unroll
	for (i = 0; i < 8; i++)
		l4->pseudo += *(__u32 *)(ip + 8 + i * 4);
	l4->off += 40;
	if (l4->proto == IPPROTO_TCP || l4->proto == IPPROTO_UDP)
		return 1;
	if (l4->proto == IPPROTO_ICMPV6)
		return 0;
	s = bpf_map_lookup_elem(&weir_finish, &zero);
	if (!s)
		return 0;
	w->s = s;
	s->off = l4->off;
	s->sum = l4->proto;
	l4_end = l4->off + l4->len;
	bpf_loop(WEIR_EH_MAX, finish_extension, w, 0);
	l4->off = s->off;
	if (l4->off > l4_end)
		return 0;
	l4->len = l4_end - l4->off;
	l4->proto = s->sum;
	return 1;
}

/* Not inlined: bpf_loop's callback has one call site, whatever stands around it. Returns 1 if it finished the packet. */
static __noinline int finish_unfinished(ctx_t *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *at;
	struct finish_l4 l4 = { .off = 14 };
	struct finish_walk w = { .ctx = ctx };
	struct finish_state *sum;
	__u32 i, found, off;
	__u16 type, have;

	if (data + 14 > end)
		return 0;
	type = *(__be16 *)(data + 12);
#pragma unroll
	for (i = 0; i < WEIR_VLAN_MAX; i++) {
		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD) && type != bpf_htons(ETH_P_QINQ1))
			break;
		at = data + l4.off;
		if (at + VLAN_BYTES > end)
			return 0;
		type = *(__be16 *)(at + 2);
		l4.off += VLAN_BYTES;
	}
	if (type == bpf_htons(ETH_P_IP))
		found = finish_find_ip4(data, end, &l4);
	else if (type == bpf_htons(ETH_P_IPV6))
		found = finish_find_ip6(&w, data, end, &l4);
	else
		return 0;
	if (!found)
		return 0;
	off = l4.off;
	if (off > CTX_REACH / 2)
		return 0;
	/* Once more on the register that is added: Linux 6.1 loses the bound where the compiler compares a copy. */
	asm volatile("" : "+r"(off));
	off &= CTX_REACH / 2;
	at = data + off;
	if (l4.proto == IPPROTO_TCP) {
		if (l4.len < 20 || at + 20 > end)
			return 0;
		i = 16;
		have = *(__u16 *)(at + 16);
	} else if (l4.proto == IPPROTO_UDP) {
		if (l4.len < 8 || at + 8 > end)
			return 0;
		i = 6;
		have = *(__u16 *)(at + 6);
		if (!have)
			return 0;
	} else {
		return 0;
	}
	if (have != (__u16)csum_fold(l4.pseudo + bpf_htons(l4.len) + bpf_htons(l4.proto)))
		return 0;
	if (l4.off + l4.len > ctx_len(ctx))
		return 0;
	/* The field holds the pseudo-header's sum, so summing over it adds that. */
	sum = finish_sum(ctx, l4.off, l4.off + l4.len);
	if (!sum)
		return 0;
	have = ~csum_fold(sum->sum);
	/* As the kernel does (CSUM_MANGLED_0): a UDP checksum of zero would mean "none" (RFC 768). */
	if (!have)
		have = 0xffff;
	return !ctx_store(ctx, l4.off + i, &have, sizeof(have));
}

/* Finishes the packet if it is not and came in by a port where that happens; must come before its verdict sends it. Returns 1 if it changed it. */
static __always_inline int finish(ctx_t *ctx)
{
	if (!ctx_may_be_unfinished(ctx) || !ctx_is_unfinished(ctx, 0))
		return 0;
	return finish_unfinished(ctx);
}

#endif

#endif
