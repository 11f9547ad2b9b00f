/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The part of the contract that function `decapsulate` and its control side share. */
#ifndef WEIR_ABI_DECAPSULATE_H
#define WEIR_ABI_DECAPSULATE_H

/* An end of tunnels, host order: as struct head has addresses. */
struct weir_tunnel_end {
	__u64 high, low;
	__u32 family;		/* 4 or 6 */
	__u32 pad;
};

/* Where tunnels may begin, in the order of a trie. */
struct weir_tunnel_from {
	__u32 bits;		/* 32 and those of the address */
	__u32 family;
	__u8 address[16];	/* network order; IPv4: the first four bytes */
};

#define WEIR_DC_IPIP		(1 << 0)	/* IPv4 or IPv6 right behind the outer header */
#define WEIR_DC_GUE		(1 << 1)
#define WEIR_DC_FROM		(1 << 2)	/* where tunnels begin is looked at */

#endif
