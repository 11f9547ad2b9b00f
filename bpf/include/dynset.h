/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Sets that packets fill: docs/semantics.md section 9. Their elements lie in
 * buckets of one array, a run of buckets for each set.
 *
 * Which sets have the packet's addresses is looked up before rules are matched; the flat key has a bit for each pair
 * of a set and an address that rules test. What rules add and delete is done behind matching, in rule order.
 *
 * Nothing takes a lock. A reader compares `what` of a place before and after it read the place; a writer claims the place by
 * changing `what` from what it saw. A time-out is renewed by exchanging `until_ns`, so that an element never
 * leaves its set for that. A lost race costs an element, or its new time-out, never another element's.
 *
 * Needs flow.h for the seed of hashes, rewrite.h for operations.
 */
#ifndef WEIR_DYNSET_H
#define WEIR_DYNSET_H

const volatile __u32 weir_set_bits = 0;	/* of weir_set_bit that are used; 0: nothing may look them up, or a callback is named that is never called */
const volatile struct weir_set_bit weir_set_bit[WEIR_SET_BITS] = {};
const volatile struct weir_set weir_set[WEIR_DYNSETS] = {};

/* Mapped by the control program, which adds and deletes elements as a CPU does. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_elements);
} elements SEC(".maps");

#define NEVER_ENDS	(~0ULL)

/* An address of the packet as an element, in scratch. */
static __always_inline void load_address(struct scratch *s, __u32 address)
{
	__u8 *ip4 = (__u8 *)s->key + WEIR_K_IP4 + 12, *ip6 = (__u8 *)s->key + WEIR_K_IP6 + 8;
	__u32 second = address & 1;

	s->element_kind = WEIR_ELEMENT_FREE;
	s->element_high = 0;
	if (address >= WEIR_A_ETH_SOURCE) {
		__u32 at = second ? 0 : 6;

		s->element_kind = WEIR_ELEMENT_MAC;
		s->element_low = (__u64)hdr_be16(s, at) << 32 | hdr_be32(s, at + 2);
	} else if (s->key[0] & WEIR_V_IP4) {
		s->element_kind = WEIR_ELEMENT_IP4;
		s->element_low = bpf_ntohl(second ? *(__be32 *)(ip4 + 4) : *(__be32 *)ip4);
	} else if (s->key[0] & WEIR_V_IP6) {
		s->element_kind = WEIR_ELEMENT_IP6;
		s->element_high = bpf_be64_to_cpu(second ? *(__u64 *)(ip6 + 16) : *(__u64 *)ip6);
		s->element_low = bpf_be64_to_cpu(second ? *(__u64 *)(ip6 + 24) : *(__u64 *)(ip6 + 8));
	}
}

/* The bucket of the address in scratch; 0: the packet has no such address. */
static __always_inline struct weir_elements *elements_of(struct scratch *s, __u32 set)
{
	__u64 h = (s->element_low ^ weir_flow_seed) * WEIR_HASH_WORD;
	__u32 at;

	if (!s->element_kind)
		return 0;
	h = (h ^ h >> 32 ^ s->element_high) * WEIR_HASH_TABLE;
	h = (h ^ h >> 29) * WEIR_HASH_END;
	opaque(set);
	set &= WEIR_DYNSETS - 1;
	s->element_kind |= weir_set[set].tag;
	at = weir_set[set].first + spread(h >> 32, weir_set[set].buckets);
	return bpf_map_lookup_elem(&elements, &at);
}

/* Until when the address in scratch is in this place; 0: another one is, or none. */
static __always_inline __u64 element_until(struct scratch *s, struct weir_element *e)
{
	__u64 what = *(volatile __u64 *)&e->what, until;

	if ((__u32)what != s->element_kind || e->low != s->element_low || e->high != s->element_high)
		return 0;
	until = *(volatile __u64 *)&e->until_ns;
	barrier();
	return *(volatile __u64 *)&e->what == what ? until : 0;
}

#ifdef WEIR_NETWORK
/*
 * Whether the address in scratch is a member of a security group. Members lie with all other configuration of the networks, in the half of the
 * packet's generation: they change with the workloads that have the addresses, in one step.
 */
