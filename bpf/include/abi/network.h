/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the functions of virtual networks share with their Rust half
 * (docs/design/network.md). Part of abi.h.
 *
 * Everything that configuration says lies in plain arrays that have two halves, one for generations with an even number and one for
 * those with an odd one: an index is that of a record plus the half's beginning, `half * (entries of the map / 2)`. Record 0 of each is nobody's.
 */
#ifndef WEIR_ABI_NETWORK_H
#define WEIR_ABI_NETWORK_H

#define WEIR_NET_PROGRAMS	4096	/* slots of the program array of an edge's networks */
#define WEIR_NET_LENGTHS	8	/* lengths of prefixes that routes of one router and family may have */
#define WEIR_NET_CALLS		32	/* calls a packet may take before it is recirculated: the kernel allows 33 in all */
#define WEIR_NET_ROUNDS		16	/* times it may be recirculated */

/* Slots of the program array. Instances with programs of their own have those from WEIR_NS_PRIVATE on. */
enum weir_net_slot {
	WEIR_NS_NOWHERE = 0,	/* no program is ever put there */
	WEIR_NS_DEVICE = 1,	/* out of a workload's device: the panel does that itself */
	WEIR_NS_BRIDGE = 2,
	WEIR_NS_ROUTER = 3,
	WEIR_NS_TUNNEL = 4,	/* to another edge */
	WEIR_NS_FLOOD = 5,	/* copies for the members of a bridge */
	WEIR_NS_STEER = 6,	/* into and out of service chains */
	WEIR_NS_PUNT = 7,	/* to a process */
	WEIR_NS_EMPTY = 8,	/* counts and goes on */
	WEIR_NS_REFUSE = 9,	/* tells who sent what a router does not send on */
	WEIR_NS_PRIVATE = 16,
};

/* A virtual interface, by its VID. One cache line. */
struct weir_vi {
	__u32 peer;		/* VID of the interface that it is linked to, 0: to none */
	__u32 slot;		/* of the program of the peer's function */
	__u32 onward;		/* of a function with two interfaces: what comes in here leaves there */
	__u32 instance;		/* record of its function: of bridges, routers, tunnels, chains */
	__u32 device;		/* slot is WEIR_NS_DEVICE: index of the device that packets leave by; of a workload's own interface: where they come from */
	__u32 flags;		/* WEIR_VF_* */
	__u32 tenant;		/* its number; 0 is none */
	__u16 mtu;		/* of packets that leave here: bytes behind the Ethernet header, 0: no limit */
	__u16 vlan;		/* of a bridge: tag that packets have inside of it, 0: untagged */
	__u8 mac[6];		/* of a router's interface; of a workload: the only one it may use unless WEIR_VF_ANY_MAC */
	__u16 room;		/* of a router's interface: bytes that tunnels add beyond it; of a function with two: 1 for `a`, 2 for `b` */
	__u32 address4;		/* as in packets: of a router's interface; of a workload, the first it may use. 0: none */
	__u32 address6[4];	/* ... ; of a function with two: what `onward` says, so that it need not be read (WEIR_ON_*) */
	__u32 state;		/* stays the same as long as the interface exists, whatever its VID */
};

#define WEIR_ON_PEER	0	/* its peer; 0: a device or nothing follows, or this was not written */
#define WEIR_ON_SLOT	1	/* its slot */

#define WEIR_VF_ANY_MAC		(1 << 0)	/* a workload may use any source MAC address */
#define WEIR_VF_ANY_ADDRESS	(1 << 1)	/* ... any source IP address */
#define WEIR_VF_MORE_ADDRESSES	(1 << 2)	/* more than the two of its record: WEIR_EX_ADDRESS */
#define WEIR_VF_LEARN		(1 << 3)	/* of a bridge: source MAC addresses that come in here are learned */
#define WEIR_VF_TRUNK		(1 << 4)	/* of a bridge: packets keep their tags; `vlan` is the one of untagged ones */
#define WEIR_VF_TUNNEL		(1 << 5)	/* leads to other edges: what comes in here does not leave by another such one */
#define WEIR_VF_PEER		(1 << 6)	/* the device is a veth whose other end lies in another namespace */
#define WEIR_VF_EXTERNAL	(1 << 7)	/* a device that is no workload: a way out of the virtual network */
#define WEIR_VF_DHCP		(1 << 8)	/* of a bridge: what DHCP clients send in here goes to the helper */
#define WEIR_VF_PUNT		(1 << 9)	/* of a punt function; `instance` is its record in net_punts */
#define WEIR_VF_MAY_RA		(1 << 10)	/* a workload may send router advertisements and redirects */
#define WEIR_VF_MAY_DHCP	(1 << 11)	/* ... what DHCP servers send to clients */

