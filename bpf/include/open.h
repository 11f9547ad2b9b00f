/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Opening a connection: choosing what its rules map and shuffle, finding room, putting both tuples into the indexes.
 *
 * Order is what makes it right without locks: claim a record, write it, put the translated tuple in, put the original
 * tuple in, make the record live. Putting a tuple in is committed by the version of its first bucket: if somebody put another
 * in since this CPU looked, the commit fails and everything is undone. docs/design/connections.md
 */
#ifndef WEIR_OPEN_H
#define WEIR_OPEN_H

#define TRIES		32	/* of translated tuples */
#define OPEN_RETRIES	3	/* after a lost race */
#define TRIES_NEXT	16	/* of these each takes the next element of every pool, later ones any */
#define TRIES_KEEP_PORT	8	/* of these at most leave a source port that is not mapped alone */
#define DRAW_CHOICE	(1U << 31)	/* numbers of random draws, as docs/semantics.md section 7 has them */
#define DRAW_TRY	(1U << 31 | 1U << 16)

/* What is opened, in this order; most connections begin with the last. */
enum open_stage {
	OPEN_MAPPING,
	OPEN_PERMISSION,
	OPEN_FLOW,
	OPEN_STAGES,
};

/* ---- choosing ---- */

/* One interval of a pool. */
static long pick_step(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at = s->pick_first + i;
	struct weir_interval *interval = bpf_map_lookup_elem(&intervals, &at);
	__u64 more;

	if (!interval)
		return 1;
	/* Pools hold at most 2^32 values, so the difference of two ends fits. */
	more = interval->hi_low - interval->lo_low;
	if (s->pick_index > more) {
		s->pick_index -= more + 1;
		return 0;
	}
	s->value_low = interval->lo_low + s->pick_index;
	s->value_high = interval->lo_high + (s->value_low < interval->lo_low);
	return 1;
}

/* Element `index` of a pool, to value_high and value_low. */
static __noinline int pick(struct walk *w, __u32 first, __u32 count, __u64 index)
{
	w->s->pick_first = first;
	w->s->pick_index = index;
	w->s->value_high = 0;
	w->s->value_low = 0;
	bpf_loop(count, pick_step, w, 0);
	return 0;
}

/* A map or shuffle target of a rule of the new connection. */
static __always_inline void choose(struct walk *w, struct weir_op *op)
{
	struct scratch *s = w->s;
	__u32 draw = random_of(s, DRAW_CHOICE + s->draws), what = op->base;
	struct weir_pool *pool = &op->u.pool;

	s->draws++;
	if (op->kind == WEIR_O_MAP) {
		if (what <= WEIR_D_DPORT) {
			opaque(what);
			what &= 3;
			s->choice[what].size = pool->size;
			s->choice[what].first = pool->first;
			s->choice[what].count = pool->count;
			s->choice[what].draw = draw;
			return;
		}
		if (!pool->size)
			return;
		pick(w, pool->first, pool->count, draw % pool->size);
		if (what == WEIR_D_ID) {
			s->f.what = (s->f.what & ~WEIR_FLOW_ID_MOVED) | WEIR_FLOW_ID_SET;
			s->f.identity = s->value_low;
		} else {
			s->f.what = (s->f.what & ~WEIR_FLOW_LABEL_MOVED) | WEIR_FLOW_LABEL_SET;
			s->f.identity = s->value_low;
		}
		return;
	}
	switch (what) {
	case WEIR_D_ID:
		s->f.what = (s->f.what & ~WEIR_FLOW_ID_SET) | WEIR_FLOW_ID_MOVED;
		s->f.identity = draw & 0xffff;
		break;
	case WEIR_D_LABEL:
		s->f.what = (s->f.what & ~WEIR_FLOW_LABEL_SET) | WEIR_FLOW_LABEL_MOVED;
		s->f.identity = draw & 0xfffff;
		break;
	case WEIR_D_SEQ:
		s->f.what |= WEIR_FLOW_SEQUENCE;
		s->f.seq_off = draw;
		break;
	case WEIR_D_ACK:
		s->f.what |= WEIR_FLOW_SEQUENCE;
		s->f.ack_off = draw;
		break;
	}
}

