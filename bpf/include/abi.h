/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The one contract between the data plane and the control program: map keys
 * and values, flat key, reasons, load-time constants. crates/weir-bpf/src/abi.rs
 * mirrors it; a test compares both through the objects' BTF.
 *
 * Words of the flat key hold packet bytes in network order; everything else is
 * in host order. Little-endian hosts only (checked below).
 */
#ifndef WEIR_ABI_H
#define WEIR_ABI_H

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the data plane is written for little-endian hosts"
#endif

/* ---- sizes ---- */
#define WEIR_FRAME_MIN		14	/* Ethernet header */
#define WEIR_FRAME_MAX		65549	/* Ethernet header and the largest IP packet */
#define WEIR_VLAN_MAX		4	/* tags a frame may have */
#define WEIR_EH_MAX		8	/* IPv6 extension headers */
#define WEIR_EH_BYTES		256	/* ... and their length in all */
#define WEIR_WINDOW		160	/* header bytes read at first: 14 + 4 tags + 60 + 60, rounded up */
#define WEIR_WINDOW_EH		400	/* ... when there are extension headers */
#define WEIR_KEY_WORDS		58	/* flat key, 64-bit words */
#define WEIR_SLOTS		16	/* TCP option kinds whose values a policy may test */
#define WEIR_PROBE_WORDS	8	/* words of a table's mask */
#define WEIR_DIMS		8	/* 16-bit pieces of the key that decide which tables are probed */
#define WEIR_HITS		64	/* matched rules with rewrites or log lines, a packet */
#define WEIR_OPTS		20	/* TCP options a header can hold */
#define WEIR_VALUE_MAX		64	/* bytes of a literal */
#define WEIR_PREFIX_MAX		32	/* log prefix with its NUL */
#define WEIR_REASONS		128	/* room in the counter array */
#define WEIR_SNAP		96	/* bytes of the packet in an event */
#define WEIR_FLOW_RULES		15	/* stateful rules a connection can have */
#define WEIR_WAYS		15	/* connections of a bucket of the index */
#define WEIR_NAT_WAYS		7	/* ... of the index by translated tuple */
#define WEIR_FRAG_WAYS		4	/* remembered fragments of a bucket */
#define WEIR_FLOW_STATES	18	/* time-outs: states of connections, and others */
#define WEIR_STATE_LAYOUT	2	/* version of the maps that outlive a program: of connections, counters, and the ledger with its reasons' order */
#define WEIR_LIVE_TABLES	32	/* tables that live edits may add */

/* ---- reasons, from the one list ---- */
enum weir_reason {
#define REASON(name, fate, text) WEIR_R_##name,
#define ALIAS(old, name)
#include "reasons.def"
#undef ALIAS
#undef REASON
	WEIR_R_MAX,
	WEIR_NO_REASON = WEIR_R_MAX,
};

/* ---- flat key: byte offsets of its parts ---- */
enum weir_key_at {
	WEIR_K_VALID = 0,	/* u64 in host order: WEIR_V_* */
	WEIR_K_IN = 8,		/* be16 weir's port number */
	WEIR_K_OUT = 10,	/* be16 weir's number of the port the packet leaves by, 0: not known here */
	WEIR_K_QUEUE = 12,	/* be16 receive queue */
	WEIR_K_ETHER = 14,	/* be16 EtherType behind the last tag */
	WEIR_K_VLAN = 16,	/* be16 TCI of the outermost tag */
	WEIR_K_VLAN2 = 18,	/* be16 TCI of the second tag */
	WEIR_K_L4PROTO = 20,	/* u8 1 if there is an IP header, u8 the protocol behind it and its extensions (WEIR_F_L4PROTO) */
	WEIR_K_CT = 22,		/* be16 WEIR_CT_*, 0: none (WEIR_F_CT) */
	WEIR_K_IP4 = 24,	/* 20 bytes as in the packet */
	WEIR_K_MARK = 44,	/* be32 (WEIR_F_META) */
	WEIR_K_IP6 = 48,	/* 40 bytes as in the packet */
	WEIR_K_L4 = 88,		/* 20 bytes of TCP, 8 of UDP, ICMP, ICMPv6, and of others with WEIR_V_PORTS */
	WEIR_K_PRIORITY = 108,	/* be32 (WEIR_F_META) */
	WEIR_K_FRAG6 = 112,	/* 8 bytes of the last IPv6 fragment header */
	WEIR_K_IP4OPT = 120,	/* 256 bits: IPv4 option types present */
	WEIR_K_TCPOPT = 152,	/* 256 bits: TCP option kinds present (not 0, 1) */
	WEIR_K_SLOT = 184,	/* WEIR_SLOTS * 16: u8 length of the value, 7 zero bytes, be64 number */
	WEIR_K_MAC = 440,	/* destination and source address, 12 bytes (WEIR_F_MAC) */
	WEIR_K_SETS = 452,	/* 32 bits: sets that have addresses of the packet, else zero (WEIR_F_SETS) */
	WEIR_K_CLOCK = 456,	/* be32 second of the day, be16 day of the week from Sunday, 2 zero bytes (WEIR_F_CLOCK) */
	WEIR_K_END = 464,	/* WEIR_KEY_WORDS * 8 */
};