/*
 * A cell of the table of exact matches. A key lies in one of two buckets of WEIR_EX_WAYS cells. scope 0: empty.
 * Addresses are those of IPv6, IPv4 ones as ::ffff:a.b.c.d, both words as in packets.
 *
 * The buckets of a key are the low and the high half of h, each masked to the number of buckets, a power of two (exact.h, modulo 2^64):
 *	h = (SEED ^ key[0]) * FIRST;  h ^= key[1] ^ scope;  h ^= h >> 32;  h *= SECOND;  h ^= h >> 29;  h *= FIRST;  h ^= h >> 32
 */
struct weir_exact {
	__u32 value;
	__u32 scope;		/* enum weir_exact_kind << 28 | instance << 8 | length of a prefix */
	__u64 key[2];
	__u64 extra;
};

#define WEIR_EX_WAYS		2
#define WEIR_EX_KIND		28
#define WEIR_EX_INSTANCE	8
#define WEIR_EX_SEED		0x51ed270b9f3ca6d5ULL
#define WEIR_EX_FIRST		0x9e3779b97f4a7c15ULL
#define WEIR_EX_SECOND		0xbf58476d1ce4e5b9ULL

enum weir_exact_kind {
	WEIR_EX_DEVICE = 1,	/* key: {index of a device, 0}; value: VID of the workload's interface */
	WEIR_EX_STATION = 2,	/* of a bridge; key: {MAC address << 16 as a number | vlan, 0}; value: VID of the bridge that leads there; extra: remote, 0: none */
	WEIR_EX_NEIGHBOUR = 3,	/* of a router; key: address; value: VID of the router, 0: the address is its own; extra: MAC address */
	WEIR_EX_ROUTE = 4,	/* of a router; key: masked address; value: first record of hops; extra: how many */
	WEIR_EX_ARP = 5,	/* of a bridge; key: address; extra: MAC address that ARP and ND are answered with */
	WEIR_EX_ADDRESS = 6,	/* key: address; value: 1; instance: VID of the workload that may use it, too */
	WEIR_EX_PEER = 7,	/* key: address of another edge; value: its remote */
	WEIR_EX_TUNNEL = 8,	/* key: {identifier, 0}; value: VID of the tunnel's interface */
	WEIR_EX_MEMBER = 9,	/* key: {identifier, remote}; value: 1: packets of it may come from there */
	WEIR_EX_VLAN = 10,	/* of a bridge's interface with WEIR_VF_TRUNK, by its VID as instance; key: {VLAN, 0}; value: 1: it carries that one */
	WEIR_EX_LOCAL = 11,	/* key: address of this edge that tunnels end at; value: 1 */
	WEIR_EX_GROUP = 12,	/* of a security group; length: WEIR_ELEMENT_IP4 or _IP6; key: address of a member; value: 1 */
};

/* A bridge. */
struct weir_net_bridge {
	__u32 members, n_members;	/* run of the array of lists: VIDs that packets for all go to, tunnels excepted */
	__u32 remotes, n_remotes;	/* ... : remotes that they go to by `tunnel` */
	__u32 tunnel;		/* VID towards other edges, 0: none */
	__u32 storm;		/* packets for all that one interface may send a second, 0: no limit */
	__u32 age;		/* seconds that what was learned lasts without a packet */
	__u32 learned, learned_mask;	/* first record of `net_learned`, and number of them - 1; 0: learns nothing */
	__u32 flags;		/* WEIR_BF_* */
	__u32 tenant;
	__u32 state;
	__u32 pad[4];
};

#define WEIR_BF_CLOSED		(1 << 0)	/* packets for stations that nobody knows are dropped, not flooded: all stations are declared */

/* A router of a virtual network. */
struct weir_net_router {
	__u8 length4[WEIR_NET_LENGTHS];	/* of prefixes, longest first, + 1; as bits of an IPv6 address (IPv4: 96 more); 0: no more */
	__u8 length6[WEIR_NET_LENGTHS];
	__u32 learned, learned_mask;	/* neighbours that nobody declared */
	__u32 flags;
	__u32 tenant;
	__u32 state;
	__u32 pad[7];
};