/* Whether rules choose the destination, so that the packet is for no mapping. */
static __always_inline int maps_destination(struct scratch *s)
{
	return s->choice[WEIR_D_DADDR].size || s->choice[WEIR_D_DPORT].size;
}

/* ---- the translated tuple ---- */

/* The field `what` of the translated tuple for try t. */
static __always_inline void choose_field(struct walk *w, const __u32 what, __u32 t)
{
	struct scratch *s = w->s;
	struct choice *choice = &s->choice[what];
	__u64 index;

	if (!choice->size)
		return;
	/* A source address is that of the host's other connections (RFC 4787 REQ-2), unless the port stays or nothing else is free. */
	index = (what == WEIR_D_SADDR ? s->paired : choice->draw) % choice->size;
	if (t >= TRIES_NEXT)
		index = random_of(s, DRAW_TRY + t * 8 + what) % choice->size;
	else if (what != WEIR_D_SADDR || s->port_stays)
		index = (index + t) % choice->size;
	pick(w, choice->first, choice->count, index);
	if (what == WEIR_D_SPORT) {
		s->f.trans.sport = bpf_htons(s->value_low);
	} else if (what == WEIR_D_DPORT) {
		s->f.trans.dport = bpf_htons(s->value_low);
	} else {
		__u64 high = bpf_cpu_to_be64(s->value_high), low = bpf_cpu_to_be64(s->value_low);

		if (s->f.orig.family == 4) {
			high = bpf_htonl(s->value_low);
			low = 0;
		}
		if (what == WEIR_D_SADDR) {
			s->f.trans.src[0] = high;
			s->f.trans.src[1] = low;
		} else {
			s->f.trans.dst[0] = high;
			s->f.trans.dst[1] = low;
		}
	}
}

/* What stands in for the draw of a source address: the same for all connections of a host. */
static __always_inline __u32 paired(struct weir_tuple *t)
{
	__u64 key = weir_replay ? 0 : weir_flow_seed, high = bpf_be64_to_cpu(t->src[0]), low = bpf_be64_to_cpu(t->src[1]);

	if (t->family == 4) {
		low = high >> 32;
		high = 0;
	}
	return splitmix64(splitmix64(key + high) + low) >> 32;
}

/*
 * Another source port than the packet's, in host order: of the same range, and of UDP of the same parity (RFC 4787 REQ-3 and REQ-4);
 * any ICMP identifier.
 */
static __always_inline __u32 like_port(struct weir_tuple *t, __u32 draw)
{
	__u32 port = bpf_ntohs(t->sport), odd = port & 1;

	if (t->proto == IPPROTO_UDP)
		return port < 1024 ? 2 + 2 * (draw % 511) - odd : 1024 + 2 * (draw % 32256) + odd;
	if (t->proto == IPPROTO_TCP)
		return port < 1024 ? 1 + draw % 1023 : 1024 + draw % 64512;
	return draw & 0xffff;
}

/* A bucket entry of the index by translated tuple that may be replaced. */
static long nat_way(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at = s->bucket, way = i;
	struct weir_nat_bucket *bucket = bpf_map_lookup_elem(&nat_index, &at);
	struct weir_flow *flow;
	__u64 entry, life;

	if (!bucket)
		return 1;
	opaque(way);
	if (way >= WEIR_NAT_WAYS)
		return 1;
	entry = *(volatile __u64 *)&bucket->entry[way];
	if (entry) {
		at = (__u32)entry - 1;
		flow = bpf_map_lookup_elem(&flows, &at);
		if (!flow)
			return 1;
		life = life_of(flow);
		if (at + 1 != s->self && (life & WEIR_LIFE_MASK) != WEIR_LIFE_FREE) {
			if ((life & WEIR_LIFE_MASK) == WEIR_LIFE_CLAIMED)
				return 0;
			if (flow->what & WEIR_FLOW_NAT && flow->trans_tag == entry >> 32 && !expired_at(s->level, at))
				return 0;
		}
	}
	s->nat_seen = entry;
	s->nat_bucket = s->bucket;
	s->nat_way = way;
	s->room = 1;
	return 1;
}

