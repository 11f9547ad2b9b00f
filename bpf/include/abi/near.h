/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Next hops and the devices behind which they are: what functions that send
 * packets by themselves (router, balancer) share. Part of abi.h.
 */
#ifndef WEIR_ABI_NEAR_H
#define WEIR_ABI_NEAR_H

/* Where packets to a next hop go, as one CPU knows it. */
struct weir_near {
	__u32 until;		/* coarse time in units of 2^30 ns until which it holds; 0: never asked */
	__u16 port;		/* weir's number of the port out; 0: not known how to get there */
	__u16 interface;	/* of a router */
	__u8 to[6], from[6];	/* link-layer addresses */
	__u16 mtu;		/* of the way there, 0: not known */
	__u16 pad;
};

/* By index of a device: its port. */
struct weir_port_at {
	__u16 port;		/* weir's number */
	__u16 interface;	/* of a router: number + 1 */
	__u32 mtu;
};

#endif