/* valid bits: what the packet has. The first eight are the header classes. */
#define WEIR_V_IP4		(1ULL << 0)
#define WEIR_V_IP6		(1ULL << 1)
#define WEIR_V_TCP		(1ULL << 2)
#define WEIR_V_UDP		(1ULL << 3)
#define WEIR_V_ICMP		(1ULL << 4)
#define WEIR_V_ICMP6		(1ULL << 5)
#define WEIR_V_VLAN		(1ULL << 6)
#define WEIR_V_VLAN2		(1ULL << 7)
#define WEIR_V_FRAG		(1ULL << 8)
#define WEIR_V_FRAG_FIRST	(1ULL << 9)
#define WEIR_V_FRAG_LATER	(1ULL << 10)
#define WEIR_V_IP4OPT		(1ULL << 11)
#define WEIR_V_TCPOPT		(1ULL << 12)
#define WEIR_V_FRAG6		(1ULL << 13)	/* an IPv6 fragment header was walked */
#define WEIR_V_EH		(1ULL << 14)	/* any extension header */
#define WEIR_V_PORTS		(1ULL << 15)	/* TCP, UDP; with WEIR_F_PORTS UDP-Lite, SCTP, DCCP */
#define WEIR_V_EH_HOPBYHOP	(1ULL << 16)
#define WEIR_V_EH_ROUTING	(1ULL << 17)
#define WEIR_V_EH_FRAGMENT	(1ULL << 18)
#define WEIR_V_EH_ESP		(1ULL << 19)
#define WEIR_V_EH_AH		(1ULL << 20)
#define WEIR_V_EH_DESTOPT	(1ULL << 21)
#define WEIR_V_EH_MOBILITY	(1ULL << 22)
#define WEIR_V_EH_HIP		(1ULL << 23)
#define WEIR_V_EH_SHIM6		(1ULL << 24)
#define WEIR_V_SLOT		32		/* first of WEIR_SLOTS bits: the option of slot i is present */

/* What a packet has to do with connections: `ct-state`, docs/semantics.md section 7. */
#define WEIR_CT_INVALID		1
#define WEIR_CT_ESTABLISHED	2
#define WEIR_CT_RELATED		4
#define WEIR_CT_NEW		8
#define WEIR_CT_UNTRACKED	64

/* ---- classifier ---- */

/* One mask over the flat key: up to WEIR_PROBE_WORDS words of it. */
struct weir_table {
	__u32 n_words;
	__u32 pad;
	__u8 word[WEIR_PROBE_WORDS];	/* index into the key, 0 with mask 0 when unused */
	__u64 mask[WEIR_PROBE_WORDS];
};

/* A bucket of the index: rules with the same masked key. All zeros when empty. */
struct weir_slot {
	__u64 hash;		/* of table and masked words */
	__u32 first;		/* index of the first rule, or the root of a tree */
	__u32 what;		/* number of rules, table + 1, and whether it is a tree */
};

#define WEIR_SLOT_COUNT		18	/* low bits of what: number of rules */
#define WEIR_SLOT_TABLE		13	/* bits above them: table + 1 */
#define WEIR_SLOT_TREE		31	/* this bit: a tree */

#define WEIR_HASH_SEED		0x51ed270b9f3ca6d5ULL
#define WEIR_HASH_TABLE		0x9e3779b97f4a7c15ULL
#define WEIR_HASH_WORD		0xbf58476d1ce4e5b9ULL
#define WEIR_HASH_END		0x94d049bb133111ebULL

/* Slots that share a cache line, filled from the first on. A bucket that finds its first cell full lies in its second. */
struct weir_cell {
	struct weir_slot slot[4];
};

/* A node of a tree over the values of one field, for buckets of many ranges. */
struct weir_node {
	__u64 pivot[2];		/* values below (high, low half) are on the left */
	__u32 left, right;	/* nodes, 0: none */
	__u32 first, count;	/* rules here: a run of the list array */
	__u32 field;		/* a condition on the field */
	__u32 pad;
};

/* For 32 values of a piece of the key: which bitmap of tables, from the first one of the piece. */
struct weir_dim {
	__u16 row[32];
};

#define WEIR_RULE_DROP		(1 << 0)	/* drops, always or as below says */
#define WEIR_RULE_ACCEPT	(1 << 1)
#define WEIR_RULE_RANDOM	(1 << 2)	/* drop when random < drop_param */
#define WEIR_RULE_RATE		(1 << 3)	/* drop when above the rate */
#define WEIR_RULE_HIT		(1 << 4)	/* has rewrites or log lines: goes to the hit list */
#define WEIR_RULE_STATEFUL	(1 << 5)	/* matches packets that open connections */
#define WEIR_RULE_ACCEPT_ICMP	(1 << 6)	/* accepts, and names the type of ICMP or ICMPv6 */
#define WEIR_RULE_MAPPING	(1 << 7)	/* its connections have mappings that do not depend on who is sent to */
#define WEIR_RULE_FILTER_ADDRESS (1 << 8)	/* ... to which addresses may send that were sent to */
#define WEIR_RULE_FILTER_NONE	(1 << 9)	/* ... to which everybody may send */
#define WEIR_RULE_HELPER_TFTP	(1 << 10)	/* its connections are read by the helper of TFTP */
#define WEIR_RULE_ANSWER	(1 << 11)	/* with WEIR_RULE_RATE: always drops, and answers as drop_param says: WEIR_ANSWER_* */
#define WEIR_RULE_QUOTA		(1 << 12)	/* with WEIR_RULE_RATE: the word counts bytes, and drop_param is how many pass */
#define WEIR_RULE_TTL		(1 << 13)	/* decrements the TTL or hop limit */
#define WEIR_RULE_COUNT		(1 << 14)	/* with WEIR_RULE_HIT: limits connections at a time, as WEIR_COUNT_* say */
#define WEIR_RULE_METER		(1 << 15)	/* with WEIR_RULE_RATE: counts addresses apart, as WEIR_METER_* in timeout_ns say */
#define WEIR_RULE_REQUIRES	16	/* from this bit on: header classes */

#define WEIR_ANSWER_RESET	1	/* TCP with a reset */
#define WEIR_ANSWER_ICMP4	8	/* from this bit on: code of the ICMP error */
#define WEIR_ANSWER_ICMP6	16	/* ... of the ICMPv6 error */

