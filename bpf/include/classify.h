/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Flat key -> all matching rules. Bitmaps say which tables are worth a probe;
 * a probe hashes the table's words of the key and finds a run of rules or a
 * tree of runs; each rule found is compared in full, then its residual
 * conditions are tested. docs/design/classifier.md says why;
 * crates/weir-classify/src/model.rs is the same in Rust.
 */
#ifndef WEIR_CLASSIFY_H
#define WEIR_CLASSIFY_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_table);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_table);
} shapes SEC(".maps");

/* Mapped memory, so that cells begin at cache lines: behind the header of a map that is not, each lies across two. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_cell);
} cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_node);
} nodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} lists SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_dim);
} dims SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rows SEC(".maps");

/* Mapped by the control program, which deletes a rule by one store. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_live);
} live SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_cond);
} conds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_interval);
} intervals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_counter);
} counters SEC(".maps");

/* Per rule the theoretical arrival time of the next packet (GCRA), or the bytes that came (WEIR_RULE_QUOTA). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rates SEC(".maps");

static __always_inline int above(__u64 a_high, __u64 a_low, __u64 b_high, __u64 b_low)
{
	return a_high > b_high || (a_high == b_high && a_low > b_low);
}

/* One step of the binary search for the last interval that starts at or below the value. */
static long set_step(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	struct weir_interval *interval;
	__u32 mid;

	if (s->set_lo >= s->set_hi)
		return 1;
	mid = s->set_lo + (s->set_hi - s->set_lo) / 2;
	i = s->set_first + mid;
	interval = bpf_map_lookup_elem(&intervals, &i);
	if (!interval)
		return 1;
	if (above(interval->lo_high, interval->lo_low, s->value_high, s->value_low))
		s->set_hi = mid;
	else
		s->set_lo = mid + 1;
	return 0;
}

/* Whether the value in scratch is in a run of intervals. */
static __always_inline int in_set(struct walk *w, struct weir_cond *cond)
{
	struct scratch *s = w->s;
	struct weir_interval *interval;
	__u32 at;

	s->set_first = cond->set_first;
	s->set_lo = 0;
	s->set_hi = cond->set_count;
	bpf_loop(32, set_step, w, 0);
	if (!s->set_lo)
		return 0;
	at = s->set_first + s->set_lo - 1;
	interval = bpf_map_lookup_elem(&intervals, &at);
	return interval && !above(s->value_high, s->value_low, interval->hi_high, interval->hi_low);
}

/* The number a condition is about, from the flat key. */
static __always_inline void load_value(struct scratch *s, struct weir_cond *cond)
{
	__u32 off = cond->off;
	__u8 *at;
	__u64 value;

	opaque(off);
	off &= sizeof(s->key) - 1;
	if (off > sizeof(s->key) - 16)
		off = sizeof(s->key) - 16;
	at = (__u8 *)s->key + off;
	if (cond->width == 16) {
		s->value_high = bpf_be64_to_cpu(*(__u64 *)at);
		s->value_low = bpf_be64_to_cpu(*(__u64 *)(at + 8));
		return;
	}
	s->value_high = 0;
	switch (cond->width) {
	case 1:
		value = *at;
		break;
	case 2:
		value = bpf_ntohs(*(__be16 *)at);
		break;
	case 4:
		value = bpf_ntohl(*(__be32 *)at);
		break;
	default:
		value = bpf_be64_to_cpu(*(__u64 *)at);
	}
	s->value_low = (value >> (cond->shift & 63)) & cond->mask;
}

/* Masks `n` of eight bytes in memory order. */
static __always_inline __u64 first_bytes(__s32 n)
{
	if (n >= 8)
		return ~0ULL;
	if (n <= 0)
		return 0;
	return (1ULL << (n * 8)) - 1;
}

/* Whether the option's value starts with the literal. */
static __always_inline int option_starts_with(struct scratch *s, struct weir_cond *cond)
{
	__u32 slot = cond->off, have, at, i;
	__u64 *value, *want = (__u64 *)cond->u.bytes, differ = 0;

	opaque(slot);
	slot &= WEIR_SLOTS - 1;
	have = s->key[WEIR_K_SLOT / 8 + slot * 2];
	if (have < cond->len)
		return 0;
	at = s->opts + s->slot_at[slot];
	value = (__u64 *)hdr_at(s, at);
#pragma unroll
	for (i = 0; i < 5; i++)
		differ |= (value[i] ^ want[i]) & first_bytes(cond->len - i * 8);
	return !differ;
}