/* A way that routes take. */
struct weir_net_hop {
	__u32 kind;		/* enum weir_net_hop_kind */
	__u32 vid;		/* of the router's interface */
	__u32 gateway[4];	/* WEIR_NH_GATEWAY: address, as in packets; IPv4 as ::ffff:a.b.c.d */
	__u8 mac[6];		/* of the gateway; zeros: it is to be learned */
	__u16 pad;
};

/* Another edge. One cache line. */
struct weir_net_remote {
	__u8 family;		/* of the underlay: 4 or 6; 0: none */
	__u8 kind;		/* enum weir_tunnel_kind that is sent */
	__u16 port;		/* of UDP */
	__u32 device;		/* index of the device of the underlay; of WEIR_TK_KERNEL the tunnel's device */
	__u32 local[4];		/* addresses as in packets; IPv4: the first word */
	__u32 address[4];
	__u16 mtu;		/* of the underlay: bytes behind the Ethernet header */
	__u16 accepts;		/* bits 1 << enum weir_tunnel_kind that are taken from there */
	__u32 state;		/* number that stays: counters */
	__u32 pad[4];
};

#define WEIR_TA_NO_TENANT	(1 << 15)	/* of `accepts`: Geneve from there need not name the tenant */

enum weir_tunnel_kind {
	WEIR_TK_VXLAN = 1,
	WEIR_TK_GENEVE = 2,
	WEIR_TK_GRE = 3,	/* transparent Ethernet bridging with a key */
	WEIR_TK_KERNEL = 4,	/* VXLAN, by a device of the kernel */
};

/* A segment or link that reaches other edges: record of a tunnel's interface. */
struct weir_net_tunnel {
	__u32 identifier;	/* on the wire, 24 bits */
	__u32 tenant;
	__u32 remote;		/* the only one it has; 0: who sends says which one */
	__u32 pad;
};

/*
 * Where packets go that come in by an interface of what leads into and out of a chain: record by the interface's `instance`.
 * Selected IP packets leave by one of the ways, always the same for a flow and its answers (spread.h); everything else goes `onward`.
 */
struct weir_net_steer {
	__u32 ways, n_ways;	/* run of the array of lists: VIDs of its own; none: all goes onward */
	__u32 selections, n_selections;	/* run of what is selected; none: all IP packets */
};

/* Packets of one kind: those for which all of this holds. Addresses and masks as in packets, IPv4 as ::ffff:a.b.c.d. */
struct weir_net_selection {
	__u64 source[2], source_mask[2];
	__u64 target[2], target_mask[2];
	__u16 source_low, source_high;	/* ports, host order */
	__u16 target_low, target_high;
	__u8 protocol;		/* of IP, behind extension headers; 0: any */
	__u8 ports;		/* 1: ports are looked at; later fragments, which have none, are not selected */
	__u8 pad[6];
};

/* What becomes of packets that come in by an interface of a punt function: record by the interface's `instance`. */
struct weir_net_punt {
	__u32 selections, n_selections;	/* run of what goes to the helper unless an installed flow takes it; none: all IP packets */
	__u32 rate;		/* packets a second that may go to the helper, 0: no limit */
	__u32 pad;
};

/* What goes to the helper and comes from it, by VID of the interface. Stays from generation to generation. */
struct weir_net_punted {
	__u64 heard_ns;		/* when who listens last said so; 0: nobody does */
	__u64 window;		/* second << 32 | packets of that second */
	__u64 punted;		/* packets that were handed over */
	__u64 injected;		/* packets that came back or were made there */
};

/* In front of a packet in the ring `net_ring`. */
struct weir_net_record {
	__u64 time_ns;
	__u64 generation;
	__u32 vid;		/* of the interface that it came in by */
	__u32 tenant;
	__u32 len;		/* of the frame, which follows, with its tag */
	__u16 unfinished;	/* offset of a checksum that is the plain pseudo-header's so far; 0: none */
	__u16 l4;		/* of the header that it is in */
};

/* Behind a packet that a helper sends: into the far end of the pair for recirculation. */
struct weir_net_inject {
	__u64 generation;	/* that the VID is of */
	__u32 vid;		/* of the interface that it leaves by */
	__u32 magic;
};

