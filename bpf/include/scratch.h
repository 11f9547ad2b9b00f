/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Per-CPU memory of the programs of a hook: what a packet was parsed into and
 * the state of every loop. Loop state lives here and not on the stack, so that
 * the verifier walks a callback once instead of once for every state.
 *
 * Four levels, because a program may run inside another one's helper call on the same CPU.
 */
#ifndef WEIR_SCRATCH_H
#define WEIR_SCRATCH_H

#define SCRATCH_DEPTH	4
#define HDR_BYTES	512	/* power of two >= WEIR_WINDOW_EH: offsets are masked with it */
#define HITS_REWRITE	0
#define HITS_LOG	1
#define HITS_CHOOSE	2	/* what is chosen for a new connection */
#define HAS_NO_TUPLE	2	/* in `is_error`: there is nothing to find a connection by */
#define HIT_LOGS_ONLY	(1U << 31)	/* in the index of a hit: rewrites of the rule do not run */
#define COUNT_ASKS	0	/* steps of a limit of connections: is a word free? */
#define COUNT_WRITES	1	/* the connection is opened: its reference goes into a free word */
#define COUNT_FORGETS	2	/* is none of the list's connections open? */
#define COUNT_BELOW	0	/* what is said of a limit of connections */
#define COUNT_REACHED	1
#define COUNT_FULL	2	/* there is no room for another name */
#define SUM_CHUNK	256	/* bytes that are summed at once */
#define HDR_GUARD	64	/* so that a masked offset may be read this far */

/* One TCP option of the working list. */
struct option {
	__u8 kind;
	__u8 len;		/* of the value */
	__u8 at;		/* offset in the options as received (originals only) */
	__u8 pad[5];
	__u64 value[5];		/* 40 bytes, zero behind len */
};

/* What a TCP segment says; its acknowledgement is in numbers as the other side sends them. */
struct segment {
	__u32 flags, seq, end, ack, window, pad;
};

/* What a connection's field is chosen from. */
struct choice {
	__u64 size;		/* 0: the field stays */
	__u32 first, count;
	__u32 draw;
	__u32 pad;
};

struct scratch {
	__u64 key[64];		/* flat key: WEIR_KEY_WORDS used, indexes are masked with 63 */

	/* the frame */
	__u32 frame_len;
	__u32 packets;		/* on the wire; above 1 for a GSO packet */
	__u32 wire_len;		/* bytes of all of them: the headers once for each */
	__u32 window;		/* bytes of it in hdr */
	__u32 hdr_end;		/* end of the headers that rewrites may touch */
	__u32 base[8];		/* start of each enum weir_base in the frame */
	__u32 ip_end;		/* end of the IP packet */
	__u32 ip_payload;
	__u32 frag_data;	/* what lies behind the last IPv6 fragment header */
	__u32 l4_payload;
	__u32 l4_payload_end;	/* 0: no L4 payload */
	__u32 opts;		/* start of the TCP options, 0: no TCP */
	__u32 opts_len;
	__u32 l4_csum;		/* offset of the L4 checksum, 0: none known */
	__u32 l4_proto;
	__u32 pseudo_only;	/* only address words update the L4 checksum (DCCP, UDP-Lite) */
	__u32 unfinished;

