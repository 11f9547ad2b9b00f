/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Gives a packet that quick_parse() has read another source or destination, address and port, with RFC 1624 updates. Of fragments that
 * are not the first, the address alone.
 *
 * On XDP packets are finished before (finish.h), so that there is one kind of checksum. On tc a checksum that the sender left to its device
 * stays left to it, and skb->csum follows what is written in place (ctx_tc.h says in which states a socket buffer can be). It need not where
 * an ICMP error is translated: what changes in it, its own checksum and that of the IPv4 header take back.
 */
#ifndef WEIR_NAT_H
#define WEIR_NAT_H

#define NAT_SRC		0
#define NAT_DST		1

/* Sum of the 16-bit words of an address as it lies in a packet. */
static __always_inline __u32 nat_sum(__u8 *address, __u32 family)
{
	__u32 sum = csum_halves(be32_at(address));

	if (family == 6)
		sum += csum_halves(be32_at(address + 4)) + csum_halves(be32_at(address + 8)) + csum_halves(be32_at(address + 12));
	return sum;
}

#ifdef WEIR_HOOK_TC

/* Words behind the Ethernet header that summed to o were written in place, and sum to n now. */
static __always_inline void nat_written(ctx_t *ctx, __u32 o, __u32 n)
{
	if (o != n)
		bpf_csum_update(ctx, bpf_htons(csum_fold(n + (CSUM_ZERO - o))));
}

static __always_inline __u32 nat_long(__u64 word)
{
	return csum_halves(word >> 32) + csum_halves((__u32)word);
}

/* Whether the sender left the TCP or UDP checksum to its device: it is the plain sum of the pseudo-header then. */
static __always_inline int nat_unfinished(ctx_t *ctx, struct head *h)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *check;
	__u32 off = h->l4, proto = h->kind & 255, have;
	__u64 sum = proto + h->ip_end - h->l4;

	if (!off || h->kind & WEIR_KIND_FRAGMENT || (proto != IPPROTO_TCP && proto != IPPROTO_UDP))
		return 0;
	off += proto == IPPROTO_TCP ? 16 : 6;
	opaque(off);
	off &= 511;
	check = data + off;
	if (check + 2 > end)
		return 0;
	have = be16_at(check);
	if (!have && proto == IPPROTO_UDP)
		return 0;
	if (ctx_segments(ctx) > 1)
		return 1;
	sum += nat_long(h->src_high) + nat_long(h->src_low) + nat_long(h->dst_high) + nat_long(h->dst_low);
	return have == csum_fold(sum) && ctx_is_unfinished(ctx, off + ctx_beside(ctx));
}

#else

static __always_inline void nat_written(ctx_t *ctx, __u32 o, __u32 n)
{
}

static __always_inline int nat_unfinished(ctx_t *ctx, struct head *h)
{
	return 0;
}

#endif

/* `port`: network order, 0: it stays. Returns QUICK_OK or a reason. */
static __always_inline int nat(ctx_t *ctx, struct head *h, const __u32 which, __u8 *address, __u16 port)
{
	__u32 l3 = h->l3, off = h->l4, old, new, proto = h->kind & 255, unfinished = nat_unfinished(ctx, h);
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip, *at, *l4, *check;
	__u32 old_address, new_address, was = 0, is = 0;

	opaque(l3);
	l3 &= 31;
	ip = data + l3;
	new = nat_sum(address, h->family);
	if (h->family == 4) {
		if (ip + 20 > end)
			return WEIR_R_head_split;
		at = ip + 12 + which * 4;
		old = nat_sum(at, 4);
		*(__u32 *)at = *(__u32 *)address;
		*(__be16 *)(ip + 10) = bpf_htons(csum_update(be16_at(ip + 10), old, new));
	} else {
		if (ip + 40 > end)
			return WEIR_R_head_split;
		at = ip + 8 + which * 16;
		old = nat_sum(at, 6);
		*(__u32 *)at = *(__u32 *)address;
		*(__u32 *)(at + 4) = *(__u32 *)(address + 4);
		*(__u32 *)(at + 8) = *(__u32 *)(address + 8);
		*(__u32 *)(at + 12) = *(__u32 *)(address + 12);
	}
	old_address = old;
	new_address = new;
	/* In IPv4 the header's checksum takes it back. */
	if (h->family == 6) {
		was = old;
		is = new;
	}
	if (!off)
		goto out;
	opaque(off);
	off &= 511;
	l4 = data + off;
	if (l4 + 8 > end)
		return WEIR_R_head_split;
	if (port) {
		old += be16_at(l4 + which * 2);
		new += bpf_ntohs(port);
		*(__be16 *)(l4 + which * 2) = port;
	}
	if (proto == IPPROTO_TCP) {
		if (l4 + 20 > end)
			return WEIR_R_head_split;
		check = l4 + 16;
	} else if (proto == IPPROTO_UDP && *(__be16 *)(l4 + 6)) {
		check = l4 + 6;
	} else {
		was += old - old_address;
		is += new - new_address;
		goto out;
	}
	if (unfinished) {
		*(__be16 *)check = bpf_htons(csum_update_plain(be16_at(check), old_address, new_address));
		return QUICK_OK;
	}
	/* It takes back what the port changed, and what the address did once more. */
	was += new_address;
	is += old_address;
	old = csum_update(be16_at(check), old, new);
	/* 0 would say that there is none (RFC 768). */
	if (proto == IPPROTO_UDP && !old)
		old = 0xffff;
	*(__be16 *)check = bpf_htons(old);
out:
	nat_written(ctx, was, is);
	return QUICK_OK;
}