/* Room in the bucket at hand. */
static __noinline int nat_room(struct walk *w)
{
	w->s->room = 0;
	bpf_loop(WEIR_NAT_WAYS, nat_way, w, 0);
	return w->s->room;
}

/* Changes the entry that nat_way() chose from `have` to `want`. */
static __always_inline int set_nat_entry(struct scratch *s, __u64 have, __u64 want)
{
	__u32 at = s->nat_bucket, way = s->nat_way;
	struct weir_nat_bucket *bucket = bpf_map_lookup_elem(&nat_index, &at);

	opaque(way);
	if (!bucket || way >= WEIR_NAT_WAYS)
		return 0;
	return __sync_val_compare_and_swap(&bucket->entry[way], have, want) == have;
}

/* Puts the translated tuple of the record being written into its index, unless it is taken. */
__noinline int put_trans(__u32 level)
{
	struct scratch *s = scratch_of(level);
	struct walk walk = { .s = s }, *w = &walk;
	__u32 first, version;
	struct weir_nat_bucket *bucket;
	__u64 mine;

	if (!s)
		return 0;
	if (search_trans(s->level) || s->busy)
		return 0;
	version = s->nat_version;
	first = spread(s->hash_first, weir_nat_buckets);
	s->bucket = first;
	if (!nat_room(w)) {
		s->bucket = spread(s->hash_second, weir_nat_buckets);
		if (!nat_room(w))
			return 0;
	}
	mine = (__u64)s->tag << 32 | s->self;
	if (!set_nat_entry(s, s->nat_seen, mine))
		return 0;
	bucket = bpf_map_lookup_elem(&nat_index, &first);
	if (!bucket)
		return 0;
	if (__sync_val_compare_and_swap(&bucket->version, version, version + 1) == version) {
		/* Visible from here on; whoever puts the same tuple in as its original one looks here after. */
		if (!search_orig(s->level) && !s->busy)
			return 1;
	}
	set_nat_entry(s, mine, s->nat_seen);
	return 0;
}

/* One try at a translated tuple. Ends the tries with trans in its index, or because there are no more. */
static long try_trans(__u32 t, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at = s->self - 1;
	struct weir_flow *flow = bpf_map_lookup_elem(&flows, &at);

	if (!flow)
		return 1;
	s->f.trans = s->f.orig;
	if (weir_features & WEIR_F_EXPECT && s->by_mapping == BY_EXPECTATION) {
		s->f.trans.src[0] = s->outer[0];
		s->f.trans.src[1] = s->outer[1];
		s->f.trans.dst[0] = s->inner[0];
		s->f.trans.dst[1] = s->inner[1];
		s->f.trans.dport = s->inner_port;
		goto chosen;
	}
	if (weir_features & WEIR_F_MAPPING && (s->stage == OPEN_PERMISSION || (s->stage == OPEN_FLOW && s->outer_fixed)))
		goto destination;
	choose_field(w, WEIR_D_SADDR, t);
	choose_field(w, WEIR_D_SPORT, t);
	if (t >= s->implicit_from)
		s->f.trans.sport = bpf_htons(like_port(&s->f.orig, random_of(s, DRAW_TRY + t * 8 + WEIR_D_SPORT)));
destination:
	if (weir_features & WEIR_F_MAPPING) {
		if (s->stage != OPEN_FLOW)
			goto chosen;
		if (s->outer_fixed) {
			s->f.trans.src[0] = s->outer[0];
			s->f.trans.src[1] = s->outer[1];
			s->f.trans.sport = s->outer_port;
		}
		if (s->mapped && !maps_destination(s)) {
			s->f.trans.dst[0] = s->inner[0];
			s->f.trans.dst[1] = s->inner[1];
			s->f.trans.dport = s->inner_port;
		}
	}
	choose_field(w, WEIR_D_DADDR, t);
	choose_field(w, WEIR_D_DPORT, t);
chosen:
	if (same_tuple(&s->f.trans, &s->f.orig)) {
		s->f.what &= ~WEIR_FLOW_NAT;
		flow->what = s->f.what;
		s->open_reason = PARSED;
		return 1;
	}
	if (is_authenticated(s)) {
		s->open_reason = WEIR_R_nat_protocol;
		return 1;
	}
	s->f.what |= WEIR_FLOW_NAT;
	s->want = s->f.trans;
	locate(s);
	s->f.trans_tag = s->tag;
	flow->trans = s->f.trans;
	flow->trans_tag = s->tag;
	barrier();
	flow->what = s->f.what;
	s->busy = 0;
	s->found = 0;
	if (!put_trans(s->level))
		return 0;
	s->open_reason = PARSED;
	return 1;
}

