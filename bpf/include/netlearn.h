/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What bridges and routers of virtual networks learn: a run of an array for
 * each, so that one tenant cannot push out another's. A key lies in one of
 * the four cells behind its hash; who finds none of them free or expired takes
 * the one that has been silent for longest.
 *
 * A cell is written under its first word, which is all ones meanwhile; who reads compares that word before and after. Needs clock.h.
 */
#ifndef WEIR_NETLEARN_H
#define WEIR_NETLEARN_H

#define LEARN_WAYS	4
#define LEARN_BUSY	(~0ULL)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_net_learned);
} net_learned SEC(".maps");

/* Seconds, never 0. */
static __always_inline __u32 learn_now(void)
{
	return (__u32)(clock_ns() / 1000000000) + 1;
}

static __always_inline struct weir_net_learned *learn_cell(__u32 first, __u32 mask, __u64 k0, __u64 k1, __u32 way)
{
	__u64 h = (k0 ^ k1 * WEIR_EX_FIRST) * WEIR_EX_SECOND;
	__u32 at = first + (((__u32)(h >> 40) + way) & mask);

	return bpf_map_lookup_elem(&net_learned, &at);
}

static __always_inline int learn_alive(struct weir_net_learned *l, __u32 now, __u32 age)
{
	return l->seen && now - l->seen <= age;
}

static __always_inline struct weir_net_learned *net_learned_find(__u32 first, __u32 mask, __u32 age, __u64 k0, __u64 k1)
{
	struct weir_net_learned *l, *found = 0;
	__u32 now = learn_now(), way;

#pragma unroll
	for (way = 0; way < LEARN_WAYS; way++) {
		l = learn_cell(first, mask, k0, k1, way);
		if (l && !found && l->key[0] == k0 && l->key[1] == k1 && learn_alive(l, now, age))
			found = l;
	}
	return found;
}

/* Learns, or hears again, that `k0`, `k1` is behind interface `vid`. */
static __always_inline void net_learn(__u32 first, __u32 mask, __u32 age, __u64 k0, __u64 k1, __u64 extra, __u32 vid)
{
	struct weir_net_learned *l, *place = 0, *same = 0;
	__u32 now = learn_now(), way, silent, longest = 0;
	__u64 was;

#pragma unroll
	for (way = 0; way < LEARN_WAYS; way++) {
		l = learn_cell(first, mask, k0, k1, way);
		if (!l)
			continue;
		if (l->key[0] == k0 && l->key[1] == k1 && l->seen)
			same = l;
		silent = learn_alive(l, now, age) ? now - l->seen : ~0U;
		if (!place || silent > longest) {
			place = l;
			longest = silent;
		}
	}
	if (same) {
		/* Most packets change nothing, and write nothing. */
		if (same->vid == vid && same->extra == extra && same->seen == now)
			return;
		place = same;
	}
	if (!place)
		return;
	was = place->key[0];
	if (was == LEARN_BUSY || __sync_val_compare_and_swap(&place->key[0], was, LEARN_BUSY) != was)
		return;
	place->key[1] = k1;
	place->extra = extra;
	place->vid = vid;
	place->seen = now;
	__sync_val_compare_and_swap(&place->key[0], LEARN_BUSY, k0);
}

#endif