/*
 * The same for an ICMP error whose quote, at `quote`, is of a packet that came from the address the error goes to (NAT_DST), or that went to
 * the address the error comes from (NAT_SRC): error and quote get `address`, and the quoted packet `port` on that side. With `is_between` the error is of a
 * station on the way, whose address stays. Checksums of quoted TCP and UDP packets are updated as far as they are quoted.
 */
static __always_inline int nat_quote(ctx_t *ctx, struct head *h, const __u32 which, __u32 quote, __u32 is_between, __u8 *address, __u16 port)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip, *q, *at, *in, *l4;
	__u32 l3 = h->l3, outer, old, new = nat_sum(address, h->family), was, is, is6 = h->family == 6, i, off, proto;

	opaque(l3);
	l3 &= 31;
	ip = data + l3;
	opaque(quote);
	quote &= 1023;
	q = data + quote;
	if (is6) {
		if (ip + 40 > end || q + 48 > end)
			return WEIR_R_head_split;
		at = ip + 8 + which * 16;
		in = q + 24 - which * 16;
		outer = nat_sum(at, 6);
		old = nat_sum(in, 6);
#pragma unroll
		for (i = 0; i < 16; i += 4) {
			if (!is_between)
				*(__u32 *)(at + i) = *(__u32 *)(address + i);
			*(__u32 *)(in + i) = *(__u32 *)(address + i);
		}
		/* Once in the quote, once in the pseudo-header. */
		was = old;
		is = new;
		if (!is_between) {
			was += outer;
			is += new;
		}
		proto = q[6];
		off = quote + 40;
	} else {
		if (ip + 20 > end || q + 20 > end)
			return WEIR_R_head_split;
		at = ip + 12 + which * 4;
		in = q + 16 - which * 4;
		if (!is_between) {
			outer = nat_sum(at, 4);
			*(__u32 *)at = *(__u32 *)address;
			*(__be16 *)(ip + 10) = bpf_htons(csum_update(be16_at(ip + 10), outer, new));
		}
		old = nat_sum(in, 4);
		*(__u32 *)in = *(__u32 *)address;
		was = old + be16_at(q + 10);
		*(__be16 *)(q + 10) = bpf_htons(csum_update(be16_at(q + 10), old, new));
		is = new + be16_at(q + 10);
		proto = q[9];
		off = quote + (q[0] & 15) * 4;
	}
	opaque(off);
	off &= 1023;
	l4 = data + off;
	if (l4 + 8 > end)
		return WEIR_R_head_split;
	if (port) {
		at = l4 + 2 - which * 2;
		was += be16_at(at);
		old += be16_at(at);
		*(__be16 *)at = port;
		is += be16_at(at);
		new += be16_at(at);
	}
	if (proto == IPPROTO_UDP) {
		was += be16_at(l4 + 6);
		if (*(__be16 *)(l4 + 6)) {
			old = csum_update(be16_at(l4 + 6), old, new);
			*(__be16 *)(l4 + 6) = bpf_htons(old ? old : 0xffff);
		}
		is += be16_at(l4 + 6);
	} else if (proto == IPPROTO_TCP && off + 18 <= h->ip_end && l4 + 18 <= end) {
		was += be16_at(l4 + 16);
		*(__be16 *)(l4 + 16) = bpf_htons(csum_update(be16_at(l4 + 16), old, new));
		is += be16_at(l4 + 16);
	}
	/* The checksum of the error itself, six bytes in front of the quote. */
	quote -= 6;
	opaque(quote);
	quote &= 1023;
	l4 = data + quote;
	if (l4 + 2 > end)
		return WEIR_R_head_split;
	*(__be16 *)l4 = bpf_htons(csum_update(be16_at(l4), was, is));
	return QUICK_OK;
}

#endif
