/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Look-ups in the table of exact matches of virtual networks (abi/network.h says what is in it).
 *
 * A key lies in one of two buckets, whose numbers are the two halves of a hash of 64 bits. The planner places every key before the table is
 * written, so a look-up reads two cache lines at most and nothing else. A value of the map is one bucket: 64 bytes, and the map is
 * mapped memory, so buckets begin at cache lines. crates/weir-network/src/exact.rs is the same in Rust.
 */
#ifndef WEIR_EXACT_H
#define WEIR_EXACT_H

struct exact_bucket {
	struct weir_exact cell[WEIR_EX_WAYS];
};

/* The loader sets the number of buckets of both halves. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct exact_bucket);
} net_exact SEC(".maps");

static __always_inline __u32 exact_scope(__u32 kind, __u32 instance, __u32 length)
{
	return kind << WEIR_EX_KIND | instance << WEIR_EX_INSTANCE | length;
}

/*
 * Multiplication carries upwards only, hence the folds in between. The scope meets k1 where IPv4 addresses leave it constant, so one
 * multiplication for the first word and two for all are as good as a hash that mixes every word by itself (the test of the Rust half).
 */
static __always_inline __u64 exact_hash(__u32 scope, __u64 k0, __u64 k1)
{
	__u64 h = (WEIR_EX_SEED ^ k0) * WEIR_EX_FIRST;

	h ^= k1 ^ scope;
	h ^= h >> 32;
	h *= WEIR_EX_SECOND;
	h ^= h >> 29;
	h *= WEIR_EX_FIRST;
	return h ^ h >> 32;
}

static __always_inline struct weir_exact *exact_in(__u32 bucket, __u32 scope, __u64 k0, __u64 k1)
{
	struct exact_bucket *b = bpf_map_lookup_elem(&net_exact, &bucket);

	if (!b)
		return 0;
	if (b->cell[0].scope == scope && b->cell[0].key[0] == k0 && b->cell[0].key[1] == k1)
		return &b->cell[0];
	if (b->cell[1].scope == scope && b->cell[1].key[0] == k0 && b->cell[1].key[1] == k1)
		return &b->cell[1];
	return 0;
}

/*
 * The cell of a key, or 0. `begin`: first bucket of the half; `mask`: number of buckets of it that the generation uses, a power of two, - 1.
 * A scope of 0 is nobody's: callers make scopes by exact_scope().
 */
static __always_inline struct weir_exact *exact_find(__u32 begin, __u32 mask, __u32 scope, __u64 k0, __u64 k1)
{
	__u64 h = exact_hash(scope, k0, k1);
	struct weir_exact *found = exact_in(begin + ((__u32)h & mask), scope, k0, k1);

	if (found)
		return found;
	return exact_in(begin + ((__u32)(h >> 32) & mask), scope, k0, k1);
}

#endif