/* Whether the payload has the literal at its offset. */
static __always_inline int payload_has(struct walk *w, struct weir_cond *cond)
{
	struct scratch *s = w->s;
	__u32 start, end, len = cond->len, i;
	__u64 *want = (__u64 *)cond->u.bytes, differ = 0;

	if (cond->op == WEIR_C_IP_PAYLOAD) {
		start = s->ip_payload;
		end = s->ip_end;
	} else {
		start = s->l4_payload;
		end = s->l4_payload_end;
	}
	start += cond->off;
	if (start + len > end || start > CTX_REACH)
		return 0;
#pragma unroll
	for (i = 0; i < 8; i++)
		s->bytes[i] = 0;
	opaque(len);
	if (len < 1 || len > WEIR_VALUE_MAX)
		return 0;
	if (ctx_load(w->ctx, start, s->bytes, len))
		return 0;
#pragma unroll
	for (i = 0; i < 8; i++)
		differ |= s->bytes[i] ^ want[i];
	return !differ;
}

static long test_cond(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	struct weir_cond *cond;
	__u32 at = s->cond_first + i;
	int holds;

	cond = bpf_map_lookup_elem(&conds, &at);
	if (!cond) {
		s->cond_failed = 1;
		return 1;
	}
	switch (cond->op) {
	case WEIR_C_RANGE:
		load_value(s, cond);
		holds = !above(cond->u.range.lo_high, cond->u.range.lo_low, s->value_high, s->value_low) &&
			!above(s->value_high, s->value_low, cond->u.range.hi_high, cond->u.range.hi_low);
		break;
	case WEIR_C_SET:
		load_value(s, cond);
		holds = in_set(w, cond);
		break;
	case WEIR_C_OPTION:
		holds = option_starts_with(s, cond);
		break;
	default:
		holds = payload_has(w, cond);
	}
	if (cond->flags & WEIR_COND_NEGATED)
		holds = !holds;
	if (holds)
		return 0;
	s->cond_failed = 1;
	return 1;
}