/* Two cache lines. Rules of up to four words that neither limit nor rewrite are decided by the first. */
struct weir_rule {
	__u32 shape;		/* index into the shapes: the mask of the whole rule */
	__u32 flags;		/* WEIR_RULE_*, and above WEIR_RULE_REQUIRES the header classes that its rewrites need */
	__u32 id;		/* from 1, never given again: the order of rewrites */
	__u32 slot;		/* index into counters and rates; given again after its rule is gone */
	__u32 cond_first;	/* residual conditions, all must hold */
	__u32 cond_count;
	__u64 dead_from;	/* the generation from which on the rule is deleted, all ones: none yet */
	__u64 value[WEIR_PROBE_WORDS];
	__u32 op_first;
	__u32 op_count;
	__u64 drop_param;	/* WEIR_RULE_RANDOM: drop when random is below, of 2^32; WEIR_RULE_RATE: ns a packet; WEIR_RULE_QUOTA: bytes */
	__u64 rate_limit_ns;	/* how far ahead of now the word may run; WEIR_RULE_COUNT: first bucket above, buckets - 1 below bit 32 */
	__u64 timeout_ns;	/* of connections of this rule, 0: by their state; with WEIR_RULE_METER and _COUNT: WEIR_METER_* */
};

/* Rules added while running: tables behind those of the plan, with cells of their own. */
struct weir_half {
	__u32 table_first;
	__u32 tables;		/* at most WEIR_LIVE_TABLES */
	__u32 cell_first;
	__u32 cells_mask;	/* cells - 1 */
};

/*
 * What of the rules holds. A packet reads `now` once and everything else follows from it, so that one store switches
 * additions and deletions together (docs/design/updates.md). The half that `now` does not name may be written.
 */
struct weir_live {
	__u64 now;		/* generation << 1 | half */
	struct weir_half half[2];
};

/* Where the rule of an id lies in the rule array, + 1, for packets that read each half; 0: there is none. */
struct weir_rule_at {
	__u32 place[2];
};

/* The word by which user space sees that a CPU has left a packet: nesting below, outermost packets left above. */
#define WEIR_DEPTH_MASK		0xff
#define WEIR_DEPTH_LEFT		0x100

enum weir_cond_op {
	WEIR_C_RANGE = 1,	/* number at key offset in [lo, hi] */
	WEIR_C_SET = 2,		/* number at key offset in a run of intervals */
	WEIR_C_OPTION = 3,	/* first len bytes of the option of slot `off` */
	WEIR_C_IP_PAYLOAD = 4,	/* len bytes at `off` of the IP payload */
	WEIR_C_L4_PAYLOAD = 5,	/* len bytes at `off` of the L4 payload */
};

#define WEIR_COND_NEGATED	(1 << 0)

/* A test that the index does not decide. */
struct weir_cond {
	__u8 op;		/* enum weir_cond_op */
	__u8 flags;		/* WEIR_COND_* */
	__u8 width;		/* bytes of the number: 1, 2, 4, 8 or 16 */
	__u8 shift;		/* right shift, then mask (width 16: neither) */
	__u16 off;
	__u16 len;
	__u64 mask;
	__u32 set_first;
	__u32 set_count;
	union {
		struct {
			__u64 lo_high, lo_low, hi_high, hi_low;
		} range;
		__u8 bytes[WEIR_VALUE_MAX];	/* zero padded */
	} u;
};

/* Closed interval of a set; runs are sorted and disjoint. */
struct weir_interval {
	__u64 lo_high, lo_low, hi_high, hi_low;
};

/* ---- rewriting ---- */

enum weir_op_kind {
	WEIR_O_WORD = 1,	/* 32-bit word of a header */
	WEIR_O_IP_PAYLOAD = 2,	/* len bytes at `off` of the IP payload */
	WEIR_O_L4_PAYLOAD = 3,
	WEIR_O_STRIP = 4,	/* kinds of the bit map in u.kinds */
	WEIR_O_SET_OPTION = 5,
	WEIR_O_ADD_OPTION = 6,
	WEIR_O_LOG = 7,		/* u.log */
	WEIR_O_MAP = 8,		/* an element of u.pool, for each connection; base is an enum weir_choice */
	WEIR_O_SHUFFLE = 9,	/* an offset for each connection; base is an enum weir_choice */
	WEIR_O_META = 10,	/* bits of u.word of what `base` names: WEIR_META_* */
	WEIR_O_VLAN_PUSH = 11,	/* a tag with the TCI `off` */
	WEIR_O_VLAN_POP = 12,	/* the outermost tag */
	WEIR_O_TTL = 13,	/* TTL or hop limit less 1 */
	WEIR_O_SET_ADD = 20,	/* an address (base: enum weir_address) into set `off`, for u.timeout_ns */
	WEIR_O_SET_DELETE = 21,	/* out of it */
};

/* What is chosen for a connection. */
enum weir_choice {
	WEIR_D_SADDR = 0,
	WEIR_D_DADDR = 1,
	WEIR_D_SPORT = 2,
	WEIR_D_DPORT = 3,
	WEIR_D_ID = 4,		/* ip-id */
	WEIR_D_LABEL = 5,	/* ip6-flow-label */
	WEIR_D_SEQ = 6,
	WEIR_D_ACK = 7,
};

/* Values to choose from: a run of intervals. */
struct weir_pool {
	__u32 first, count;
	__u64 size;		/* values in all, at most 2^32 */
};

enum weir_base {
	WEIR_B_VLAN = 0,
	WEIR_B_VLAN2 = 1,
	WEIR_B_IP4 = 2,
	WEIR_B_IP6 = 3,
	WEIR_B_L4 = 4,
};

#define WEIR_OP_PSEUDO		(1 << 0)	/* l4_mask bits belong to the pseudo-header, not to L4 */
#define WEIR_OP_LIMITED		(1 << 2)	/* WEIR_O_LOG: u.log has a limit */
#define WEIR_OP_NEXT_HEADER	(1 << 1)	/* ip6-next: in the pseudo-header one byte further, and only without extension headers */