/* Chooses and takes the translated tuple. Sets open_reason. */
static __always_inline void take_trans(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 reopens = s->reopens;
	__u32 tries = TRIES, k;
	__u64 largest = 1;

#pragma unroll
	for (k = WEIR_D_DADDR; k <= WEIR_D_DPORT; k++)
		if (s->choice[k].size > largest)
			largest = s->choice[k].size;
	s->paired = paired(&s->f.orig);
	s->port_stays = is_generic(s->f.orig.proto, s->f.orig.family);
	s->implicit_from = largest < TRIES_KEEP_PORT ? largest : TRIES_KEEP_PORT;
	/* Nothing is chosen for a packet that a mapping lets in, or that is expected. */
	if (weir_features & (WEIR_F_MAPPING | WEIR_F_EXPECT) && s->by_mapping)
		tries = 1;
	s->open_reason = WEIR_R_pool_busy;
	if (s->port_stays)
		s->open_reason = WEIR_R_nat_peer_busy;
	if (s->choice[WEIR_D_SPORT].size || s->port_stays) {
		s->implicit_from = TRIES;
		if (largest == 1 && s->choice[WEIR_D_SADDR].size <= 1)
			tries = 1;
	}
	s->reopens = 0;
	bpf_loop(forget(s, tries), try_trans, w, 0);
	s->reopens = reopens;
}

/* ---- room ---- */

/* A way of the bucket at hand: free, dead, or one side only was ever seen. */
static long room_way(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 way = s->room_start + i, at;
	struct weir_flow *flow;
	__u64 life;

	if (way >= WEIR_WAYS)
		way -= WEIR_WAYS;
	at = s->bucket * WEIR_WAYS + way;
	flow = bpf_map_lookup_elem(&flows, &at);
	if (!flow)
		return 1;
	life = life_of(flow);
	if ((life & WEIR_LIFE_MASK) == WEIR_LIFE_CLAIMED)
		return 0;
	if ((life & WEIR_LIFE_MASK) == WEIR_LIFE_FREE || expired_at(s->level, at)) {
		s->room = at + 1;
		s->room_life = life;
		return 1;
	}
	if (!s->displaced && !(life >> (WEIR_SEEN_AT + WEIR_SEEN_REVERSE) & 0xf)) {
		s->displaced = at + 1;
		s->nat_seen = life;
	}
	return 0;
}

/* A free or dead record of the bucket at hand to `room`; else, of the first bucket that has one, an unanswered one to `displaced`. */
static __noinline int room_in_bucket(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 at = s->bucket, k, way = WEIR_WAYS;
	struct weir_bucket *bucket = bpf_map_lookup_elem(&flow_index, &at);

	s->room = 0;
	if (!bucket)
		return 0;
	if (!bucket->tag[WEIR_WAYS - 1]) {
		/* Filled from the first on, so that the last one tells whether there ever was a second choice. */
#pragma unroll
		for (k = WEIR_WAYS; k > 0; k--)
			if (!bucket->tag[k - 1])
				way = k - 1;
		s->room_start = way;
	} else {
		s->room_start = s->hash_second % WEIR_WAYS;
	}
	bpf_loop(WEIR_WAYS, room_way, w, 0);
	return s->room;
}

/* Whether a limit of connections keeps the packet from opening one. Nothing is limited for what accepts it, or for what a helper expects. */
static __always_inline int is_refused(struct scratch *s)
{
	int said;

	if (s->accept || s->want.what == WEIR_TUPLE_EXPECTED)
		return 0;
	said = count_hits(s->level, COUNT_ASKS);
	if (said == COUNT_BELOW)
		return 0;
	s->open_reason = said == COUNT_FULL ? WEIR_R_limit_full : WEIR_R_rule_drop;
	return 1;
}

