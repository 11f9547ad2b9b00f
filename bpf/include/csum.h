/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Internet checksums (RFC 1071) and their update (RFC 1624, equation 3), in
 * host order of big-endian 16-bit words. The exact arithmetic is ABI: it is stated in
 * docs/semantics.md section 4, and engines are compared byte for byte.
 */
#ifndef WEIR_CSUM_H
#define WEIR_CSUM_H

static __always_inline __u32 csum_fold(__u64 x)
{
	x = (x & 0xffffffff) + (x >> 32);
	x = (x & 0xffff) + ((x >> 16) & 0xffff) + (x >> 32);
	x = (x & 0xffff) + (x >> 16);
	x = (x & 0xffff) + (x >> 16);
	return x;
}

/* 0xffff0000 is 0 modulo 0xffff and larger than any sum here, so that the difference stays positive. */
#define CSUM_ZERO 0xffff0000ULL

/* The inverted checksum h after a sum o of old words became n. */
static __always_inline __u16 csum_update(__u16 h, __u32 o, __u32 n)
{
	if (o == n)
		return h;
	return ~csum_fold((~h & 0xffffU) + n + (CSUM_ZERO - o));
}

/* The same for the plain sum of a pseudo-header, as an unfinished packet carries it. */
static __always_inline __u16 csum_update_plain(__u16 h, __u32 o, __u32 n)
{
	if (o == n)
		return h;
	return csum_fold(h + n + (CSUM_ZERO - o));
}

/* Sum of the two 16-bit words of a 32-bit word in host order. */
static __always_inline __u32 csum_halves(__u32 w)
{
	return (w >> 16) + (w & 0xffff);
}

#endif