#define WEIR_META_MARK		0	/* base of WEIR_O_META */
#define WEIR_META_PRIORITY	1

struct weir_op {
	__u8 kind;		/* enum weir_op_kind */
	__u8 base;		/* enum weir_base */
	__u8 flags;		/* WEIR_OP_* */
	__u8 option;		/* TCP option kind */
	__u16 off;		/* from the base, multiple of 4 for words */
	__u16 len;
	union {
		struct {
			__u32 mask, value;	/* as in memory */
			__u32 ip_mask;		/* bits that count in the IPv4 checksum, host order of a be32 */
			__u32 l4_mask;		/* bits that count in the L4 checksum, host order of a be32 */
		} word;
		struct {
			__u8 prefix[WEIR_PREFIX_MAX];	/* NUL-terminated */
			__u64 period_ns, limit_ns;	/* WEIR_OP_LIMITED: ns a line, and how far ahead of now the word may run */
			__u32 slot;			/* ... of the word, that of its rule */
		} log;
		__u64 kinds[4];
		struct weir_pool pool;
		__u64 timeout_ns;	/* all ones: for good */
		__u8 bytes[WEIR_VALUE_MAX];	/* zero padded */
	} u;
};

/* ---- connections: docs/design/connections.md ---- */

/* Addresses and ports as in the packet; an IPv4 address is the first four bytes, the rest zero. */
struct weir_tuple {
	__u64 src[2], dst[2];
	__u16 sport, dport;	/* network order */
	__u8 proto;
	__u8 family;		/* 4 or 6 */
	__u16 what;		/* WEIR_TUPLE_* */
};

/* What has a tuple; those of packets are never the others'. */
#define WEIR_TUPLE_PACKET	0
#define WEIR_TUPLE_MAPPING	1	/* any destination */
#define WEIR_TUPLE_PERMISSION	2	/* any port of the destination */
#define WEIR_TUPLE_EXPECTED	3	/* any port of the source */

/* weir_flow.life: sequence number << 32 | flags seen << WEIR_SEEN_AT | one of these. */
#define WEIR_LIFE_FREE		0
#define WEIR_LIFE_CLAIMED	1	/* being written by one CPU */
#define WEIR_LIFE_LIVE		2
#define WEIR_LIFE_MASK		3

/* Flags seen: of the forward side, and WEIR_SEEN_REVERSE bits further of the reverse side. */
#define WEIR_SEEN_AT		8
#define WEIR_SEEN_ANY		(1 << 0)
#define WEIR_SEEN_ACK		(1 << 1)
#define WEIR_SEEN_FIN		(1 << 2)
#define WEIR_SEEN_RST		(1 << 3)
#define WEIR_SEEN_REVERSE	4

/* Behind them: window scales of both sides + 1, 0 if one gave none; whether the connection was opened by no SYN; and what else is known of TCP. */
#define WEIR_SCALE_AT		16
#define WEIR_SCALE_REVERSE	4
#define WEIR_SCALE_MASK		15
#define WEIR_LIFE_PICKED	(1 << 24)
#define WEIR_LIFE_ACKED_FIN	(1 << 25)	/* the forward side acknowledged the FIN of the other; one bit further: the reverse side */
#define WEIR_LIFE_RETRANS_ONE	(1 << 27)	/* segments retransmitted in a row, up to 3 */
#define WEIR_LIFE_RETRANS	0x18000000	/* both bits of that count */
#define WEIR_LIFE_INEXACT	(1 << 29)	/* a side may have sent less than its `end` says */

#define WEIR_FLOW_NAT		(1 << 0)	/* trans differs from orig */
#define WEIR_FLOW_TRANSMIT	(1 << 1)	/* opened on transmit */
#define WEIR_FLOW_ID_SET	(1 << 2)	/* identity is the identification */
#define WEIR_FLOW_ID_MOVED	(1 << 3)	/* identity is added to it */
#define WEIR_FLOW_LABEL_SET	(1 << 4)
#define WEIR_FLOW_LABEL_MOVED	(1 << 5)
#define WEIR_FLOW_SEQUENCE	(1 << 6)	/* sequence numbers are moved */
#define WEIR_FLOW_TIMEOUT	(1 << 7)	/* timeout_ns holds */
#define WEIR_FLOW_MORE		(1 << 8)	/* it has more rules than one */
#define WEIR_FLOW_MAPPED	(1 << 9)	/* it keeps a mapping alive */
#define WEIR_FLOW_INBOUND	(1 << 10)	/* ... with packets of the side that did not open it */
#define WEIR_FLOW_FILTER_ADDRESS (1 << 11)	/* a mapping to which addresses may send that were sent to */
#define WEIR_FLOW_FILTER_NONE	(1 << 12)	/* ... to which everybody may send */
#define WEIR_FLOW_HELPER_TFTP	(1 << 13)	/* the helper of TFTP reads it */
#define WEIR_FLOW_EXPECTED	(1 << 14)	/* a helper let it in (WEIR_F_CT) */
#define WEIR_FLOW_THIRD_LINE	0x7c		/* all of these that need the third cache line */

/*
 * What one side of a TCP connection told, in sequence numbers as they are sent: docs/semantics.md section 7, "Window".
 * Written by packets of that side, as one word.
 */
struct weir_side {
	__u32 end;		/* behind the last byte that it sent */
	__u32 edge;		/* how far it lets the other side send; before the answer, the window of a SYN */
};

/* The record of a mapping or permission, as long as its life has the sequence number. */
struct weir_parent {
	__u32 place;		/* + 1, 0: none */
	__u32 sequence;
};