#define ROOM_NONE	0
#define ROOM_FOUND	1
#define ROOM_REFUSED	2	/* by a limit of connections: open_reason says by which */

/* Where the new connection goes: `room` and the life it has there now. Returns ROOM_*. */
__noinline int find_room(__u32 level)
{
	struct scratch *s = scratch_of(level);
	struct walk walk = { .s = s }, *w = &walk;

	if (!s)
		return ROOM_NONE;
	s->displaced = 0;
	if (weir_features & WEIR_F_COUNT && is_refused(s))
		return ROOM_REFUSED;
	if (s->stale) {
		s->room = s->stale;
		s->room_life = s->stale_life;
		return ROOM_FOUND;
	}
	s->bucket = s->home;
	if (room_in_bucket(w))
		return ROOM_FOUND;
	s->bucket = spread(s->hash_second, weir_flow_buckets);
	if (room_in_bucket(w)) {
		s->displaced = 0;
		return ROOM_FOUND;
	}
	if (!s->displaced)
		return ROOM_NONE;
	s->room = s->displaced;
	s->room_life = s->nat_seen;
	return ROOM_FOUND;
}

/* ---- opening ---- */

/* Gives a record that this CPU claimed back. */
static __always_inline void release(struct weir_flow *flow, __u64 life)
{
	barrier();
	life_of(flow) = (life & ~(__u64)WEIR_LIFE_MASK) | WEIR_LIFE_FREE;
}

/* What is to be opened, in the record in scratch. */
static __always_inline void begin_stage(struct scratch *s)
{
	s->f.orig = s->open_tuple;
	s->f.life = s->open_life;
	s->f.what &= ~(WEIR_FLOW_NAT | WEIR_FLOW_MAPPED);
	if (s->stage == OPEN_FLOW) {
		if (s->f.mapping.place)
			s->f.what |= WEIR_FLOW_MAPPED;
		return;
	}
	s->f.life = (__u64)WEIR_SEEN_ANY << WEIR_SEEN_AT;
	s->f.orig.dport = 0;
	s->f.orig.what = WEIR_TUPLE_PERMISSION;
	if (s->stage == OPEN_MAPPING)
		mapping_of(&s->f.orig, &s->open_tuple);
}

/* The mapping or permission lies at this place: on to the next stage. */
static __always_inline void end_stage(struct scratch *s, __u32 place, __u64 life)
{
	struct weir_parent *parent = s->stage == OPEN_MAPPING ? &s->f.mapping : &s->f.permission;

	parent->place = place;
	parent->sequence = SEQUENCE_OF(life);
	s->stage = s->stage == OPEN_MAPPING && s->f.what & WEIR_FLOW_FILTER_ADDRESS ? OPEN_PERMISSION : OPEN_FLOW;
	s->open_reason = WEIR_R_flow_busy;
}

/* The mapping or permission is there already. Returns 1 to end the attempts. */
static __always_inline int join_stage(struct scratch *s)
{
	__u32 at = s->found - 1;
	struct weir_flow *flow = bpf_map_lookup_elem(&flows, &at);
	struct weir_tuple *outer;
	__u64 life;

	s->open_reason = WEIR_R_pool_busy;
	/* The host's own endpoint is another's outside. */
	if (!flow || s->found_kind != WEIR_ORIG_DIRECT)
		return 1;
	life = life_of(flow);
	barrier();
	outer = flow->what & WEIR_FLOW_NAT ? &flow->trans : &flow->orig;
	if (s->stage == OPEN_MAPPING) {
		s->outer[0] = outer->src[0];
		s->outer[1] = outer->src[1];
		s->outer_port = outer->sport;
		s->outer_fixed = 1;
	}
	barrier();
	s->open_reason = WEIR_R_flow_busy;
	if ((life & WEIR_LIFE_MASK) != WEIR_LIFE_LIVE || !SAME_LIFE(life, life_of(flow)))
		return 0;
	if (flow_now(s) > flow->last_ns)
		flow->last_ns = flow_now(s);
	end_stage(s, at + 1, life);
	return 0;
}