#define WEIR_NI_MAGIC		0x70756e74
#define WEIR_PUNT_MAX		9216		/* bytes of a frame that is handed over */
#define WEIR_PUNT_HEARD_NS	2000000000	/* who says nothing for so long listens no more */
#define WEIR_PUNT_DHCP_RATE	16		/* packets of DHCP clients a second, of one interface */

/* An installed flow: key. Addresses as in packets, IPv4 as ::ffff:a.b.c.d. */
struct weir_net_flow_key {
	__u64 source[2], target[2];
	__u32 vid;		/* of the interface that it comes in by */
	__u16 from, to;		/* ports, host order; 0: of protocols and fragments that have none */
	__u8 protocol;
	__u8 pad[7];
};

/* ... and what becomes of it. */
struct weir_net_flow {
	__u32 action;		/* enum weir_net_flow_action */
	__u32 vid;		/* FORWARD: of the interface that it leaves by */
	__u64 idle_ns;		/* without a packet for so long it is as if it were not there; 0: it stays */
	__u64 seen_ns;
	__u64 packets;
	__u64 bytes;
};

enum weir_net_flow_action {
	WEIR_FA_FORWARD = 1,
	WEIR_FA_DROP = 2,
};

/* What was learned: a station of a bridge, or a neighbour of a router. */
struct weir_net_learned {
	__u64 key[2];		/* as of WEIR_EX_STATION or WEIR_EX_NEIGHBOUR; key[0] all ones: being written */
	__u64 extra;
	__u32 vid;
	__u32 seen;		/* coarse seconds; 0: free */
};

/* What came in by an interface, by its VID and CPU. */
struct weir_net_count {
	__u64 packets;		/* on the wire: a GSO packet is several */
	__u64 bytes;
	__u64 dropped;		/* of them by the function that they came in to */
	__u64 pad;
};

/* A packet's way through networks as the programs of a chain share it, one for each CPU. */
struct weir_net_chain {
	__u32 vid;		/* of the interface that it came in by to the function that has it */
	__u32 half;		/* of its generation: 0 or 1 */
	__u32 place;		/* where it comes from: WEIR_CW_* */
	__u32 calls;		/* of programs, since it was last recirculated */
	__u32 rounds;		/* of recirculation */
	__u32 remote;		/* that it is for, of packets to a tunnel */
	__u32 origin;		/* VID of the workload or tunnel that it came in by */
	__u32 mark;		/* what functions tell those behind them */
	__u32 cause;		/* to WEIR_NS_REFUSE: enum weir_net_cause << 16 | MTU */
	__u32 reason;		/* ... why it is dropped if its sender cannot be told */
	__u64 generation;
	__u64 number;		/* of the packet among those of this CPU */
};

/* What the sender of a packet is told. */
enum weir_net_cause {
	WEIR_NE_EXPIRED = 1,
	WEIR_NE_NO_ROUTE = 2,
	WEIR_NE_UNREACHABLE = 3,
	WEIR_NE_PROHIBITED = 4,
	WEIR_NE_TOO_BIG = 5,
};

/* The word that says which generation holds. */
struct weir_net_edge {
	__u64 generation;
};

/* What drops are counted by, beside the ledger of the program. */
struct weir_net_drop {
	__u32 vid;		/* of the interface that the packet came in by */
	__u32 reason;
};

/* cb of a socket buffer that is on its way through the recirculation device. */
#define WEIR_CB_VID		0	/* where it goes on */
#define WEIR_CB_WHERE		1	/* WEIR_CW_* | rounds << 8 */
#define WEIR_CB_REMOTE		2
#define WEIR_CB_PORT		3	/* VID of the workload or tunnel it came in by */
#define WEIR_CB_MAGIC		4

#define WEIR_CW_HALF		(1 << 0)	/* of its generation */
#define WEIR_CW_TUNNEL		(1 << 1)	/* it came from another edge */
#define WEIR_CW_SHOWN		(1 << 2)	/* ICMP of a workload: leaves by devices themselves, where who listens there sees it */
#define WEIR_CW_PROBE		(1 << 3)	/* asks whether somebody has an address that is not its sender's: for the bridge alone */
#define WEIR_CB_IS_OURS		0x77656972

#endif
