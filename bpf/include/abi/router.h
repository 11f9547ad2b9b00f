/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the router shares with its Rust half: interfaces, routes, the tables in
 * which they are found (docs/design/router.md). Part of abi.h.
 */
#ifndef WEIR_ABI_ROUTER_H
#define WEIR_ABI_ROUTER_H

#define WEIR_RT_INTERFACES	64	/* of an instance, a power of two */
#define WEIR_RT_LOW		1024	/* indexes of devices that need no hash */
#define WEIR_RT_CHUNK		65536	/* words of an element of `root4`, `root6` and `nodes` */
#define WEIR_RT_NODE		256	/* words of a node */
#define WEIR_RT_BUCKETS		256	/* of a group of next hops */

/* An interface of the router: a port, or a VLAN of it. */
struct weir_interface {
	__u32 ifindex;		/* as the host's tables know it; where there is no host, weir's number of the port */
	__u16 port;		/* weir's number; 0: there is no such interface */
	__u16 vlan;		/* tag of its packets, 0: untagged */
	__u32 mtu;		/* 0: no limit */
	__u8 mac[6];		/* zeros: every unicast address is its own */
	__u16 pad;
	__u32 address4;		/* as in packets; source of ICMP errors, 0: none */
	__u32 pad2;
	__u8 address6[16];
};

/* A word of the tables. 0: no route. */
#define WEIR_RT_DEEPER	(1U << 31)	/* the low bits are the number of a node for the next 8 bits */
#define WEIR_RT_GROUP	(1U << 30)	/* ... of a group */
#define WEIR_RT_NUMBER	((1U << 24) - 1)	/* ... of a next hop, or of a route where routes are counted */

enum weir_next_hop_kind {
	WEIR_NH_NONE = 0,
	WEIR_NH_GATEWAY = 1,	/* to `address` */
	WEIR_NH_LINK = 2,	/* to the destination itself */
	WEIR_NH_LOCAL = 3,	/* to the host */
	WEIR_NH_BLACKHOLE = 4,
	WEIR_NH_UNREACHABLE = 5,
	WEIR_NH_PROHIBIT = 6,
};

/* One cache line. */
struct weir_next_hop {
	__u8 kind;		/* enum weir_next_hop_kind */
	__u8 family;		/* of address: 4 or 6 */
	__u16 interface;	/* number */
	__u32 mtu;		/* of the route, 0: that of the interface */
	__u8 address[16];	/* as in packets */
	__u8 mac[6];		/* given by configuration; zeros: resolved */
	__u16 pad;
	__u32 pad2[8];
};

/* Next hops that share a route: by hash of the flow. */
struct weir_group {
	__u16 hop[WEIR_RT_BUCKETS];
};

/* A route, for who edits the tables; packets do not look at it. */
struct weir_route {
	__u8 address[16];	/* as in packets */
	__u8 len;		/* of the prefix */
	__u8 family;		/* 4 or 6; 0: free */
	__u8 origin;		/* who brought it: enum weir_route_origin */
	__u8 pad;
	__u32 to;		/* next hop, or WEIR_RT_GROUP and a group */
	__u32 metric;
	__u32 pad2;
};

enum weir_route_origin {
	WEIR_RO_CONFIGURED = 0,
	WEIR_RO_COMMAND = 1,
	WEIR_RO_KERNEL = 2,
};

/* Features of a router. */
#define WEIR_RF_OWN		(1 << 0)	/* tables of its own; else the kernel's */
#define WEIR_RF_VLAN		(1 << 1)	/* some interface is a VLAN */
#define WEIR_RF_STRICT		(1 << 2)	/* reverse path: the interface must be the one packets to the source take */
#define WEIR_RF_LOOSE		(1 << 3)	/* reverse path: there must be a route */
#define WEIR_RF_ERRORS		(1 << 4)	/* answers by ICMP errors itself */
#define WEIR_RF_SILENT		(1 << 5)	/* drops instead; with neither, the stack answers */
#define WEIR_RF_MACS		(1 << 6)	/* frames to other stations are forwarded by their address */
#define WEIR_RF_COUNT_ROUTES	(1 << 7)
#define WEIR_RF_WIDE		(1 << 8)	/* the root of IPv4 has 2^24 words, else 2^16 */

#endif