/* One attempt. Ends them with open_reason PARSED, with a reason to drop, or lets the next one try. */
static long try_open(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at, k, way, number, tag, found;
	struct weir_bucket *bucket;
	struct weir_flow *flow;
	__u64 life, *to, *from = (__u64 *)&s->f;

	if (weir_features & WEIR_F_MAPPING)
		begin_stage(s);
	if (weir_features & WEIR_F_MAPPING && s->stage == OPEN_FLOW && s->outer_fixed && s->filtered && !maps_destination(s)) {
		s->open_reason = WEIR_R_nat_filtered;
		return 1;
	}
	s->want = s->f.orig;
	locate(s);
	tag = s->tag;
	s->self = 0;
	if (search(s)) {
		if (weir_features & WEIR_F_MAPPING && s->stage != OPEN_FLOW) {
			/* Before the mapping is kept alive for a packet that is refused. */
			if (weir_features & WEIR_F_COUNT && is_refused(s))
				return 1;
			return join_stage(s);
		}
		/* Another CPU opened it in the meantime. */
		s->open_reason = adopt(s->level);
		/* Found, but not to be gone on with: nothing was opened, and what should be translated must not pass as it is. */
		if (s->open_reason == PARSED && !s->flow)
			s->open_reason = WEIR_R_flow_busy;
		return 1;
	}
	s->open_reason = WEIR_R_flow_busy;
	if (s->busy)
		return 0;
	found = find_room(s->level);
	if (found != ROOM_FOUND) {
		/* What keeps the packet from opening a connection has said so. */
		if (found != ROOM_REFUSED)
			s->open_reason = WEIR_R_flow_full;
		return 1;
	}
	at = s->room - 1;
	flow = bpf_map_lookup_elem(&flows, &at);
	if (!flow)
		return 1;
	life = (SEQUENCE_OF(s->room_life) + 1) << 32 | WEIR_LIFE_CLAIMED;
	if (__sync_val_compare_and_swap(&flow->life, s->room_life, life) != s->room_life)
		return 0;
	s->self = at + 1;
	to = (__u64 *)flow;
	barrier();
#pragma unroll
	for (k = 1; k < FLOW_WORDS; k++)
		to[k] = from[k];
	if (weir_features & WEIR_F_NAT) {
		__u32 home = s->home, version = s->home_version;

		take_trans(w);
		if (s->open_reason != PARSED) {
			release(flow, life);
			if (s->displaced)
				note(w, WEIR_R_flow_displaced);
			return 1;
		}
		s->open_reason = WEIR_R_flow_busy;
		s->home = home;
		s->home_version = version;
	}
	number = at / WEIR_WAYS;
	way = at % WEIR_WAYS;
	bucket = bpf_map_lookup_elem(&flow_index, &number);
	opaque(way);
	if (!bucket || way >= WEIR_WAYS)
		goto undo;
	*(volatile __u32 *)&bucket->tag[way] = tag;
	barrier();
	number = s->home;
	bucket = bpf_map_lookup_elem(&flow_index, &number);
	if (!bucket)
		goto undo;
	if (__sync_val_compare_and_swap(&bucket->version, s->home_version, s->home_version + 1) != s->home_version)
		goto undo;
	if (weir_features & WEIR_F_NAT) {
		/* Another connection may have taken this tuple as its translated one since the packet was looked up. */
		s->want = s->f.orig;
		locate(s);
		s->busy = 0;
		if (search_trans(s->level) || s->busy)
			goto undo;
	}
	s->f.life = (SEQUENCE_OF(life) << 32) | s->f.life | WEIR_LIFE_LIVE;
	barrier();
	life_of(flow) = s->f.life;
	if (weir_features & WEIR_F_MAPPING && s->stage != OPEN_FLOW) {
		if (s->stage == OPEN_MAPPING) {
			s->outer[0] = s->f.trans.src[0];
			s->outer[1] = s->f.trans.src[1];
			s->outer_port = s->f.trans.sport;
			s->outer_fixed = 1;
		}
		end_stage(s, s->self, s->f.life);
		if (s->displaced)
			note(w, WEIR_R_flow_displaced);
		return 0;
	}
	s->flow = s->self;
	s->kind = WEIR_ORIG_DIRECT;
	s->handled = 1;
	s->open_reason = PARSED;
	if (s->displaced)
		note(w, WEIR_R_flow_displaced);
	return 1;
undo:
	if (weir_features & WEIR_F_NAT && s->f.what & WEIR_FLOW_NAT)
		set_nat_entry(s, (__u64)s->f.trans_tag << 32 | s->self, s->nat_seen);
	s->f.what &= ~WEIR_FLOW_NAT;
	release(flow, life);
	return 0;
}

