/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Judging TCP segments of a connection by their numbers, so that only who sees a connection can move it or end it.
 *
 * A segment is judged when its connection is found, from the copy in scratch; what it moves is written when it passes
 * (refresh() in flow.h). Each side's numbers are written by that side's packets only, but for the handshake.
 * Follows docs/semantics.md section 7, "Window".
 */
#ifndef WEIR_SEGMENT_H
#define WEIR_SEGMENT_H

#define SEGMENT_IDLE	0	/* passes, changes nothing */
#define SEGMENT_MARKS	1	/* its flags count */
#define SEGMENT_MOVES	2	/* ... and its numbers */
#define SEGMENT_STARTS	3	/* a SYN before the answer */
#define SEGMENT_ANSWERS	4	/* the first SYN with ACK: from here on both sides are known */
#define SEGMENT_SYN	5	/* a SYN in an open connection: it and its answer are remembered beside that */
#define SEGMENT_SYN_ACK	6
#define SEGMENT_RESTARTS	7	/* the end of such a handshake, of which the old connection did not know in time */

#define RESTART_QUIET	2000000000ULL	/* ns without a segment of the old connection before, and again behind the SYN */

#define COUNT_SAME	0	/* of retransmissions in a row */
#define COUNT_NONE	1	/* there was progress */
#define COUNT_ONE	2	/* one more */

#define WINDOW_MOST	(65535U << 14)	/* the largest window there is */
#define FRAGMENT_LEN	65535		/* a segment of which the first fragment was seen may be as long */

/* Reads the segment in the key. */
static __always_inline void read_segment(struct scratch *s, __u32 reverse)
{
	struct segment *segment = &s->seg;
	__u8 *tcp = (__u8 *)s->key + WEIR_K_L4;
	__u32 len = s->l4_payload_end - s->l4_payload;

	if (s->key[0] & WEIR_V_FRAG)
		len = FRAGMENT_LEN;
	segment->flags = tcp[13];
	segment->seq = bpf_ntohl(*(__be32 *)(tcp + 4));
	segment->ack = bpf_ntohl(*(__be32 *)(tcp + 8)) - (reverse ? s->f.seq_off : s->f.ack_off);
	segment->window = bpf_ntohs(*(__be16 *)(tcp + 14));
	if (segment->flags & TCP_FLAG_SYN)
		len++;
	if (segment->flags & TCP_FLAG_FIN)
		len++;
	segment->end = segment->seq + len;
}

/* The shift of a side's windows. */
static __always_inline __u32 window_shift(__u64 life, __u32 reverse)
{
	__u32 own = life >> WEIR_SCALE_AT & WEIR_SCALE_MASK, other = life >> (WEIR_SCALE_AT + WEIR_SCALE_REVERSE) & WEIR_SCALE_MASK;

	if (life & WEIR_LIFE_PICKED)
		return 14;
	if (!own || !other)
		return 0;
	return (reverse ? other : own) - 1;
}

/* What of its flags the packet may mark: those of a fragment cannot be checked. */
static __always_inline __u32 flags_marked(struct scratch *s, __u32 flags)
{
	__u32 seen = WEIR_SEEN_ANY;

	if (flags & TCP_FLAG_ACK)
		seen |= WEIR_SEEN_ACK;
	if (flags & TCP_FLAG_FIN && !(s->key[0] & WEIR_V_FRAG))
		seen |= WEIR_SEEN_FIN;
	return seen;
}

/* Whether a handshake in the open connection is under way, and no segment of the old one came since. */
static __always_inline int handshake_counts(struct scratch *s, struct weir_flow *flow)
{
	return flow->again_ns > s->f.last_ns;
}

/* A SYN or its answer in an open connection: the host it is for challenges it, unless it knows nothing of the connection any more. */
__noinline int note_handshake(__u32 level)
{
	struct scratch *s = scratch_of(level);
	struct segment *seg;
	struct weir_flow *flow;
	__u32 at, reverse;

	if (!s)
		return 0;
	seg = &s->seg;
	reverse = s->kind & 1;
	at = s->flow - 1;
	flow = bpf_map_lookup_elem(&flows, &at);
	if (!flow || weir_loose || s->key[0] & WEIR_V_FRAG || !reverse == !!(seg->flags & TCP_FLAG_ACK))
		return 0;
	s->segment_end = seg->end;
	s->segment_edge = seg->window;
	if (reverse) {
		if (handshake_counts(s, flow) && seg->ack == flow->again_end)
			s->segment = SEGMENT_SYN_ACK;
	} else if (!(handshake_counts(s, flow) && seg->end == flow->again_end)) {
		if (idle_time(s, s->f.last_ns) > RESTART_QUIET)
			s->segment = SEGMENT_SYN;
	}
	return 0;
}