static __always_inline int is_member(struct scratch *s, __u32 group)
{
	struct weir_net_chain *chain = net_chain_here();
	__u64 k0 = 0, k1;

	switch (s->element_kind) {
	case WEIR_ELEMENT_IP4:
		k1 = NET_MAPPED(bpf_htonl((__u32)s->element_low));
		break;
	case WEIR_ELEMENT_IP6:
		k0 = bpf_cpu_to_be64(s->element_high);
		k1 = bpf_cpu_to_be64(s->element_low);
		break;
	default:
		return 0;
	}
	return chain && net_find(chain, exact_scope(WEIR_EX_GROUP, group, s->element_kind), k0, k1);
}
#endif

/* Whether an address of the packet is in a set. A global function, so that the verifier walks it once and not with each state of its callers. */
__noinline int address_is_in(__u32 level, __u32 set, __u32 address)
{
	struct scratch *s = scratch_of(level);
	struct weir_elements *bucket;
	__u64 t;
	__u32 n;

	if (!(weir_features & WEIR_F_SETS) || !s)
		return 0;
	load_address(s, address);
#ifdef WEIR_NETWORK
	opaque(set);
	set &= WEIR_DYNSETS - 1;
	/* A set without buckets is a security group, and `first` its number. */
	if (!weir_set[set].buckets)
		return is_member(s, weir_set[set].first);
#endif
	bucket = elements_of(s, set);
	if (!bucket)
		return 0;
	t = now(s);
#pragma unroll
	for (n = 0; n < WEIR_ELEMENTS; n++) {
		if (element_until(s, &bucket->place[n]) > t)
			return 1;
	}
	return 0;
}

static long look_up_bit(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 bit = i;

	opaque(bit);
	bit &= WEIR_SET_BITS - 1;
	if (address_is_in(s->level, weir_set_bit[bit].set, weir_set_bit[bit].address))
		((__u8 *)s->key)[WEIR_K_SETS + bit / 8] |= 1 << (bit & 7);
	return 0;
}

/* The bits of the key that say which sets have the packet's addresses. */
static __always_inline void look_up_sets(struct walk *w)
{
	*(__u32 *)((__u8 *)w->s->key + WEIR_K_SETS) = 0;
	bpf_loop(weir_set_bits, look_up_bit, w, 0);
}

/* `what` of a place once it holds something else. */
static __always_inline __u64 next_what(__u64 what, __u32 low)
{
	return ((what >> 32) + 1) << 32 | low;
}

/* Renews the time-out of the address in scratch, which never becomes shorter. Returns whether it is in the set. */
static __always_inline int renew_element(struct scratch *s, struct weir_elements *bucket, __u64 until)
{
	__u64 t = now(s), have;
	__u32 n, at;
	struct weir_element *e;

	s->element_at = WEIR_ELEMENTS;
#pragma unroll
	for (n = WEIR_ELEMENTS; n; n--) {
		if (element_until(s, &bucket->place[n - 1]) > t)
			s->element_at = n - 1;
	}
	at = *(volatile __u32 *)&s->element_at;
	if (at >= WEIR_ELEMENTS)
		return 0;
	opaque(at);
	e = &bucket->place[at & (WEIR_ELEMENTS - 1)];
#pragma unroll
	for (n = 0; n < 3; n++) {
		have = element_until(s, e);
		/* A place that became another's since has another time: the exchange fails. */
		if (have <= t || have >= until || __sync_val_compare_and_swap(&e->until_ns, have, until) == have)
			break;
	}
	return 1;
}

#define PLACE_LOST	1	/* another CPU took it meanwhile */