/* Which stages there are. A connection keeps the mapping of the host that opens it alive, or else that which it is for. */
static __always_inline void choose_stage(struct scratch *s)
{
	s->open_tuple = s->f.orig;
	s->open_life = s->f.life;
	s->outer_fixed = 0;
	s->stage = OPEN_FLOW;
	if (s->mapped && !maps_destination(s)) {
		s->f.mapping.place = s->mapped;
		s->f.mapping.sequence = s->mapped_sequence;
		s->f.what |= WEIR_FLOW_INBOUND;
	}
	if (s->by_mapping || !(s->open_flags & WEIR_RULE_MAPPING))
		return;
	if (s->f.orig.proto != IPPROTO_TCP && s->f.orig.proto != IPPROTO_UDP)
		return;
	s->stage = OPEN_MAPPING;
	s->f.mapping.place = 0;
	s->f.what &= ~WEIR_FLOW_INBOUND;
	if (s->open_flags & WEIR_RULE_FILTER_NONE)
		s->f.what |= WEIR_FLOW_FILTER_NONE;
	else if (s->open_flags & WEIR_RULE_FILTER_ADDRESS)
		s->f.what |= WEIR_FLOW_FILTER_ADDRESS;
}

/* Opens a connection for the packet, whose tuple was not found, with the stateful rules that matched. Returns PARSED or a reason to drop. */
static __always_inline int open_connection(struct walk *w)
{
	struct scratch *s = w->s;
	__u64 *f = (__u64 *)&s->f;
	__u32 i;

#pragma unroll
	for (i = 0; i < FLOW_WORDS; i++)
		f[i] = 0;
	s->f.orig = s->want;
	s->f.trans = s->want;
	s->f.last_ns = flow_now(s);
	s->f.born_ns = s->f.last_ns;
	s->f.timeout_ns = s->open_timeout;
	if (ctx_transmits())
		s->f.what |= WEIR_FLOW_TRANSMIT;
	if (s->open_timeout)
		s->f.what |= WEIR_FLOW_TIMEOUT;
	if (s->n_open > 1)
		s->f.what |= WEIR_FLOW_MORE;
	s->f.rule = s->open_rules[0];
#pragma unroll
	for (i = 1; i < WEIR_FLOW_RULES; i++)
		s->f.more[i - 1] = i < s->n_open ? s->open_rules[i] : 0;
	if (weir_features & WEIR_F_TRANSLATE) {
#pragma unroll
		for (i = 0; i < 4; i++)
			s->choice[i].size = 0;
		s->draws = 0;
		s->mode = HITS_CHOOSE;
		if (s->n_hits && !(weir_features & (WEIR_F_MAPPING | WEIR_F_EXPECT) && s->by_mapping))
			apply_hits(w);
	}
	if (weir_features & WEIR_F_EXPECT && s->open_flags & WEIR_RULE_HELPER_TFTP && !s->by_mapping)
		s->f.what |= WEIR_FLOW_HELPER_TFTP;
	if (weir_features & WEIR_F_EXPECT && weir_features & WEIR_F_CT && s->by_mapping == BY_EXPECTATION)
		s->f.what |= WEIR_FLOW_EXPECTED;
	s->f.life = first_seen(s);
	if (weir_features & WEIR_F_MAPPING)
		choose_stage(s);
	bpf_loop(weir_features & WEIR_F_MAPPING ? OPEN_RETRIES * OPEN_STAGES : OPEN_RETRIES, try_open, w, 0);
	return s->open_reason;
}

