/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The part of the contract that function `balancer` and its control side share: services, servers, the ring, remembered
 * flows. crates/weir-bpf/src/abi/balancer.rs mirrors it. What this means: docs/design/balancer.md.
 */
#ifndef WEIR_ABI_BALANCER_H
#define WEIR_ABI_BALANCER_H

#define WEIR_LB_WAYS		8	/* flows of a bucket: a cache line */
#define WEIR_LB_QUOTA		4	/* ... and those of them that were not confirmed */
#define WEIR_LB_CHUNK		32768	/* places of an element of `ring` */
#define WEIR_LB_CPUS		256	/* CPUs that servers of this host may be on */
#define WEIR_LB_ECHO		0xffffffff	/* number of a service: an address whose echo requests are answered */

/* How packets get to servers. */
#define WEIR_LB_IPIP		0
#define WEIR_LB_GUE		1	/* without a header of its own: version 1 */
#define WEIR_LB_GUE0		2	/* with 4 bytes of header: version 0 */
#define WEIR_LB_NAT		3
#define WEIR_LB_DSR		4

#define WEIR_LB_S_QUIC		(1 << 0)	/* of a service: server ids stand in connection ids */
#define WEIR_LB_S_DROP		(1 << 1)	/* of a service, for user space: it has no server while all are down */

/* What becomes of a server. */
#define WEIR_LB_NONE		0	/* no server has this number */
#define WEIR_LB_UP		1
#define WEIR_LB_DRAIN		2	/* keeps its flows, gets no new ones */
#define WEIR_LB_GONE		3	/* removed; the number is kept from being given again as long as there are others */

/* How a server is reached. */
#define WEIR_LB_D_MAC		(1 << 0)	/* by this MAC address; else it goes on by the default output */
#define WEIR_LB_D_PORT		(1 << 1)	/* out of port `to` of the edge; else out of the device it came in by */
#define WEIR_LB_D_CPU		(1 << 2)	/* to the stack, on this CPU */

/* A place where services are looked for. Host order. */
struct weir_lb_key {
	__u64 high, low;	/* address, as struct head has it */
	__u16 port;		/* 0: any */
	__u8 protocol;
	__u8 family;		/* 4 or 6 */
	__u32 pad;
};

/* The same for prefixes, in the order of a trie. */
struct weir_lb_prefix {
	__u32 bits;		/* 32 and those of the address */
	__u8 protocol;
	__u8 family;
	__u16 port;		/* network order */
	__u8 address[16];	/* network order; IPv4: the first four bytes */
};

struct weir_lb_service {
	__u32 number;
	__u32 identity;		/* the same in its servers */
	__u32 ring_first;	/* place in `ring` */
	__u32 ring_size;	/* 0: no server takes new flows */
	__u8 mode;
	__u8 flags;		/* WEIR_LB_S_* */
	__u8 id_bytes;		/* QUIC: of a server's id, behind the first byte of a connection id */
	__u8 pad;
};

/* One cache line. */
struct weir_lb_server {
	__u64 identity;		/* of service, address and port; 0: none */
	__u32 service;		/* identity of its service */
	__u8 state;
	__u8 mode;
	__u8 deliver;		/* WEIR_LB_D_* */
	__u8 family;
	__u8 address[16];	/* network order; IPv4: the first four bytes */
	__u16 port;		/* network order; 0: it stays */
	__u16 to;
	__u8 mac[6];
	__u8 from[6];		/* source MAC; all 0: where the packet was sent to */
	__u32 service_number;
	__u32 cpu;
	__u32 gone_at;		/* of servers that are gone: later ones have higher numbers */
	__u16 other_port;	/* host order; GUE: where tunnels go; NAT: the port that its packets come from, 0: any */
	__u16 weight;		/* its part of the ring, for user space; 0: it gets no new flows, whether it answers or not */
};

/* NAT: the service that a server's packets belong to, by the key of its address and port. */
struct weir_lb_back {
	__u8 address[16];	/* of the service, network order */
	__u16 port;		/* network order; 0: it stays */
	__u16 pad;
	__u32 server;
};

/*
 * A remembered flow: tag, state, number of its server, time it was last seen. 0: free.
 * Fragments are remembered in the same way, by what tells their datagram from others.
 */
#define WEIR_LB_TAG		35	/* from this bit on */
#define WEIR_LB_STATE		32	/* three bits */
#define WEIR_LB_SERVER		16	/* sixteen bits */
#define WEIR_LB_TIME		32	/* nanoseconds are shifted by so much: units of 4.3 s */

#define WEIR_LB_NEW		1	/* one packet, or opening packets only */
#define WEIR_LB_TCP		2
#define WEIR_LB_UDP		3
#define WEIR_LB_CLOSING		4	/* TCP FIN or RST was seen */
#define WEIR_LB_TOWARDS		5	/* of fragments: to the server */
#define WEIR_LB_FROM		6	/* ... and from it */
#define WEIR_LB_STATES		8

struct weir_lb_bucket {
	__u64 entry[WEIR_LB_WAYS];
};

/* What a service or a server counts on one CPU. */
struct weir_lb_count {
	__u64 packets;
	__u64 bytes;		/* frame bytes, as received */
	__u64 flows;		/* that began */
	__u64 pad;
};

#define WEIR_LB_F_ENCAP		(1 << 0)	/* there are services of this mode */
#define WEIR_LB_F_NAT		(1 << 1)
#define WEIR_LB_F_PREFIX	(1 << 2)	/* there are services of prefixes */
#define WEIR_LB_F_ANY_PORT	(1 << 3)	/* there are services of all ports */
#define WEIR_LB_F_QUIC		(1 << 4)
#define WEIR_LB_F_CPU		(1 << 5)
#define WEIR_LB_F_UNKNOWN	(1 << 6)	/* answers of flows that are not remembered are translated, too */

#endif