/* Whether a segment outside of the window ends such a handshake: then the connection begins again with its numbers. */
__noinline int restarts(__u32 level)
{
	struct scratch *s = scratch_of(level);
	struct segment *seg;
	struct weir_flow *flow;
	__u32 at, own, other;
	__u64 edge;

	if (!s)
		return 0;
	seg = &s->seg;
	at = s->flow - 1;
	flow = bpf_map_lookup_elem(&flows, &at);
	if (!flow || s->kind & 1 || s->key[0] & WEIR_V_FRAG || !handshake_counts(s, flow) || !flow->again_answered)
		return 0;
	if (seg->seq != flow->again_end || seg->ack != flow->again_answer || idle_time(s, flow->again_ns) <= RESTART_QUIET)
		return 0;
	own = flow->again_scale[0];
	other = flow->again_scale[1];
	s->segment_life = (__u64)own << WEIR_SCALE_AT | (__u64)other << (WEIR_SCALE_AT + WEIR_SCALE_REVERSE) |
			  (__u64)(WEIR_SEEN_ANY | WEIR_SEEN_ACK) << (WEIR_SEEN_AT + WEIR_SEEN_REVERSE);
	edge = seg->window;
	if (own && other)
		edge <<= (own - 1) & 15;
	if (edge < flow->again_window[0])
		edge = flow->again_window[0];
	s->segment_edge = seg->ack + edge;
	s->segment_end = seg->end;
	s->segment_ack = seg->ack;
	s->segment_seen = flags_marked(s, seg->flags);
	s->segment = SEGMENT_RESTARTS;
	return 1;
}

/* What becomes of a segment outside the window that says nothing of its side. */
static __always_inline int outside(void)
{
	return weir_loose ? PARSED : WEIR_R_tcp_window;
}