	/* matching */
	__u32 drop;
	__u32 answers;		/* a rule says how a packet that is dropped is answered; cleared together with drop */
	__u32 accept;
	__u32 accept_icmp;	/* by a rule that names the ICMP type */
	__u32 verdict;
	__u32 overflow;		/* reason to drop that matching found: match_overflow, ttl_expired */
	__u32 n_hits;
	__u32 answer, answer_rule, answer_slot;	/* of the first such rule: WEIR_ANSWER_*, its id and slot */
	__u32 run_first, run_count, run_listed;
	__u32 node;
	__u32 word;		/* of the bitmap, one further than the bits at hand */
	__u32 live_next, live_end;	/* tables of live edits yet to be probed */
	__u32 live_cells, live_mask;
	__u32 live_half;	/* that the packet reads */
	__u64 generation;	/* of live edits */
	__u64 survivors;	/* bits of tables yet to be probed */
	__u64 tree_high, tree_low;
	__u32 row[WEIR_DIMS];
	__u32 cond_first;
	__u32 cond_failed;
	__u32 set_first, set_lo, set_hi;
	__u64 value_high, value_low;
	__u64 hits[WEIR_HITS];	/* rule id << 32 | index in the rule array */
	__u8 slot_at[WEIR_SLOTS];	/* offset of the option's value from the start of the options */

	/* connections; what begins a packet's life at zero is in one piece, see begin() */
	__u32 flow;		/* place + 1 of the packet's connection, 0: none */
	__u32 kind;		/* enum weir_kind of its tuple, or of its quote's */
	__u32 handled;		/* translated and accounted here */
	__u32 is_error;		/* 1: an ICMP error, the tuple is that of its quote; HAS_NO_TUPLE of packets without connections */
	__u32 may_open;
	__u32 n_open;		/* stateful rules that matched */
	__u32 drop_flow;	/* one of those, or of the connection's, drops */
	__u32 of_flow;		/* the rules at hand are the connection's */
	__u32 reopens;		/* SYN without ACK: connections that ended count as dead */
	__u32 self;		/* place + 1 of the record being written */
	__u32 segment;		/* what a TCP segment does to its connection: SEGMENT_* */
	__u32 scale;		/* of the segment's windows + 1, 0: it names none */
	__u32 segment_count;	/* COUNT_*: what becomes of the count of retransmissions */
	__u32 pad_segment;
	__u64 segment_life;	/* what it adds to weir_flow.life besides segment_seen */
	__u64 flow_now;
	__u64 open_timeout;

	struct segment seg;	/* the TCP segment */
	__u64 idle;
	__u32 segment_seen;	/* WEIR_SEEN_* of its side */
	__u32 segment_end, segment_edge, segment_ack;	/* what becomes of its side, if that is further */
	struct weir_tuple want;	/* the tuple that is looked for */
	struct weir_flow f;	/* copy of the packet's connection, or what is being opened */
	struct weir_frag frag;
	__u32 frag_hash;	/* of its datagram */
	__u32 frag_early;	/* nothing is remembered of its first one */
	__u64 stale_life, room_life, nat_seen;
	__u32 forgotten;
	__u32 tag, hash_first, hash_second;
	__u32 level;		/* of this scratch */
	__u32 bucket, by_trans, spilled, version, nat_version;
	__u32 found, found_kind, busy, stale;
	__u32 home, home_version;
	__u32 room, room_start, displaced;
	__u32 nat_bucket, nat_way;
	__u32 quote, quote_l4, quote_end, quote_csum;
	__u32 open_rules[WEIR_FLOW_RULES + 1];	/* indexes are masked */
	struct choice choice[4];	/* enum weir_choice, addresses and ports */
	__u32 draws;
	__u32 implicit_from;	/* try from which on a source port that is not mapped is chosen, too */
	__u32 open_reason;
	__u32 open_flags;	/* WEIR_RULE_* of the rules that open */
	__u32 stage;		/* what is opened: enum open_stage */
	__u32 mapped;		/* place + 1 of the mapping that the packet is for, 0: none */
	__u32 mapped_sequence;
	__u32 filtered;		/* it is for one that does not let it in */
	__u32 by_mapping;	/* only the rules of a mapping or expectation match: BY_* */
	__u32 outer_fixed;	/* the source is translated to this */
	__u32 expected;		/* place + 1 of the expectation that the packet meets, if by_mapping says so */
	__u32 expecting;	/* what a helper expects could not be written down: a reason, else PARSED */
	__u64 expected_life;
	__u64 outer[2], inner[2];
	__u16 outer_port, inner_port;	/* network order */
	__u64 open_life;	/* of the connection that is being opened */
	struct weir_tuple open_tuple;
	__u32 paired;		/* in place of a draw of the source address */
	__u32 port_stays;	/* nothing but addresses can be translated */
	__u64 pick_index;
	__u32 pick_first, pick_done;