/*
 * A connection. Its place in the array is bucket * WEIR_WAYS + way of the index. Four cache lines: what every packet
 * needs; what those of TCP and translated ones need; what those of WEIR_FLOW_THIRD_LINE need, and what is looked at rarely.
 */
struct weir_flow {
	__u64 life;
	__u64 last_ns;
	struct weir_tuple orig;
	__u32 what;		/* WEIR_FLOW_* */
	__u32 rule;		/* id of its first rule */

	struct weir_tuple trans;
	struct weir_side side[2];	/* that opened it, and the other */
	__u32 acked[2];		/* the highest number of the other that each acknowledged */

	__u64 timeout_ns;	/* of its rules, 0: none gives one */
	__u32 trans_tag;	/* tag of trans in the index by translated tuple */
	__u32 seq_off, ack_off;
	__u32 identity;		/* identification or flow label, or what is added to it */

	__u64 born_ns;
	__u32 more[WEIR_FLOW_RULES - 1];	/* ids of its other rules, 0 behind the last */

	/* A handshake in a connection that is open already: both hosts may have forgotten that one. */
	__u64 again_ns;		/* when its SYN came; it counts while that is after last_ns */
	__u32 again_end;	/* the SYN's end */
	__u32 again_answer;	/* the end of the SYN with ACK */
	__u16 again_window[2];	/* of both */
	__u8 again_scale[2];	/* of both, + 1 */
	__u8 again_answered;
	__u8 again_pad;
	struct weir_parent mapping;	/* that it keeps alive */
	struct weir_parent permission;
};

/* One cache line of the index by original tuple. Ways are filled from the first on and never emptied. */
struct weir_bucket {
	__u32 version;		/* +1 with every tuple that was put in and has its first choice here */
	__u32 tag[WEIR_WAYS];	/* of the tuple, never 0; 0: never used */
};

/* The same by translated tuple: tag << 32 | place of the connection + 1. */
struct weir_nat_bucket {
	__u32 version;
	__u32 pad;
	__u64 entry[WEIR_NAT_WAYS];
};

#define WEIR_FRAG_END_AT	2	/* weir_frag.kind: enum weir_kind | end of its data in units of 8 bytes << this */

/* A first fragment that passed. */
struct weir_frag {
	__u64 lock;		/* odd: being written */
	__u64 at_ns;
	__u64 src[2], dst[2];
	__u32 id;		/* as in the packet */
	__u8 proto;		/* 0 in IPv6 */
	__u8 family;
	__u16 kind;		/* and the end of its data */
	__u32 flow;		/* place + 1, 0: it belongs to no connection */
	__u32 flow_seq;
};

#define WEIR_HELD_WAYS	4	/* fragments of a bucket, and so of a datagram, that are held */
#define WEIR_HELD_BYTES	2048	/* of a frame */

#define WEIR_HELD_FREE		0
#define WEIR_HELD_WRITING	1	/* one CPU has it */
#define WEIR_HELD_WAITS		2	/* for its first fragment */
#define WEIR_HELD_CALLED	3	/* a copy of the first fragment is on its way for it */

/* A later fragment that came before its first one. */
struct weir_held {
	struct weir_frag key;	/* datagram, and when it came */
	__u32 state;		/* WEIR_HELD_* */
	__u32 len;
	__u8 data[WEIR_HELD_BYTES];
};

/* How a tuple is that of a connection. The low bit is the direction. */
enum weir_kind {
	WEIR_ORIG_DIRECT = 0,
	WEIR_ORIG_REVERSED = 1,
	WEIR_TRANS_DIRECT = 2,
	WEIR_TRANS_REVERSED = 3,
};

/* ---- counters ---- */

struct weir_counter {
	__u64 packets;
	__u64 bytes;
};

/* The ledger of one CPU: received = sum of verdicts when quiet. */
struct weir_stats {
	__u64 received;
	__u64 bytes;
	__u64 verdict[8];		/* by enum xdp_action, and WEIR_NEXT */
	__u64 reason[WEIR_REASONS];
};

#define WEIR_NEXT		5	/* the packet went on to another function */

/* ---- the patch panel: docs/design/graph.md ---- */
#define WEIR_OUTS		8	/* outputs of an instance; 0 is its default output */
#define WEIR_VIDS		2048	/* numbers of instances; 0 is none */
#define WEIR_PORTS		256	/* ports of an edge, by weir's number from 1 */
#define WEIR_PROGRAMS		4096	/* slots of the program array */
#define WEIR_DEVICES		256	/* places of the map of devices */

/* hop.slot from here on: the packet leaves the graph */
#define WEIR_SLOT_STACK		0xfffffff0	/* XDP_PASS */
#define WEIR_SLOT_DROP		0xfffffff1
#define WEIR_SLOT_TX		0xfffffff2
#define WEIR_SLOT_DEVICE	0xfffffff3	/* by hop.vid's place in the map of devices */
#define WEIR_SLOT_NOWHERE	0		/* no program is ever put there */

/* Where a packet goes on. All zeros: nowhere, which is a missed call. */
struct weir_hop {
	__u32 vid;
	__u32 slot;
};

/* The word by which generations are switched. */
struct weir_edge {
	__u64 generation;
};

/*
 * A packet's way through the graph, on the CPU that has it. Programs of an edge do not nest on a CPU, on XDP and on tc: all run with
 * soft interrupts off, and none sends packets before it ends. So there is one.
 * It does not survive a redirect; what must is in struct weir_meta.
 */