/* ---- expectations ---- */

/* One attempt to write down what the packet's connection expects. */
static long try_expect(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	struct weir_tuple *orig = &s->f.orig, *outer = s->f.what & WEIR_FLOW_NAT ? &s->f.trans : orig, *want = &s->want;
	__u32 at, k, way, number, known;
	struct weir_bucket *bucket;
	struct weir_flow *flow;
	__u64 life;

	want->src[0] = outer->dst[0];
	want->src[1] = outer->dst[1];
	want->dst[0] = outer->src[0];
	want->dst[1] = outer->src[1];
	want->sport = 0;
	want->dport = outer->sport;
	want->proto = orig->proto;
	want->family = orig->family;
	want->what = WEIR_TUPLE_EXPECTED;
	locate(s);
	s->self = 0;
	s->busy = 0;
	s->stale = 0;
	s->displaced = 0;
	known = search_orig(s->level);
	if (known) {
		s->room = s->found;
	} else if (s->busy) {
		return 0;
	} else if (find_room(s->level) != ROOM_FOUND) {
		s->expecting = WEIR_R_flow_full;
		return 1;
	}
	at = s->room - 1;
	flow = bpf_map_lookup_elem(&flows, &at);
	if (!flow)
		return 1;
	if (known)
		s->room_life = life_of(flow);
	life = (SEQUENCE_OF(s->room_life) + 1) << 32 | WEIR_LIFE_CLAIMED;
	if ((s->room_life & WEIR_LIFE_MASK) == WEIR_LIFE_CLAIMED ||
	    __sync_val_compare_and_swap(&flow->life, s->room_life, life) != s->room_life)
		return 0;
	barrier();
	flow->last_ns = flow_now(s);
	flow->born_ns = flow->last_ns;
	flow->orig = *want;
	flow->what = s->f.what & WEIR_FLOW_MORE;
	flow->rule = s->f.rule;
	flow->trans = *want;
	flow->trans.src[0] = orig->dst[0];
	flow->trans.src[1] = orig->dst[1];
	flow->trans.dst[0] = orig->src[0];
	flow->trans.dst[1] = orig->src[1];
	flow->trans.dport = orig->sport;
	flow->timeout_ns = 0;
#pragma unroll
	for (k = 0; k < WEIR_FLOW_RULES - 1; k++)
		flow->more[k] = s->f.more[k];
	if (!known) {
		number = at / WEIR_WAYS;
		way = at % WEIR_WAYS;
		bucket = bpf_map_lookup_elem(&flow_index, &number);
		opaque(way);
		if (!bucket || way >= WEIR_WAYS)
			goto undo;
		*(volatile __u32 *)&bucket->tag[way] = s->tag;
		barrier();
		number = s->home;
		bucket = bpf_map_lookup_elem(&flow_index, &number);
		if (!bucket)
			goto undo;
		if (__sync_val_compare_and_swap(&bucket->version, s->home_version, s->home_version + 1) != s->home_version)
			goto undo;
	}
	barrier();
	life_of(flow) = (SEQUENCE_OF(life) << 32) | (__u64)WEIR_SEEN_ANY << WEIR_SEEN_AT | WEIR_LIFE_LIVE;
	s->expecting = PARSED;
	if (s->displaced)
		note(w, WEIR_R_flow_displaced);
	return 1;
undo:
	release(flow, life);
	return 0;
}

/* Writes down what the connection of a request expects. Returns PARSED or a reason to drop the request, which is sent again then. */
static __always_inline int expect(struct walk *w)
{
	struct scratch *s = w->s;
	struct weir_tuple *outer = s->f.what & WEIR_FLOW_NAT ? &s->f.trans : &s->f.orig;
	__u32 self;

	/* No helper opens the port of a server. */
	if (bpf_ntohs(s->f.orig.sport) < 1024 || bpf_ntohs(outer->sport) < 1024)
		return PARSED;
	s->expecting = WEIR_R_flow_busy;
	self = s->self;
	bpf_loop(OPEN_RETRIES, try_expect, w, 0);
	/* The packet's own connection, if it opened one: keep_state() asks. */
	s->self = self;
	return s->expecting;
}

#endif