	/* a checksum under way: what is still to be summed */
	__u32 sum_at, sum_end;
	__u32 sum, pad_sum;
	__u8 chunk[SUM_CHUNK + 8];

	/* clock and randomness of this packet */
	__u64 now_ns;		/* 0: not read yet */
	__u64 random;

	__u32 tags_ready;	/* the next ones hold */
	__u32 tags_had;		/* VLAN tags of the packet as received */
	__u32 tags_off;		/* of them, those that rules took off */
	__u32 tags_on;		/* in tag_on, innermost first */
	__u32 tag_on[WEIR_VLAN_MAX];	/* TCI */
	__u32 marks[2];		/* WEIR_META_*: of the packet, as rules have set them so far */

	/* rewriting */
	__u64 hit_last, hit_next;
	__u32 op_first;
	__u32 dirty;		/* hdr must be written back */
	__u32 walk, walk_end, walk_n;	/* option walks */
	__u32 n_options;
	__u32 options_ready;
	__u32 options_used;	/* sum of the options' lengths */
	__u32 options_room;
	__u32 op_len, op_kind, op_count;
	__u64 op_kinds[4];
	__u32 sum_old, sum_new, byte_at;
	__u32 shape_differs, value_differs;
	__u32 mode;		/* what hits are walked for: HITS_* */
	__u64 opts_old[6];	/* options as received; 40 bytes and a guard */
	__u8 opts_new[96];
	struct option options[32];	/* WEIR_OPTS used, indexes are masked with 31 */
	__u64 bytes[9];		/* WEIR_VALUE_MAX and a guard */
	__u64 bytes_new[9];

	/* an address that may be in a set: dynset.h */
	__u64 element_high, element_low;
	__u64 element_least, element_seen;
	__u32 element_kind, element_at;

	__u8 hdr[HDR_BYTES + HDR_GUARD];
	struct weir_event event;

	/* connections that a limit counts: count.h. Last, so that what most packets use does not move across cache lines. */
	__u32 count_step, count_mode;	/* COUNT_* */
	__u32 count_lists;	/* first word of the bucket at hand */
	__u32 count_first;	/* ... of the list */
	__u32 count_most;	/* words of a list */
	__u32 count_free;	/* one of them is free, or was taken */
	__u32 count_open;	/* one of them is that of an open connection */
	__u32 count_way;
	__u32 count_said, pad_count;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_DEPTH);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);	/* WEIR_DEPTH_* */
} depth SEC(".maps");

/* Hides a value's history from the compiler, so that the bound that follows reaches the verifier. */
#define opaque(x) asm volatile("" : "+r"(x))

/* Where byte `off` of the frame lies in the header window; HDR_GUARD bytes from there are readable. */
static __always_inline __u8 *hdr_at(struct scratch *s, __u32 off)
{
	opaque(off);
	off &= HDR_BYTES - 1;
	return s->hdr + off;
}

static __always_inline __u32 hdr_u8(struct scratch *s, __u32 off)
{
	return *hdr_at(s, off);
}

static __always_inline __u32 hdr_be16(struct scratch *s, __u32 off)
{
	return bpf_ntohs(*(__be16 *)hdr_at(s, off));
}

static __always_inline __u32 hdr_be32(struct scratch *s, __u32 off)
{
	return bpf_ntohl(*(__be32 *)hdr_at(s, off));
}

static __always_inline void hdr_set_be16(struct scratch *s, __u32 off, __u16 value)
{
	*(__be16 *)hdr_at(s, off) = bpf_htons(value);
}

#endif