struct weir_chain {
	__u32 vid;		/* of the instance that has the packet */
	__u32 port;		/* weir's number of the port it came in by; WEIR_AWAY_TRANSMIT: of the one it is leaving by */
	__u32 csum_mode;	/* of that port: WEIR_CSUM_* */
	__u32 len;		/* bytes of the frame, brought up to date by functions that change it */
	__u32 mark;		/* what functions tell those behind them */
	__u32 passes;		/* over guarded links */
	__u32 hops;		/* functions that let it go on; counted while watched only */
	__u32 watched;		/* equal to the low half of `number`: this packet is watched */
	__u32 base;		/* first link of the generation: links of even and odd ones lie side by side */
	__u32 away;		/* WEIR_AWAY_*: why XDP_TX would not send it back by the device of its port */
	__u64 generation;
	__u64 number;		/* of the packet among those of this CPU */
};

/* weir_chain.away */
#define WEIR_AWAY_RECIRCULATED	(1 << 0)	/* the device that has it is not that of its port */
#define WEIR_AWAY_VETH		(1 << 1)	/* its port is a native veth, whose XDP_TX waits for a program at the far end */
#define WEIR_AWAY_GENERIC	(1 << 2)	/* its port is generic or on tc: no tracepoint tells what devices sent. XDP_TX is right */
#define WEIR_AWAY_TRANSMIT	(1 << 3)	/* its port is the one that it is leaving by: on tc, at egress */

/* The metadata area in front of a frame: what goes with a packet to the stack, to tc, and through recirculation. */
struct weir_meta {
	__u32 magic;		/* WEIR_META_MAGIC */
	__u32 mark;
	__u32 vid;		/* 0 for packets that go to the stack */
	__u32 port;
	__u32 passes;
	__u32 csum_mode;
	__u64 generation;
};

#define WEIR_META_MAGIC		0x72696577	/* "weir" */
#define WEIR_META_HOME		0x656d6f68	/* "home": behind a recirculation: `port` is the index of its device */

/* ---- watching: docs/watching.md ---- */
#define WEIR_WATCH_SNAP		9216	/* most bytes of a packet in an event */
#define WEIR_WATCH_PATH		48	/* hops of a path that are kept */
#define WEIR_WATCH_HEAD		160	/* bytes that the filter looks at, less than WEIR_WATCH_HEAD_ROOM / 2 */
#define WEIR_WATCH_TRANSMIT	(1U << 16)	/* in the port of an event: the packet is on its way out of it */
#define WEIR_WATCH_CODE		(1U << 31)	/* in a reason: the low bits are what somebody's object returned */

/* Where an event is from; bits of weir_watch_want.emit. */
#define WEIR_W_ENTRY		(1 << 0)	/* the packet came in, or came back by recirculation */
#define WEIR_W_ON		(1 << 1)	/* a function let it go on to another one */
#define WEIR_W_END		(1 << 2)	/* it left the graph */
#define WEIR_W_DROP		(1 << 3)	/* ... by being dropped; beside WEIR_W_END */
#define WEIR_W_COPY		(1 << 4)	/* of networks: a copy of it leaves by a device, or goes on; the packet itself stays */

/* What of the filter there is to test. Every test may say yes where it cannot know. */
#define WEIR_WQ_IP4		(1 << 0)
#define WEIR_WQ_IP6		(1 << 1)
#define WEIR_WQ_PROTO		(1 << 2)
#define WEIR_WQ_SADDR		(1 << 3)
#define WEIR_WQ_DADDR		(1 << 4)
#define WEIR_WQ_SPORT		(1 << 5)
#define WEIR_WQ_DPORT		(1 << 6)

/* What is asked for. One watcher at a time; `session` 0: none. */
struct weir_watch_want {
	__u32 session;		/* stands in the events */
	__u32 owner;		/* process that asked */
	__u64 until_ns;		/* monotonic; the watcher pushes it on as long as it lives */
	__u32 emit;		/* WEIR_W_* */
	__u32 vid;		/* events of this instance only, entries apart; 0: of all */
	__u32 sample;		/* of packets that the filter lets by, one in so many */
	__u32 snap;		/* bytes of a packet in an event */
	__u64 ports[4];		/* bit for each weir port */
	__u32 checks;		/* WEIR_WQ_* */
	__u8 proto_v4, proto_v6;
	__u8 pad[2];
	__u8 saddr[16], saddr_mask[16];	/* IPv4: the first four bytes */
	__u8 daddr[16], daddr_mask[16];
	__u16 sport[2], dport[2];	/* first and last */
};

/* One stage of one packet; `snap` bytes of the frame follow. */
struct weir_watch_event {
	__u64 time_ns;		/* monotonic */
	__u64 number;		/* of the packet among those of this CPU */
	__u64 generation;
	__u32 session;
	__u32 cpu;
	__u32 kind;		/* WEIR_W_* */
	__u32 hop;		/* functions that let the packet go on before */
	__u32 vid;		/* the instance; 0: the entry of the port */
	__u32 port;		/* that the packet came in by */
	__u32 verdict;		/* enum xdp_action, WEIR_NEXT */
	__u32 out;		/* the output it took, where it took one */
	__u32 next_vid;		/* WEIR_W_ON: the next instance; else that of struct weir_hop where a link led out */
	__u32 next_slot;	/* 0 where the function ended the packet's way by itself */
	__u32 reason;		/* what the function said: of a drop, WEIR_NO_REASON, or WEIR_WATCH_CODE and a return code */
	__u32 len;		/* of the frame */
	__u32 snap;
	__u32 queue;		/* that it was received by */
	__u16 path[WEIR_WATCH_PATH];	/* of the first functions that let it go on: vid | output << 11; in virtual networks, VIDs of interfaces */
};

/* What was seen of the packets of a CPU. */
struct weir_watch_count {
	__u64 packets;		/* came in while watched */
	__u64 asked;		/* ... and passed filter and sample */
	__u64 events;
	__u64 lost;		/* events that the ring had no room for */
	__u64 turn;		/* of the sample */
};

/* ---- replay and events ---- */