/* Decides what the packet of the connection in scratch does to it. Returns PARSED or the reason to drop it. */
__noinline int judge_segment(__u32 level)
{
	struct scratch *s = scratch_of(level);
	__u32 reverse, x, y, met, young, inside, mine_end, its_end, its_edge, mine_acked, its_acked, lowest, fin;
	struct segment seg;
	__u64 life;

	if (!s)
		return WEIR_R_internal;
	s->segment = SEGMENT_IDLE;
	if (!(s->key[0] & WEIR_V_TCP))
		return PARSED;
	reverse = s->kind & 1;
	read_segment(s, reverse);
	seg = s->seg;
	life = s->f.life;
	met = life >> (WEIR_SEEN_AT + WEIR_SEEN_REVERSE) & WEIR_SEEN_ANY;
	young = !met && !(life & WEIR_LIFE_PICKED);
	x = forget(s, reverse) & 1;
	y = x ^ 1;
	mine_end = s->f.side[x].end;
	mine_acked = s->f.acked[x];
	its_end = s->f.side[y].end;
	its_edge = s->f.side[y].edge;
	its_acked = s->f.acked[y];
	lowest = its_acked - (65535U << window_shift(life, y));
	if (seg.flags & TCP_FLAG_SYN) {
		/* Nobody opens the other way what is open. */
		if (!young && !(life & WEIR_LIFE_PICKED) &&
		    (reverse ? !(seg.flags & TCP_FLAG_ACK) : seg.flags & TCP_FLAG_ACK && life >> WEIR_SEEN_AT & WEIR_SEEN_ACK))
			return outside();
		if (!young)
			note_handshake(s->level);
		if (!young || !reverse == !!(seg.flags & TCP_FLAG_ACK))
			return PARSED;
		if (!reverse) {
			if (BEFORE(seg.end, mine_end) || s->key[0] & WEIR_V_FRAG)
				return PARSED;
			s->segment_end = seg.end;
			s->segment_seen = WEIR_SEEN_ANY;
			/* Repeated, it tells nothing new: the answer may be under way on another CPU. */
			s->segment = seg.end == mine_end ? SEGMENT_MARKS : SEGMENT_STARTS;
			return PARSED;
		}
		if (!AFTER(seg.ack, mine_acked) || AFTER(seg.ack, its_end))
			return outside();
		if (s->key[0] & WEIR_V_FRAG)
			return PARSED;
		s->segment_end = seg.end;
		s->segment_edge = seg.ack + seg.window;
		s->segment_ack = seg.ack;
		s->segment_life = (__u64)s->scale << (WEIR_SCALE_AT + WEIR_SCALE_REVERSE);
		s->segment_seen = WEIR_SEEN_ANY | WEIR_SEEN_ACK;
		s->segment = SEGMENT_ANSWERS;
		return PARSED;
	}
	if (seg.flags & TCP_FLAG_RST) {
		if (young && reverse) {
			if (!(seg.flags & TCP_FLAG_ACK) || !AFTER(seg.ack, mine_acked) || AFTER(seg.ack, its_end))
				return outside();
		} else if (seg.seq != mine_end && seg.seq != its_acked) {
			if (young || (!BEFORE(seg.seq, its_acked) && !AFTER(seg.seq, its_edge)))
				return PARSED;
			/* Hosts answer each late segment with a reset: those are of the past, but not forged. */
			if (!weir_loose && BEFORE(seg.seq, its_acked) && !BEFORE(seg.seq, lowest))
				return WEIR_R_tcp_rst_stale;
			return outside();
		}
		if (s->key[0] & WEIR_V_FRAG)
			return PARSED;
		s->segment_seen = WEIR_SEEN_RST;
		s->segment = SEGMENT_MARKS;
		return PARSED;
	}
	if (young && reverse)
		return PARSED;
	inside = !young && !AFTER(seg.seq, its_edge) && !BEFORE(seg.end, lowest);
	fin = life >> (WEIR_SEEN_AT + (reverse ? 0 : WEIR_SEEN_REVERSE)) & WEIR_SEEN_FIN && !BEFORE(seg.ack, its_end);
	if (life & WEIR_LIFE_PICKED)
		its_end += WINDOW_MOST;
	if (AFTER(seg.ack, its_end) || BEFORE(seg.ack, mine_acked - (65535U << window_shift(life, x))))
		inside = 0;
	if (!inside && !weir_loose)
		return restarts(s->level) ? PARSED : WEIR_R_tcp_window;
	s->segment_end = seg.end;
	s->segment_ack = seg.ack;
	s->segment_edge = seg.ack + (seg.window << window_shift(life, x));
	s->segment_seen = flags_marked(s, seg.flags);
	if (!inside || !AFTER(seg.end, its_acked))
		s->segment_seen &= ~WEIR_SEEN_FIN;
	if (inside && fin)
		s->segment_life |= reverse ? WEIR_LIFE_ACKED_FIN * 2 : WEIR_LIFE_ACKED_FIN;
	if (s->key[0] & WEIR_V_FRAG)
		s->segment_life |= WEIR_LIFE_INEXACT;
	if (AFTER(seg.ack, mine_acked))
		s->segment_count = life & WEIR_LIFE_RETRANS ? COUNT_NONE : COUNT_SAME;
	else if (seg.end != seg.seq && !AFTER(seg.end, mine_end) && AFTER(seg.end, its_acked))
		s->segment_count = COUNT_ONE;
	s->segment = SEGMENT_MOVES;
	return PARSED;
}

/* Whether the segment that an ICMP error quotes may be on its way. Returns PARSED or the reason to drop the error. */
__noinline int judge_quote(__u32 level)
{
	struct scratch *s = scratch_of(level);
	__u32 seq, x;

	if (!s)
		return WEIR_R_internal;
	x = s->kind & 1;
	seq = hdr_be32(s, s->quote_l4 + 4) - (x ? s->f.ack_off : s->f.seq_off);
	x = forget(s, x) & 1;
	if (BEFORE(seq, s->f.acked[x ^ 1]) || AFTER(seq, s->f.side[x].end))
		return weir_loose ? PARSED : WEIR_R_icmp_window;
	return PARSED;
}

/* Moves the numbers of a side on, unless they are further; another CPU may be doing the same. The end is the low half of the word. */
static __always_inline void move_side(struct weir_side *side, __u32 to_end, __u32 to_edge)
{
	__u64 *word = (__u64 *)side, have, want, seen;
	__u32 i;

	have = *(volatile __u64 *)word;
	for (i = 0; i < 3; i++) {
		__u32 end = have, edge = have >> 32;

		if (AFTER(to_end, end))
			end = to_end;
		if (AFTER(to_edge, edge))
			edge = to_edge;
		want = (__u64)edge << 32 | end;
		if (want == have)
			break;
		seen = __sync_val_compare_and_swap(word, have, want);
		if (seen == have)
			break;
		have = seen;
	}
}

