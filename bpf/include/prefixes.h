/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Address -> row of rules, whatever the number of prefixes: all prefixes of a
 * filter were merged into disjoint intervals, each with its row. A direct table on 16 bits of the address
 * leads to the few intervals there, which are searched (docs/design/filter.md).
 *
 * Every interval has a position, by which its hits are counted and its times are found. Position 0 is nobody's.
 * crates/weir-functions/src/filter/tables.rs writes what is read here.
 */
#ifndef WEIR_PREFIXES_H
#define WEIR_PREFIXES_H

#define SIDE_SRC	0
#define SIDE_DST	1
#define SEARCH6_MAX	32	/* steps; positions have 32 bits */
#define SUBTREE		(1U << 31)	/* in a row of IPv6: the low half of the address decides, by this entry of `low6` */

/* By side. */
const volatile __u64 weir_common6[2] = {};	/* what all IPv6 prefixes begin with */
const volatile __u64 weir_common_mask6[2] = {};
const volatile __u32 weir_window6[2] = {};	/* shift that brings the 16 bits of the direct table down */
const volatile __u32 weir_outside6[2] = {};	/* row of addresses that begin otherwise */
const volatile __u32 weir_row_shift = 0;	/* rows of an element, as a power of two */
const volatile __u32 weir_row_mask = 0;
const volatile __u32 weir_unit4 = 4;		/* bytes of an interval in a block: 4 and its counters; 4: these are in `hits` */
const volatile __u32 weir_words = 1;		/* 64-bit words of a row */
const volatile __u32 weir_lives[4] = {};	/* first life of each table: side * 2 + (family == 6) */
const volatile __u64 weir_clock_offset = 0;	/* nanoseconds since 1970 minus those of the coarse clock */

struct top_table {
	struct weir_filter_top at[WEIR_FILTER_TOP];
};

struct block {
	__u8 byte[WEIR_FILTER_BLOCKS];
};

struct chunk {
	__u8 byte[WEIR_FILTER_CHUNK];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct top_table);
} top4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct top_table);
} top6 SEC(".maps");

/* Of parts of IPv4 that have more intervals than a block holds: where those of each 256 addresses lie. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_filter_top);
} sub4 SEC(".maps");

/*
 * Blocks of IPv4: for n intervals n lower halves, u16, then n rows, u16, then n times their counters, u16. All that lies in one element. Each CPU
 * has a copy, for the counters: in a map of their own they would be one more random access, which costs more than all the rest.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct block);
} blocks4 SEC(".maps");

/* By position: where intervals of IPv6 begin (upper, or lower halves), u64, and behind each its row, u32, and 4 bytes of nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct chunk);
} bounds6 SEC(".maps");

/* Intervals of the lower halves below one upper half. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_filter_top);
} low6 SEC(".maps");

/* Rows of bits, one for each rule in rule order: the condition on this side of the packet holds. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct chunk);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_filter_life);
} lives SEC(".maps");

struct place {
	__u32 row;
	__u32 position;
	__u32 counter;		/* IPv4: byte of its first counter in `blocks4` */
};

/* Reads a byte for the cache line around it: lines that are asked for together take as long as one. */
static __always_inline void touch(__u8 *block, __u32 at)
{
	__u64 none;

	opaque(at);
	at &= WEIR_FILTER_BLOCKS - 1;
	asm volatile("%0 = *(u8 *)(%1 + 0)" : "=r"(none) : "r"(block + at));
}

static __always_inline struct place find4(const __u32 side, __u32 address)
{
	__u32 key = side, i = address >> 16, low = address & 0xffff, chunk, at, base = 0, n, half, step;
	struct top_table *top = bpf_map_lookup_elem(&top4, &key);
	struct weir_filter_top *sub;
	struct place found = {};
	__u64 entry;
	__u8 *block;

	if (!top)
		return found;
	opaque(i);
	i &= WEIR_FILTER_TOP - 1;
	entry = *(__u64 *)&top->at[i];
	if ((__s64)entry < 0) {
		key = (__u32)entry * WEIR_FILTER_SUB + (low >> 8);
		sub = bpf_map_lookup_elem(&sub4, &key);
		if (!sub)
			return found;
		entry = *(__u64 *)sub;
	}
	found.position = entry;
	n = entry >> 48;
	if (!n) {
		found.row = entry >> 32;
		found.counter = found.position * weir_unit4 + 4;
		return found;
	}
	n++;
	at = found.position * weir_unit4;
	chunk = at / WEIR_FILTER_BLOCKS;
	block = bpf_map_lookup_elem(&blocks4, &chunk);
	if (!block)
		return found;
	found.counter = at + n * 4;
	at %= WEIR_FILTER_BLOCKS;
	if (n > 64 / 6) {
		touch(block, at + 64);
		touch(block, at + 128);
		touch(block, at + 192);
	}
	half = n;
	for (step = 0; step < 13; step++) {
		__u32 more, mid;
		__u64 bound;

		if (half <= 1)
			break;
		more = half >> 1;
		mid = at + (base + more) * 2;
		opaque(mid);
		mid &= WEIR_FILTER_BLOCKS - 2;
		bound = *(__u16 *)(block + mid);
		/* All ones where bound <= low: no branch to mispredict. */
		base += more & (__u32)((bound - low - 1) >> 32);
		half -= more;
	}
	found.position += base;
	found.counter += base * (weir_unit4 - 4);
	at += (n + base) * 2;
	opaque(at);
	at &= WEIR_FILTER_BLOCKS - 2;
	found.row = *(__u16 *)(block + at);
	return found;
}

