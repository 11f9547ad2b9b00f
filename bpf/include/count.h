/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Limits of connections that are open at a time: docs/semantics.md section 3, "Connections at a time". For each name, a rule with
 * addresses, a list of references to connections: place and sequence number of the life there. A reference whose connection is gone is free,
 * so nothing counts down when connections end.
 *
 * All matching rules are visited twice: before the connection opens, to look for a free word, and afterwards, to write its reference. Two CPUs
 * that find the last free word at once both open a connection, and the second one is not counted.
 *
 * Needs meter.h for names, flow.h for connections.
 */
#ifndef WEIR_COUNT_H
#define WEIR_COUNT_H

/* Buckets of all rules: four names each. The words of a name lie in count_words. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_count);
} count_names SEC(".maps");

/* Place + 1 of a connection, and above it the sequence number of its life; 0: never used, nor is any behind it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} count_words SEC(".maps");

/* Whether a reference is to a connection that is open: neither gone nor closed. Global, so that it is verified once and not in each loop. */
__noinline int is_open(__u32 level, __u32 place, __u32 sequence)
{
	struct scratch *s = scratch_of(level);
	struct weir_flow *flow;
	__u32 state;
	__u64 life;

	if (!(weir_features & WEIR_F_COUNT) || !s)
		return 0;
	flow = bpf_map_lookup_elem(&flows, &place);
	if (!flow)
		return 0;
	life = life_of(flow);
	if (SEQUENCE_OF(life) != sequence || (life & WEIR_LIFE_MASK) != WEIR_LIFE_LIVE || flow_expired(s, flow, life))
		return 0;
	state = forget(s, flow_state(life, &flow->orig));
	return flow->orig.proto != IPPROTO_TCP || (state != TCP_LAST_ACK && state != TCP_TIME_WAIT && state != TCP_CLOSE);
}

/* One word of the list at hand. Ends with the first free one, or of a list that may be forgotten with the first that is not. */
static long count_word(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at = s->count_first + i;
	__u64 *word = bpf_map_lookup_elem(&count_words, &at), ref, mine;

	if (!word)
		return 1;
	ref = *(volatile __u64 *)word;
	if (ref && is_open(s->level, (__u32)ref - 1, ref >> 32)) {
		s->count_open = 1;
		return s->count_mode == COUNT_FORGETS;
	}
	if (s->count_mode == COUNT_FORGETS)
		return !ref;
	if (s->count_mode == COUNT_WRITES) {
		mine = SEQUENCE_OF(s->f.life) << 32 | s->flow;
		if (__sync_val_compare_and_swap(word, ref, mine) != ref)
			return 0;
	}
	s->count_free = 1;
	return 1;
}

/* Walks the list of a way of the bucket at hand. */
static __always_inline void walk_list(struct walk *w, __u32 way, __u32 mode)
{
	struct scratch *s = w->s;

	s->count_first = s->count_lists + way * s->count_most;
	s->count_mode = mode;
	s->count_free = 0;
	s->count_open = 0;
	bpf_loop(s->count_most, count_word, w, 0);
}

/* Asks whether a rule's limit is reached for the packet, or writes down the connection that it opened. Returns COUNT_*. */
static __always_inline int count_connection(__u32 level, __u32 at, __u32 mode)
{
	struct scratch *s = scratch_of(level);
	struct weir_rule *rule = bpf_map_lookup_elem(&rules, &at);
	struct walk walk = { .s = s }, *w = &walk;
	struct weir_count *names;
	__u32 bucket, k, way;
	__u64 name, old;

	if (!(weir_features & WEIR_F_COUNT) || !s || !rule || !(rule->flags & WEIR_RULE_COUNT))
		return COUNT_BELOW;
	name = weir_replay ? 0 : weir_flow_seed;
	name = splitmix64(name + (rule->timeout_ns >> WEIR_METER_NAME)) | 1;
	if (rule->timeout_ns >> WEIR_METER_SOURCE & 3)
		name = meter_name(s, rule);
	if (!name)
		return COUNT_BELOW;
	bucket = name >> 32 & (__u32)rule->rate_limit_ns;
	s->count_most = rule->drop_param >> 32;
	s->count_lists = (__u32)rule->drop_param + bucket * WEIR_COUNT_WAYS * s->count_most;
	bucket += rule->rate_limit_ns >> 32;
	names = bpf_map_lookup_elem(&count_names, &bucket);
	if (!names)
		return COUNT_BELOW;
	s->count_way = WEIR_COUNT_WAYS;
#pragma unroll
	for (k = 0; k < WEIR_COUNT_WAYS; k++) {
		if (names->name[k] == name)
			s->count_way = k;
	}
	way = *(volatile __u32 *)&s->count_way;
	if (way >= WEIR_COUNT_WAYS) {
		/* The first that may be forgotten. */
#pragma unroll
		for (k = 0; k < WEIR_COUNT_WAYS; k++) {
			walk_list(w, k, COUNT_FORGETS);
			if (!s->count_open)
				break;
		}
		way = k;
		if (way >= WEIR_COUNT_WAYS)
			return COUNT_FULL;
		if (mode != COUNT_WRITES)
			return COUNT_BELOW;
		opaque(way);
		way &= WEIR_COUNT_WAYS - 1;
		old = names->name[way];
		if (__sync_val_compare_and_swap(&names->name[way], old, name) != old)
			return COUNT_BELOW;
	}
	walk_list(w, way, mode);
	return s->count_free ? COUNT_BELOW : COUNT_REACHED;
}

static long count_hit(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at = i, said;

	opaque(at);
	at &= WEIR_HITS - 1;
	said = count_connection(s->level, s->hits[at], s->count_step);
	if (said > s->count_said)
		s->count_said = said;
	return 0;
}

/* Carries out a step for all rules that matched. Returns the worst that is said of a limit: COUNT_*. */
__noinline int count_hits(__u32 level, __u32 step)
{
	struct scratch *s = scratch_of(level);
	struct walk walk = { .s = s }, *w = &walk;

	if (!(weir_features & WEIR_F_COUNT) || !s)
		return COUNT_BELOW;
	s->count_step = step;
	s->count_said = COUNT_BELOW;
	bpf_loop(s->n_hits, count_hit, w, 0);
	return s->count_said;
}

#endif
