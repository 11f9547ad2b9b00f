/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a filter remembers of sources: token words of its rate limits, and
 * sources that are blocked for a time. Buckets of a cache line each, in plain
 * arrays: the kernel's LRU hash would cost more than the rest of the filter. A full bucket
 * forgets the way that matters least: the limit that is nearest to idle, the block that ends first.
 *
 * All of it is shared by the CPUs and written with atomics. What a lost race costs is a token, never a wrong verdict for long.
 */
#ifndef WEIR_LIMITS_H
#define WEIR_LIMITS_H

const volatile __u32 weir_limit_mask = 0;	/* buckets - 1 */
const volatile __u32 weir_block_mask = 0;
const volatile __u64 weir_filter_secret = 0;	/* what the hash of sources depends on */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_filter_limit);
} limits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_filter_blocks);
} blocks SEC(".maps");

/* Words of limits that are counted for a whole rule, by rule. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_FILTER_RULES);
	__type(key, __u32);
	__type(value, __u64);
} totals SEC(".maps");

static __always_inline __u64 mix(__u64 high, __u64 low)
{
	__u64 h = (low ^ weir_filter_secret) * WEIR_HASH_WORD;

	h = (h ^ h >> 32 ^ high) * WEIR_HASH_TABLE;
	h = (h ^ h >> 29) * WEIR_HASH_END;
	return h ^ h >> 32;
}

/* GCRA: counts a packet in a word, unless that is too far ahead. Four tries against other CPUs. */
static __always_inline int over(__u64 *word, __u64 now_ns, __u64 interval_ns, __u64 burst_ns)
{
	__u64 old, base;
	int i;

#pragma unroll
	for (i = 0; i < 4; i++) {
		old = *(volatile __u64 *)word;
		base = old > now_ns ? old : now_ns;
		if (base - now_ns > burst_ns)
			return 1;
		if (__sync_val_compare_and_swap(word, old, base + interval_ns) == old)
			return 0;
	}
	return 1;
}

/* The word of a tag; a new one if there is none. */
static __always_inline __u64 *limit_word(__u64 tag)
{
	__u32 at = tag & weir_limit_mask, i, victim = 0;
	struct weir_filter_limit *bucket = bpf_map_lookup_elem(&limits, &at);
	__u64 least = ~0ULL, old;

	if (!bucket)
		return 0;
	tag |= 1ULL << 63;
#pragma unroll
	for (i = 0; i < WEIR_FILTER_WAYS; i++) {
		if (bucket->tag[i] == tag)
			return &bucket->ahead_ns[i];
	}
#pragma unroll
	for (i = 0; i < WEIR_FILTER_WAYS; i++) {
		__u64 ahead = bucket->tag[i] ? bucket->ahead_ns[i] : 0;

		if (ahead < least) {
			least = ahead;
			victim = i;
		}
	}
	victim &= WEIR_FILTER_WAYS - 1;
	old = bucket->tag[victim];
	if (__sync_val_compare_and_swap(&bucket->tag[victim], old, tag) == old)
		bucket->ahead_ns[victim] = 0;
	return &bucket->ahead_ns[victim];
}

/* Whether a source is blocked now; if so, the packet is counted with it. */
static __always_inline int is_blocked(__u64 high, __u64 low, __u64 now_ns)
{
	__u32 at = mix(high, low) & weir_block_mask, i;
	struct weir_filter_blocks *bucket = bpf_map_lookup_elem(&blocks, &at);

	if (!bucket)
		return 0;
#pragma unroll
	for (i = 0; i < WEIR_FILTER_WAYS; i++) {
		struct weir_filter_block *way = &bucket->way[i];

		if (way->low == low && way->high == high && way->until_ns > now_ns) {
			__sync_fetch_and_add(&way->dropped, 1);
			return 1;
		}
	}
	return 0;
}

/* Blocks a source that is not blocked. */
static __always_inline void block(__u64 high, __u64 low, __u64 until_ns)
{
	__u32 at = mix(high, low) & weir_block_mask, i, victim = 0;
	struct weir_filter_blocks *bucket = bpf_map_lookup_elem(&blocks, &at);
	struct weir_filter_block *way;
	__u64 least = ~0ULL;

	if (!bucket)
		return;
#pragma unroll
	for (i = 0; i < WEIR_FILTER_WAYS; i++) {
		if (bucket->way[i].until_ns < least) {
			least = bucket->way[i].until_ns;
			victim = i;
		}
	}
	way = &bucket->way[victim & (WEIR_FILTER_WAYS - 1)];
	way->until_ns = 0;
	way->high = high;
	way->low = low;
	way->dropped = 0;
	way->until_ns = until_ns;
}

#endif