/* The last of n intervals from `first` on that begins at or below the key; its first one does. Global: the verifier walks it once. */
__noinline __u32 search6(__u32 first, __u32 n, __u64 key)
{
	__u32 step;

	for (step = 0; step < SEARCH6_MAX; step++) {
		__u32 more = n >> 1, mid = first + more, chunk = mid / (WEIR_FILTER_CHUNK / 16);
		__u64 bound, less;
		__u8 *bounds;

		if (n <= 1)
			break;
		bounds = bpf_map_lookup_elem(&bounds6, &chunk);
		if (!bounds)
			break;
		bound = *(__u64 *)(bounds + mid % (WEIR_FILTER_CHUNK / 16) * 16);
		/* The borrow of key - bound, 0 where bound <= key: no branch to mispredict. */
		less = ((~key & bound) | ((~key | bound) & (key - bound))) >> 63;
		first += more & (__u32)(less - 1);
		n -= more;
	}
	return first;
}

static __always_inline __u32 row6(__u32 position)
{
	__u32 chunk = position / (WEIR_FILTER_CHUNK / 16), at = position % (WEIR_FILTER_CHUNK / 16) * 16;
	__u8 *here = bpf_map_lookup_elem(&bounds6, &chunk);

	return here ? *(__u32 *)(here + at + 8) : 0;
}

static __always_inline struct place find6(const __u32 side, __u64 high, __u64 low)
{
	__u32 key = side, i;
	struct top_table *top;
	struct weir_filter_top *sub;
	struct place found = {};

	found.row = weir_outside6[side];
	if ((high ^ weir_common6[side]) & weir_common_mask6[side])
		return found;
	top = bpf_map_lookup_elem(&top6, &key);
	if (!top)
		return found;
	i = high >> (weir_window6[side] & 63);
	opaque(i);
	i &= WEIR_FILTER_TOP - 1;
	found.position = search6(top->at[i].first, top->at[i].what, high);
	found.row = row6(found.position);
	if (found.row & SUBTREE) {
		i = found.row & ~SUBTREE;
		sub = bpf_map_lookup_elem(&low6, &i);
		if (!sub)
			return found;
		found.position = search6(sub->first, sub->what, low);
		found.row = row6(found.position);
	}
	return found;
}

/* What holds at a time of what was found. An address outside of all prefixes has position 0 in every table, which only the first has. */
static __always_inline void outlive(struct place *found, __u32 table, __u64 now_ns)
{
	__u32 i, at;

	if (!found->position)
		return;
	for (i = 0; i < WEIR_FILTER_LIVES; i++) {
		struct weir_filter_life *life;

		at = weir_lives[table & 3] + found->position;
		life = bpf_map_lookup_elem(&lives, &at);
		if (!life || !life->until || now_ns < life->until * 1000000000ULL)
			break;
		found->position = life->then;
		found->row = life->row;
		found->counter = life->then * weir_unit4 + 4;
	}
}

static __always_inline __u64 *row_at(__u32 row)
{
	__u32 chunk = row >> (weir_row_shift & 31), at = row & weir_row_mask, size = weir_words * 8;
	__u8 *here = bpf_map_lookup_elem(&rows, &chunk);

	if (!here)
		return 0;
	/*
	 * In this order: Linux 6.1 knows nothing of a product whose second factor is no constant. Volatile: compilers would move the sum to
	 * before the check, where the verifier allows none.
	 */
	asm volatile("%1 *= %2" : "+r"(here), "+w"(at) : "w"(size));
	return (__u64 *)(here + at);
}

#endif