/* What the OS would supply, written by the control program before each packet. */
struct weir_replay {
	__u64 now_ns;
	__u64 random;		/* seed + (number of the frame << 32) */
	__u32 port;
	__u32 queue;
	__u32 mark;		/* of the packet; the program writes both (WEIR_F_META) */
	__u32 priority;
	__u64 wall_ns;		/* since 1970, UTC (WEIR_F_CLOCK); now_ns may be another clock */
};

/* One log line. */
struct weir_event {
	__u64 now_ns;
	__u32 rule;
	__u32 port;
	__u32 len;		/* of the frame */
	__u32 verdict;		/* enum xdp_action */
	__u32 snap;		/* bytes valid in data */
	__u32 pad;
	__u8 prefix[WEIR_PREFIX_MAX];
	__u8 data[WEIR_SNAP];
};

/* ---- redirect ---- */
#define WEIR_TARGETS		64	/* accounts of targets, a power of two */
#define WEIR_TO_ALL		63	/* account of broadcasts: an instance has at most so many devices or CPUs */
#define WEIR_TO_DEVICES		0	/* by map `devices` */
#define WEIR_TO_CPUS		1	/* by map `cpus` */
#define WEIR_TO_SOCKETS		2	/* by map `sockets`, chosen by receive queue */
#define WEIR_SPREAD_FLOW	0	/* by a hash of the flow */
#define WEIR_SPREAD_ROUND	1	/* in turn, each CPU by itself */

/* What the monitor's programs saw (bpf/monitor). A word that does not apply is 0. */
struct weir_seen {
	__u32 event;		/* WEIR_SEEN_* */
	__s32 error;		/* negative errno, 0: none */
	__u32 netns;		/* inode number of the network namespace of the device */
	__u32 from;		/* interface index that the packets came in by */
	__u32 map;		/* id of the map they were redirected by */
	__u32 target;		/* interface index, CPU, or place in the map (ERROR); XDP action (EXCEPTION) */
};

struct weir_seen_count {
	__u64 sent;		/* packets taken */
	__u64 dropped;
};

#define WEIR_SEEN_ERROR		1	/* xdp_redirect_err */
#define WEIR_SEEN_DEVICE	2	/* xdp_devmap_xmit */
#define WEIR_SEEN_ENQUEUE	3	/* xdp_cpumap_enqueue */
#define WEIR_SEEN_CPU		4	/* xdp_cpumap_kthread */
#define WEIR_SEEN_TX		5	/* xdp_bulk_tx */
#define WEIR_SEEN_EXCEPTION	6	/* xdp_exception */
#define WEIR_SEEN_KEYS		4096
/* ---- filter: docs/design/filter.md ---- */
#define WEIR_FILTER_CHUNK	262144	/* bytes of an element of the big tables */
#define WEIR_FILTER_WORDS	16	/* words of a row at most, a power of two */
#define WEIR_FILTER_RULES	1024	/* ... and the rules they stand for */
#define WEIR_FILTER_BLOCKS	16384	/* ... and of the table of IPv4, of which each CPU has its own */
#define WEIR_FILTER_TOP		65536	/* places of a direct table */
#define WEIR_FILTER_SUB		256	/* ... and of one for a part of IPv4 that is crowded */
#define WEIR_FILTER_KINDS	2048	/* protocol, and above it three flags */
#define WEIR_FILTER_HITS	2048	/* counters of an element of `hits` */
#define WEIR_FILTER_LIVES	8	/* times at which what holds for an address may change */
#define WEIR_FILTER_WAYS	4	/* of a bucket of limits, and of blocks */
#define WEIR_FILTER_CPUS	64	/* CPUs that packets may be moved to */

/* Flags of a kind, above the protocol. */
#define WEIR_KIND_IP6		(1 << 8)
#define WEIR_KIND_FRAGMENT	(1 << 9)
#define WEIR_KIND_SYN		(1 << 10)	/* TCP SYN without ACK */

/* What rules do, in the order in which they are asked. */
enum weir_filter_action {
	WEIR_A_ALLOW = 0,
	WEIR_A_DENY = 1,
	WEIR_A_SHED = 2,
	WEIR_A_LIMIT = 3,
	WEIR_A_COOKIE = 4,
};

/* What a limit is counted for. */
enum weir_filter_per {
	WEIR_P_RULE = 0,
	WEIR_P_SOURCE = 1,	/* the first len4 or len6 bits of the source */
	WEIR_P_ENTRY = 2,	/* the entry of the rule's set */
};

#define WEIR_FR_HIT_SRC		(1 << 0)	/* counts its hits by source entry, at slot_src */
#define WEIR_FR_HIT_DST		(1 << 1)
#define WEIR_FR_ENTRY_DST	(1 << 2)	/* WEIR_P_ENTRY: of the destination */
#define WEIR_FR_MARK		(1 << 3)
#define WEIR_FR_CPU		(1 << 4)

/* What a rule does when it is asked. Rules are sorted by action. */
struct weir_filter_rule {
	__u8 action;		/* enum weir_filter_action */
	__u8 flags;		/* WEIR_FR_* */
	__u8 per;		/* enum weir_filter_per */
	__u8 len4, len6;	/* WEIR_P_SOURCE: bits of the source that count */
	__u8 slot_src, slot_dst;	/* of the position's counters */
	__u8 cpus;		/* CPUs to move to */
	__u16 cpu_first;	/* ... from this place of the list on */
	__u16 shed;		/* place of its load value */
	__u32 id;		/* from its text, so that its state survives edits of other rules */
	__u32 mark;
	__u32 pad;
	__u64 above;		/* shed: when the load is above */
	__u64 interval_ns;	/* limit: ns a packet */
	__u64 burst_ns;		/* how far ahead of now the word may run */
	__u64 block_ns;		/* 0: does not block */
};

struct weir_filter_count {
	__u64 packets;		/* that asked the rule */
	__u64 bytes;
	__u64 dropped;		/* by it; not counted by a deny rule, which drops them all */
	__u64 blocked;		/* sources it blocked */
};