/* Puts the address in scratch into a free place, or into that of the element that ends first. Returns PLACE_LOST or what is to be noted. */
static __always_inline int take_place(struct scratch *s, struct weir_elements *bucket, __u64 until)
{
	__u64 t = now(s), what, ends;
	struct weir_element *e;
	__u32 n, at;

	s->element_least = NEVER_ENDS;
	s->element_at = WEIR_ELEMENTS;
#pragma unroll
	for (n = 0; n < WEIR_ELEMENTS; n++) {
		what = *(volatile __u64 *)&bucket->place[n].what;
		ends = *(volatile __u64 *)&bucket->place[n].until_ns;
		if (what & WEIR_ELEMENT_CLAIMED)
			continue;
		if (((__u32)what ^ s->element_kind) >> WEIR_ELEMENT_TAG || !(what & (WEIR_ELEMENT_CLAIMED - 1)) || ends <= t)
			ends = 0;
		if (ends < s->element_least) {
			s->element_least = ends;
			s->element_seen = what;
			s->element_at = n;
		}
	}
	at = *(volatile __u32 *)&s->element_at;
	if (at >= WEIR_ELEMENTS || s->element_least > until)
		return WEIR_R_set_full;
	opaque(at);
	e = &bucket->place[at & (WEIR_ELEMENTS - 1)];
	what = s->element_seen;
	if (__sync_val_compare_and_swap(&e->what, what, what | WEIR_ELEMENT_CLAIMED) != what)
		return PLACE_LOST;
	e->until_ns = 0;
	barrier();
	e->high = s->element_high;
	e->low = s->element_low;
	barrier();
	*(volatile __u64 *)&e->until_ns = until;
	barrier();
	*(volatile __u64 *)&e->what = next_what(what, s->element_kind);
	return s->element_least ? WEIR_R_set_displaced : 0;
}

/* Carries out the operation of `add @SET ADDRESS` or `delete @SET ADDRESS`. Returns PLACE_LOST or what is to be noted. */
__noinline int change_set(__u32 level, __u32 at)
{
	struct scratch *s = scratch_of(level);
	struct weir_op *op = bpf_map_lookup_elem(&ops, &at);
	struct weir_elements *bucket;
	__u64 until, what;
	__u32 n;

	if (!(weir_features & WEIR_F_SETS) || !s || !op)
		return 0;
	load_address(s, op->base);
	bucket = elements_of(s, op->off);
	if (!bucket)
		return 0;
	if (op->kind == WEIR_O_SET_DELETE) {
#pragma unroll
		for (n = 0; n < WEIR_ELEMENTS; n++) {
			struct weir_element *e = &bucket->place[n];

			what = *(volatile __u64 *)&e->what;
			if (element_until(s, e))
				__sync_val_compare_and_swap(&e->what, what, next_what(what, WEIR_ELEMENT_FREE));
		}
		return 0;
	}
	until = now(s) + op->u.timeout_ns;
	if (until < op->u.timeout_ns)
		until = NEVER_ENDS;
	if (renew_element(s, bucket, until))
		return 0;
	return take_place(s, bucket, until);
}

static long set_op(__u32 i, void *arg)
{
	struct walk *w = arg;
	__u32 at = w->s->op_first + i, n, level = w->s->level;
	struct weir_op *op = bpf_map_lookup_elem(&ops, &at);
	int said = PLACE_LOST;

	if (!op)
		return 1;
	if (op->kind != WEIR_O_SET_ADD && op->kind != WEIR_O_SET_DELETE)
		return 0;
	for (n = 0; n < 3 && said == PLACE_LOST; n++)
		said = change_set(level, at);
	/* What a compiler knows of a function's values, the verifier does not: the bound in note() stays. */
	asm volatile("" : "+r"(said));
	if (said)
		note(w, said == PLACE_LOST ? WEIR_R_set_full : said);
	return 0;
}

/* Keeps the lowest hit behind hit_last in hit_next. */
static long lowest_set_hit(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at = i;

	opaque(at);
	at &= WEIR_HITS - 1;
	if (s->hits[at] > s->hit_last && s->hits[at] < s->hit_next)
		s->hit_next = s->hits[at];
	return 0;
}

static long set_hit(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	struct weir_rule *rule;
	__u32 at;

	s->hit_next = ~0ULL;
	bpf_loop(s->n_hits, lowest_set_hit, w, 0);
	s->hit_last = s->hit_next;
	at = s->hit_last;
	rule = bpf_map_lookup_elem(&rules, &at);
	/* That of a connection whose rewrites do not run: it changes no sets. */
	if (!rule)
		return 0;
	s->op_first = rule->op_first;
	bpf_loop(rule->op_count, set_op, w, 0);
	return 0;
}

/*
 * What the rules that matched do to sets, in rule order, whatever becomes of the packet. With callbacks of its own, so that what rewrites
 * packets stays as it is for policies without sets.
 */
static __always_inline void change_sets(struct walk *w)
{
	w->s->hit_last = 0;
	bpf_loop(w->s->n_hits, set_hit, w, 0);
}

#endif