/* The function of docs/semantics.md section 3. */
static __always_inline __u64 splitmix64(__u64 x)
{
	__u64 z = x + 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

/* 32 random bits for a rule, as docs/semantics.md section 3 has it. */
static __always_inline __u32 random_of(struct scratch *s, __u32 rule)
{
	if (!weir_replay)
		return bpf_get_prandom_u32();
	return splitmix64(s->random + rule) >> 32;
}

static __always_inline __u64 now(struct scratch *s)
{
	if (!weir_replay && !s->now_ns)
		s->now_ns = bpf_ktime_get_ns();
	return s->now_ns;
}

/* The first rule that rejects a packet says how it is answered. Always 1. */
static __always_inline int remember_answer(struct scratch *s, struct weir_rule *rule)
{
	if (s->answers && s->answer_rule < rule->id)
		return 1;
	s->answers = 1;
	s->answer = rule->drop_param;
	s->answer_rule = rule->id;
	s->answer_slot = rule->slot;
	return 1;
}

static __always_inline int above_meter(struct scratch *s, struct weir_rule *rule);
static void find_expired(struct scratch *s, __u32 index);

/* Adds a packet to the bytes of its rule. */
static __always_inline int above_quota(struct scratch *s, struct weir_rule *rule)
{
	__u32 at = rule->slot;
	__u64 *used = bpf_map_lookup_elem(&rates, &at), bytes = s->wire_len;

	return !used || __sync_fetch_and_add(used, bytes) + bytes > rule->drop_param;
}

/* Drops that no word of the rule's own decides. Not inlined, and one branch for all: policies without such rules pay nothing for it. */
static __noinline int above_otherwise(struct scratch *s, struct weir_rule *rule)
{
	if (weir_features & WEIR_F_METER && rule->flags & WEIR_RULE_METER)
		return above_meter(s, rule);
	if (weir_features & WEIR_F_QUOTA && rule->flags & WEIR_RULE_QUOTA)
		return above_quota(s, rule);
	return remember_answer(s, rule);
}

/* GCRA. Four tries against other CPUs; after that the packet counts as above the rate. */
static __always_inline int above_rate(struct scratch *s, struct weir_rule *rule)
{
	__u32 at = rule->slot, i;
	__u64 *tat, t, old, base;

	if (weir_features & (WEIR_F_REJECT | WEIR_F_METER | WEIR_F_QUOTA) &&
	    rule->flags & (WEIR_RULE_ANSWER | WEIR_RULE_METER | WEIR_RULE_QUOTA))
		return above_otherwise(s, rule);
	tat = bpf_map_lookup_elem(&rates, &at);
	t = now(s);
	if (!tat)
		return 1;
#pragma unroll
	for (i = 0; i < 4; i++) {
		old = *(volatile __u64 *)tat;
		base = old > t ? old : t;
		if (base - t > rule->rate_limit_ns)
			return 1;
		if (__sync_val_compare_and_swap(tat, old, base + rule->drop_param) == old)
			return 0;
	}
	return 1;
}

static __always_inline void matched(struct scratch *s, struct weir_rule *rule, __u32 index)
{
	__u32 at = rule->slot, drop = rule->flags & WEIR_RULE_DROP;
	struct weir_counter *counter;

	if (weir_features & WEIR_F_STATE && rule->flags & WEIR_RULE_STATEFUL && !s->of_flow) {
		__u32 n = s->n_open;

		/* Planning sees to it that no more than WEIR_FLOW_RULES match. */
		if (!s->may_open || n >= WEIR_FLOW_RULES)
			return;
		opaque(n);
		s->open_rules[n & WEIR_FLOW_RULES] = rule->id;
		s->n_open++;
		s->open_flags |= rule->flags;
		if (rule->timeout_ns && rule->timeout_ns - 1 < s->open_timeout - 1)
			s->open_timeout = rule->timeout_ns;
	}
	counter = bpf_map_lookup_elem(&counters, &at);
	if (counter) {
		counter->packets += s->packets;
		counter->bytes += s->wire_len;
	}
	if (rule->flags & WEIR_RULE_ACCEPT)
		s->accept = 1;
	if (weir_features & WEIR_F_STATE && rule->flags & WEIR_RULE_ACCEPT_ICMP)
		s->accept_icmp = 1;
	if (rule->flags & WEIR_RULE_RANDOM && random_of(s, rule->id) >= rule->drop_param)
		drop = 0;
	if (rule->flags & WEIR_RULE_RATE && !above_rate(s, rule))
		drop = 0;
	if (drop && weir_features & WEIR_F_STATE && rule->flags & WEIR_RULE_STATEFUL)
		s->drop_flow = 1;
	else if (drop)
		s->drop = 1;
	if (rule->flags & WEIR_RULE_HIT) {
		__u32 n = s->n_hits;

		if (n >= WEIR_HITS) {
			s->overflow = WEIR_R_match_overflow;
			return;
		}
		opaque(n);
		n &= WEIR_HITS - 1;
		s->hits[n] = (__u64)rule->id << 32 | index;
		s->n_hits = n + 1;
		if (weir_features & WEIR_F_TTL && rule->flags & WEIR_RULE_TTL)
			find_expired(s, index);
	}
}

/* Whether the packet has the rule's exact part. */
static __always_inline int has_shape(struct scratch *s, struct weir_rule *rule)
{
	__u32 at = rule->shape, k, n, word;
	struct weir_table *shape = bpf_map_lookup_elem(&shapes, &at);
	__u64 differ = 0;

	if (!shape)
		return 0;
	n = shape->n_words;
#pragma unroll
	for (k = 0; k < WEIR_PROBE_WORDS; k++) {
		/* Unused words have no mask: comparing three too many is cheaper than a branch for each. Four are what the rule's first line holds. */
		if (k % 4 == 0 && k >= n)
			break;
		word = shape->word[k];
		opaque(word);
		word &= 63;
		differ |= (s->key[word] & shape->mask[k]) ^ rule->value[k];
	}
	return !differ;
}

/* Whether the packet has the rule's exact part, and the rule is not deleted. */
static __always_inline int is_candidate(struct scratch *s, struct weir_rule *rule)
{
	return has_shape(s, rule) && s->generation < rule->dead_from;
}

static long test_rule(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	struct weir_rule *rule;
	__u32 at = s->run_first + i, *listed;

	if (s->run_listed) {
		listed = bpf_map_lookup_elem(&lists, &at);
		if (!listed)
			return 1;
		at = *listed;
	}
	rule = bpf_map_lookup_elem(&rules, &at);
	if (!rule)
		return 1;
	if (!is_candidate(s, rule))
		return 0;
	if (rule->cond_count) {
		s->cond_first = rule->cond_first;
		s->cond_failed = 0;
		bpf_loop(rule->cond_count, test_cond, w, 0);
		if (s->cond_failed)
			return 0;
	}
	matched(s, rule, at);
	return 0;
}

/* Tests the run in scratch. Not inlined: the callback must have one call site. */
static __noinline int test_run(struct walk *w)
{
	if (!w || !w->s)
		return 0;
	bpf_loop(w->s->run_count, test_rule, w, 0);
	return 0;
}

/* One level of a tree. */
static long visit_node(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at = s->node;
	struct weir_node *node = bpf_map_lookup_elem(&nodes, &at);

	if (!node)
		return 1;
	if (above(node->pivot[0], node->pivot[1], s->tree_high, s->tree_low))
		s->node = node->left;
	else
		s->node = node->right;
	if (node->count) {
		s->run_first = node->first;
		s->run_count = node->count;
		s->run_listed = 1;
		test_run(w);
	}
	return !s->node;
}

static __always_inline void visit_tree(struct walk *w, __u32 root)
{
	struct scratch *s = w->s;
	struct weir_node *node = bpf_map_lookup_elem(&nodes, &root);
	struct weir_cond *cond;
	__u32 field;

	if (!node)
		return;
	field = node->field;
	cond = bpf_map_lookup_elem(&conds, &field);
	if (!cond)
		return;
	load_value(s, cond);
	s->tree_high = s->value_high;
	s->tree_low = s->value_low;
	s->node = root;
	/* A level halves the cuts, of which there are less than 2^32. */
	bpf_loop(34, visit_node, w, 0);
}

/* The bucket of the hash in a cell: its slot, or 0. */
static __always_inline struct weir_slot *slot_of(struct weir_cell *cell, __u64 hash, __u32 table)
{
	__u32 k;

#pragma unroll
	for (k = 0; k < 4; k++) {
		if (cell->slot[k].hash == hash &&
		    ((cell->slot[k].what >> WEIR_SLOT_COUNT) & ((1 << WEIR_SLOT_TABLE) - 1)) == table + 1)
			return &cell->slot[k];
	}
	return 0;
}

/* A hash with one masked word more. */
static __always_inline __u64 mixed(struct scratch *s, struct weir_table *table, __u32 k, __u64 hash)
{
	__u32 word = table->word[k];

	opaque(word);
	word &= 63;
	hash = (hash ^ (s->key[word] & table->mask[k])) * WEIR_HASH_WORD;
	return hash ^ hash >> 29;
}

/* A bucket of one rule takes no call, unless the program rewrites so much that the verifier would walk it too often. */
#define compares_one_at_once() \
	(!(weir_features & (WEIR_F_OPTION_OPS | WEIR_F_PAYLOAD_OPS)))

static __always_inline void probe(struct walk *w, __u32 number)
{
	struct scratch *s = w->s;
	struct weir_table *table = bpf_map_lookup_elem(&tables, &number);
	__u64 hash = WEIR_HASH_SEED ^ (number + 1ULL) * WEIR_HASH_TABLE;
	__u32 cell_first = 0, cells_mask = weir_cells_mask;
	struct weir_cell *cell;
	struct weir_slot *slot;
	__u32 k, at, n;

	if (!table)
		return;
	n = table->n_words;
#pragma unroll
	for (k = 0; k < WEIR_PROBE_WORDS / 2; k++) {
		if (k < n)
			hash = mixed(s, table, k, hash);
	}
	if (n > WEIR_PROBE_WORDS / 2) {
#pragma unroll
		for (k = WEIR_PROBE_WORDS / 2; k < WEIR_PROBE_WORDS; k++) {
			if (k < n)
				hash = mixed(s, table, k, hash);
		}
	}
	hash *= WEIR_HASH_END;
	hash ^= hash >> 32;
	if (number >= weir_tables) {
		cell_first = s->live_cells;
		cells_mask = s->live_mask;
	}
	at = cell_first + (hash & cells_mask);
	cell = bpf_map_lookup_elem(&cells, &at);
	if (!cell)
		return;
	slot = slot_of(cell, hash, number);
	if (!slot) {
		if (!cell->slot[3].what)
			return;
		at = cell_first + ((hash >> 24) & cells_mask);
		cell = bpf_map_lookup_elem(&cells, &at);
		if (!cell)
			return;
		slot = slot_of(cell, hash, number);
		if (!slot)
			return;
	}
	if (slot->what >> WEIR_SLOT_TREE) {
		visit_tree(w, slot->first);
		return;
	}
	at = slot->first;
	n = slot->what & ((1 << WEIR_SLOT_COUNT) - 1);
	if (compares_one_at_once() && n == 1) {
		struct weir_rule *rule = bpf_map_lookup_elem(&rules, &at);

		if (rule && !rule->cond_count) {
			if (is_candidate(s, rule))
				matched(s, rule, at);
			return;
		}
	}
	s->run_first = at;
	s->run_count = n;
	s->run_listed = 0;
	test_run(w);
}

/* Number of the lowest bit that is set: the bits below it, counted. */
static __always_inline __u32 lowest_bit(__u64 x)
{
	x = (x & -x) - 1;
	x -= (x >> 1) & 0x5555555555555555ULL;
	x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (x * 0x0101010101010101ULL) >> 56;
}

/* Tables of one word of the bitmap that no piece of the key rules out. */
static __always_inline __u64 survivors(struct scratch *s, __u32 word)
{
	__u32 left = weir_tables - word * 64, d, at;
	__u64 bits = left >= 64 ? ~0ULL : (1ULL << left) - 1, *row;

#pragma unroll
	for (d = 0; d < WEIR_DIMS; d++) {
		if (d >= weir_dims)
			break;
		at = s->row[d] + word;
		row = bpf_map_lookup_elem(&rows, &at);
		if (!row)
			return 0;
		bits &= *row;
	}
	return bits;
}

/* Probes the next table that no bitmap rules out. Tables of live edits come last, all of them. */
static long next_table(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u64 bits = s->survivors;
	__u32 number, word = s->word;

	if (!bits && word * 64 < weir_tables) {
		bits = survivors(s, word);
		s->word = ++word;
	}
	if (bits) {
		s->survivors = bits & (bits - 1);
		number = (word - 1) * 64 + lowest_bit(bits);
	} else if (word * 64 < weir_tables) {
		return 0;
	} else if (s->live_next < s->live_end) {
		number = s->live_next++;
	} else {
		return 1;
	}
	probe(w, number);
	/* Another call to find nothing is more than this. */
	return !s->survivors && s->word * 64 >= weir_tables && s->live_next >= s->live_end;
}

/* Where the bitmaps for this packet begin. */
static __always_inline void find_rows(struct scratch *s)
{
	__u32 d, at, value, words = (weir_tables + 63) / 64;
	struct weir_dim *dim;

#pragma unroll
	for (d = 0; d < WEIR_DIMS; d++) {
		if (d >= weir_dims)
			break;
		at = weir_dim_half[d];
		opaque(at);
		at &= 255;
		value = bpf_ntohs(((__be16 *)s->key)[at]);
		at = (d << 16 | value) >> 5;
		dim = bpf_map_lookup_elem(&dims, &at);
		if (!dim)
			return;
		s->row[d] = (weir_dim_row[d] + dim->row[value & 31]) * words;
	}
}

/* Which live edits hold for this packet: one word is read, once. */
static __always_inline void find_live(struct scratch *s)
{
	__u32 zero = 0;
	struct weir_live *l = bpf_map_lookup_elem(&live, &zero);
	struct weir_half *half;
	__u64 now;

	if (!l)
		return;
	now = *(volatile __u64 *)&l->now;
	half = &l->half[now & 1];
	s->generation = now >> 1;
	s->live_half = now & 1;
	s->live_next = half->table_first;
	s->live_end = half->table_first + half->tables;
	s->live_cells = half->cell_first;
	s->live_mask = half->cells_mask;
}

/* Finds all matching rules: counts them, sets drop, accept and the hit list. */
static __always_inline void classify(struct walk *w)
{
	struct scratch *s = w->s;

	find_rows(s);
	s->word = 0;
	s->survivors = 0;
	bpf_loop(weir_tables + (weir_tables + 63) / 64 + WEIR_LIVE_TABLES + 1, next_table, w, 0);
}

#endif