/* A position's times: until the time it has its own row, then that of another position. */
struct weir_filter_life {
	__u32 until;		/* seconds since 1970, 0: for ever */
	__u32 then;		/* position */
	__u32 row;
	__u32 pad;
};

/* Where the intervals of a part of the address space lie. */
struct weir_filter_top {
	__u32 first;		/* position of the first; in IPv4 also the place of the block, in intervals */
	__u32 what;		/* IPv4: intervals - 1 << 16, or the row itself if there is one; IPv6: intervals */
};

#define WEIR_FILTER_CROWD	(1U << 31)	/* in what: `first` is the number of a table of the next 8 bits */

/* Words of a limit: tag and time, side by side. */
struct weir_filter_limit {
	__u64 tag[WEIR_FILTER_WAYS];	/* 0: free */
	__u64 ahead_ns[WEIR_FILTER_WAYS];	/* when the packets counted so far are due */
};

/* A blocked source. IPv4 addresses are ::ffff:a.b.c.d. */
struct weir_filter_block {
	__u64 high, low;	/* host order */
	__u64 until_ns;		/* 0: free */
	__u64 dropped;
};

struct weir_filter_blocks {
	struct weir_filter_block way[WEIR_FILTER_WAYS];
};

/* A filter's features. */
#define WEIR_FF_SRC		(1 << 0)	/* sources are looked up */
#define WEIR_FF_DST		(1 << 1)
#define WEIR_FF_SPORT		(1 << 2)
#define WEIR_FF_DPORT		(1 << 3)
#define WEIR_FF_KIND		(1 << 4)	/* protocols, flags, fragments */
#define WEIR_FF_L4		(1 << 5)	/* the L4 header is read: ports or flags are asked for */
#define WEIR_FF_IP6_SRC		(1 << 6)	/* there are IPv6 sources */
#define WEIR_FF_IP6_DST		(1 << 7)
#define WEIR_FF_LIVES		(1 << 8)	/* entries end */
#define WEIR_FF_HITS		(1 << 9)
#define WEIR_FF_SHED		(1 << 10)
#define WEIR_FF_LIMIT		(1 << 11)
#define WEIR_FF_BLOCK		(1 << 12)
#define WEIR_FF_COOKIE		(1 << 13)
#define WEIR_FF_CPU		(1 << 14)
#define WEIR_FF_EXACT		(1 << 15)	/* the exact clock */
#define WEIR_FF_ENTRY		(1 << 16)	/* limits by entry */
#define WEIR_FF_DENY_REST	(1 << 17)	/* default = "drop" */
#define WEIR_FF_DENY_OTHER	(1 << 18)	/* other = "drop" */
#define WEIR_FF_PROTOCOL	(1 << 19)	/* protocols or fragments are asked for */
#define WEIR_FF_ONE		(1 << 20)	/* one side's addresses are all that is asked for: their tables give the first rule instead of a row */
#define WEIR_FF_SLOW		(WEIR_FF_SHED | WEIR_FF_LIMIT | WEIR_FF_COOKIE)

/* ---- functions that send packets by themselves ---- */
#include "abi/near.h"
#include "abi/router.h"
#include "abi/balancer.h"
#include "abi/decapsulate.h"
#include "abi/network.h"
#include "abi/tunnel.h"
#include "abi/dynset.h"


/* ---- load-time constants ---- */
#define WEIR_CSUM_COMPLETE	0
#define WEIR_CSUM_OFFLOADED	1

#define WEIR_F_SLOTS		(1 << 0)	/* option values are tested */
#define WEIR_F_TCPOPT		(1 << 1)	/* options are tested at all */
#define WEIR_F_OPTION_OPS	(1 << 2)	/* options are rewritten */
#define WEIR_F_PAYLOAD_OPS	(1 << 3)	/* payloads are rewritten */
#define WEIR_F_LOG		(1 << 4)
#define WEIR_F_REWRITE		(1 << 5)	/* anything is rewritten */
#define WEIR_F_STATE		(1 << 6)	/* there are stateful rules */
#define WEIR_F_TRANSLATE	(1 << 7)	/* something is chosen for connections */
#define WEIR_F_NAT		(1 << 8)	/* ... addresses or ports */
#define WEIR_F_SEQUENCE		(1 << 9)	/* ... sequence numbers */
#define WEIR_F_MAPPING		(1 << 10)	/* there are mappings that do not depend on who is sent to */
#define WEIR_F_EXPECT		(1 << 11)	/* there are helpers that expect connections */
#define WEIR_F_MAC		(1 << 12)	/* MAC addresses are tested */
#define WEIR_F_PORTS		(1 << 13)	/* ports are tested whatever the protocol */
#define WEIR_F_L4PROTO		(1 << 14)	/* the protocol is tested whatever the family */
#define WEIR_F_CT		(1 << 15)	/* states of connections are tested */
#define WEIR_F_REJECT		(1 << 16)	/* packets that are dropped are answered */
#define WEIR_F_META		(1 << 17)	/* marks or priorities are tested or set */
#define WEIR_F_VLAN		(1 << 18)	/* VLAN tags are put on or taken off */
#define WEIR_F_TTL		(1 << 19)	/* TTL or hop limit is decremented */
#define WEIR_F_METER		(1 << 20)	/* limits count addresses apart */
#define WEIR_F_SETS		(1 << 21)	/* packets fill sets, or are looked up in them */
#define WEIR_F_LOG_LIMIT	(1 << 22)	/* log lines have limits */
#define WEIR_F_QUOTA		(1 << 23)	/* bytes of rules are limited */
#define WEIR_F_COUNT		(1 << 24)	/* connections at a time are limited */
#define WEIR_F_CLOCK		(1 << 25)	/* time of day and day of the week are tested */

#endif