/* What judge_segment() decided, to the record of the connection, whose life was just looked at. */
static __always_inline void move_window(struct scratch *s, struct weir_flow *flow, __u64 life)
{
	__u32 x = forget(s, s->kind) & 1;

	/* Numbers of a handshake that another CPU saw the end of are old. */
	if (s->segment >= SEGMENT_STARTS && life >> (WEIR_SEEN_AT + WEIR_SEEN_REVERSE) & WEIR_SEEN_ANY)
		return;

	if (s->segment == SEGMENT_MOVES) {
		move_side(&flow->side[x], s->segment_end, s->segment_edge);
		if (AFTER(s->segment_ack, *(volatile __u32 *)&flow->acked[x]))
			*(volatile __u32 *)&flow->acked[x] = s->segment_ack;
	} else if (s->segment == SEGMENT_STARTS) {
		flow->side[0].end = s->segment_end;
		flow->side[1].edge = s->segment_end;
	} else if (s->segment == SEGMENT_ANSWERS) {
		__u32 seq = bpf_ntohl(*(__be32 *)((__u8 *)s->key + WEIR_K_L4 + 4));

		flow->acked[0] = seq;
		flow->acked[1] = s->segment_ack;
		flow->side[0].end = s->segment_ack;
		flow->side[0].edge = s->segment_end + s->f.side[0].edge;
		flow->side[1].end = s->segment_end;
		flow->side[1].edge = s->segment_edge;
		barrier();
	}
}

/* A handshake in an open connection passes, to the record. */
static __always_inline void keep_handshake(struct scratch *s, struct weir_flow *flow)
{
	if (s->segment == SEGMENT_SYN) {
		flow->again_end = s->segment_end;
		flow->again_window[0] = s->segment_edge;
		flow->again_scale[0] = s->scale;
		flow->again_answered = 0;
		barrier();
		flow->again_ns = flow_now(s);
	} else {
		flow->again_answer = s->segment_end;
		flow->again_window[1] = s->segment_edge;
		flow->again_scale[1] = s->scale;
		flow->again_answered = 1;
	}
}

/* The connection in the record begins again with the numbers of such a handshake. */
static __always_inline void restart(struct scratch *s, struct weir_flow *flow, __u64 life)
{
	flow->acked[0] = s->segment_ack;
	flow->acked[1] = flow->again_end;
	flow->side[0].end = s->segment_end;
	flow->side[0].edge = s->segment_edge;
	flow->side[1].end = s->segment_ack;
	flow->side[1].edge = flow->again_end + flow->again_window[1];
	barrier();
	__sync_val_compare_and_swap(&flow->life, life, (life & (0xffffffffULL << 32 | WEIR_LIFE_MASK)) | s->segment_life |
				    (__u64)s->segment_seen << WEIR_SEEN_AT);
}

/* What the packet that opens a connection says of its side: to the record in scratch. Returns the bits of its life. */
static __always_inline __u64 first_seen(struct scratch *s)
{
	struct segment *seg = &s->seg;

	if (s->f.orig.proto != IPPROTO_TCP)
		return (__u64)WEIR_SEEN_ANY << WEIR_SEEN_AT;
	read_segment(s, 0);
	s->f.side[0].end = seg->end;
	s->f.acked[1] = seg->seq;
	if (seg->flags & TCP_FLAG_SYN) {
		s->f.side[0].edge = seg->window;
		s->f.side[1].edge = seg->end;
		return (__u64)flags_marked(s, seg->flags) << WEIR_SEEN_AT | (__u64)s->scale << WEIR_SCALE_AT;
	}
	s->f.side[0].edge = seg->ack + (seg->window << 14);
	s->f.side[1].edge = seg->seq + WINDOW_MOST;
	s->f.side[1].end = seg->ack;
	s->f.acked[0] = seg->ack;
	return (__u64)flags_marked(s, seg->flags) << WEIR_SEEN_AT | WEIR_LIFE_PICKED | (s->key[0] & WEIR_V_FRAG ? WEIR_LIFE_INEXACT : 0);
}

#endif
