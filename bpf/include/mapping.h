/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Mappings that do not depend on who is sent to (RFC 4787 section 4.1), and who may send to them (section 5): docs/semantics.md section 7,
 * "Mappings". A mapping is a record of the table of connections whose tuple has no destination; a permission one whose destination has no
 * port. open.h opens them; here they are looked up and kept alive.
 */
#ifndef WEIR_MAPPING_H
#define WEIR_MAPPING_H

/* scratch.by_mapping: only the rules of this match. */
#define BY_MAPPING	1
#define BY_EXPECTATION	2	/* `expected` */

/* The tuple of the mapping of a tuple's source. */
static __always_inline void mapping_of(struct weir_tuple *to, struct weir_tuple *from)
{
	*to = *from;
	to->dst[0] = 0;
	to->dst[1] = 0;
	to->dport = 0;
	to->what = WEIR_TUPLE_MAPPING;
}

/* Whether the address that sends may do so from another port than it was sent to. */
static __always_inline int is_permitted(struct scratch *s)
{
	struct weir_tuple *want = &s->want, *sent = &s->open_tuple;
	__u64 remote[2] = { sent->src[0], sent->src[1] };
	struct weir_flow *own;
	__u32 at;

	/* A host behind this translator is known by its address outside. */
	mapping_of(want, sent);
	locate(s);
	if (search_orig(s->level)) {
		at = s->found - 1;
		own = bpf_map_lookup_elem(&flows, &at);
		if (own && own->what & WEIR_FLOW_NAT) {
			remote[0] = own->trans.src[0];
			remote[1] = own->trans.src[1];
		}
	}
	want->src[0] = s->inner[0];
	want->src[1] = s->inner[1];
	want->sport = s->inner_port;
	want->dst[0] = remote[0];
	want->dst[1] = remote[1];
	want->what = WEIR_TUPLE_PERMISSION;
	locate(s);
	return search_orig(s->level);
}

/* The mapping that the packet, which belongs to no connection, is for; leaves `want` as it is. */
__noinline int find_mapping(__u32 level)
{
	struct scratch *s = scratch_of(level);
	struct weir_flow *flow;
	__u32 at, i;
	__u64 life;

	if (!s)
		return 0;
	if (s->want.proto != IPPROTO_UDP && !(s->want.proto == IPPROTO_TCP && s->reopens))
		return 0;
	s->open_tuple = s->want;
	s->want.src[0] = 0;
	s->want.src[1] = 0;
	s->want.sport = 0;
	s->want.what = WEIR_TUPLE_MAPPING;
	locate(s);
	s->found = 0;
	if (!search_trans(s->level) || s->found_kind != WEIR_TRANS_REVERSED)
		goto out;
	at = s->found - 1;
	flow = bpf_map_lookup_elem(&flows, &at);
	if (!flow)
		goto out;
	life = life_of(flow);
	barrier();
	s->inner[0] = flow->orig.src[0];
	s->inner[1] = flow->orig.src[1];
	s->inner_port = flow->orig.sport;
	s->f.what = flow->what;
	s->f.rule = flow->rule;
#pragma unroll
	for (i = 0; i < WEIR_FLOW_RULES - 1; i++)
		s->f.more[i] = flow->more[i];
	barrier();
	if ((life & WEIR_LIFE_MASK) != WEIR_LIFE_LIVE || !SAME_LIFE(life, life_of(flow)) || !has_rules(s))
		goto out;
	if (!(s->f.what & WEIR_FLOW_FILTER_NONE) && !(s->f.what & WEIR_FLOW_FILTER_ADDRESS && is_permitted(s))) {
		s->filtered = 1;
		goto out;
	}
	s->mapped = at + 1;
	s->mapped_sequence = SEQUENCE_OF(life);
out:
	s->want = s->open_tuple;
	return 0;
}

/* A rule of the mapping that the packet is for, as if it matched. */
static long mapping_rule(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	struct weir_rule *rule;
	__u32 k = i, at, id, requires;

	id = s->f.rule;
	if (k) {
		k--;
		opaque(k);
		if (!(s->f.what & WEIR_FLOW_MORE) || k >= WEIR_FLOW_RULES - 1)
			return 1;
		id = s->f.more[k];
		if (!id)
			return 1;
	}
	rule = rule_of(s, id, &at);
	if (!rule)
		return 0;
	requires = rule->flags >> WEIR_RULE_REQUIRES;
	if ((s->key[0] & requires) != requires)
		at |= HIT_LOGS_ONLY;
	matched(s, rule, at);
	return 0;
}

/* Whether the rules of a mapping or expectation match the packet, and no stateful rule does by itself. */
static __always_inline int lets_in(struct scratch *s)
{
	if (weir_features & WEIR_F_EXPECT && s->by_mapping == BY_EXPECTATION) {
		s->may_open = 1;
		return 1;
	}
	return weir_features & WEIR_F_MAPPING && s->mapped && !s->n_open;
}

/* No stateful rule matches a packet for a mapping: those of the mapping do. */
static __always_inline void match_mapping_rules(struct walk *w)
{
	if (!(weir_features & WEIR_F_EXPECT) || w->s->by_mapping != BY_EXPECTATION)
		w->s->by_mapping = BY_MAPPING;
	bpf_loop(WEIR_FLOW_RULES, mapping_rule, w, 0);
}

/* The record of a mapping or permission is used at this time. */
static __always_inline void touch(struct scratch *s, struct weir_parent *parent)
{
	__u32 at = parent->place - 1;
	struct weir_flow *record = bpf_map_lookup_elem(&flows, &at);
	__u64 life;

	if (!record || !parent->place)
		return;
	life = life_of(record);
	if (SEQUENCE_OF(life) != parent->sequence || (life & WEIR_LIFE_MASK) != WEIR_LIFE_LIVE || flow_expired(s, record, life))
		return;
	if (flow_now(s) > record->last_ns)
		record->last_ns = flow_now(s);
}

/* The mapping was of use: it gives way to none that was not. */
static __always_inline void mark_answered(struct weir_parent *parent)
{
	__u32 at = parent->place - 1;
	struct weir_flow *record = bpf_map_lookup_elem(&flows, &at);
	__u64 life, answered = (__u64)WEIR_SEEN_ANY << (WEIR_SEEN_AT + WEIR_SEEN_REVERSE);

	if (!record || !parent->place)
		return;
	life = life_of(record);
	if (SEQUENCE_OF(life) == parent->sequence && (life & WEIR_LIFE_MASK) == WEIR_LIFE_LIVE && !(life & answered))
		__sync_val_compare_and_swap(&record->life, life, life | answered);
}

/* A packet of a connection with a mapping passed: one of the host keeps it alive (RFC 4787 REQ-6). */
static __always_inline void keep_mapping(struct scratch *s)
{
	__u32 inbound = s->f.what & WEIR_FLOW_INBOUND ? 1 : 0;

	if ((s->kind & 1) == inbound) {
		touch(s, &s->f.mapping);
		touch(s, &s->f.permission);
	} else {
		mark_answered(&s->f.mapping);
		mark_answered(&s->f.permission);
	}
}

#endif
