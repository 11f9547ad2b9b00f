/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which server a flow has: one array of buckets of a cache line, shared by all CPUs, eight bytes for a flow. Flows
 * of which one packet was seen have a part of a bucket only, and new flows displace only those; a confirmed one stays until it was idle for
 * the time of its kind. So a flood of new flows cannot push out one that talks (docs/design/balancer.md).
 *
 * Entries are read and written whole. What a lost race costs is that a flow is remembered at its next packet; the ring gives the same
 * server until then. Fragments of a datagram are remembered in the same way in a smaller array.
 */
#ifndef WEIR_STICKY_H
#define WEIR_STICKY_H

/* What sticky_answers() finds. */
#define STICKY_UNKNOWN	0
#define STICKY_KNOWN	1
#define STICKY_FULL	2	/* unknown, and no room to be known */

const volatile __u32 weir_lb_flow_mask = 0;	/* buckets - 1 */
const volatile __u32 weir_lb_fragment_mask = 0;
const volatile __u32 weir_lb_idle[WEIR_LB_STATES] = {};	/* after which a flow may be displaced, in units of time, by state */
const volatile __u64 weir_lb_secret = 0;	/* what places in the table depend on */

/* Mapped memory, so that buckets begin at cache lines. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_lb_bucket);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_lb_bucket);
} fragments SEC(".maps");

/* A flow as a number. The same on every edge, because the ring is asked by it. */
static __always_inline __u64 sticky_hash(__u64 src_high, __u64 src_low, __u64 dst_high, __u64 dst_low, __u64 rest)
{
	__u64 h = (src_low ^ WEIR_HASH_SEED) * WEIR_HASH_WORD;

	h = (h ^ h >> 32 ^ dst_low) * WEIR_HASH_TABLE;
	if (src_high | dst_high)
		h = (h ^ h >> 31 ^ src_high ^ (dst_high << 7 | dst_high >> 57)) * WEIR_HASH_WORD;
	h = (h ^ h >> 29 ^ rest) * WEIR_HASH_END;
	h = (h ^ h >> 32) * WEIR_HASH_WORD;
	return h ^ h >> 29;
}

/* Where it is remembered: the low bits are the bucket, those above WEIR_LB_TAG the tag. */
static __always_inline __u64 sticky_key(__u64 hash)
{
	__u64 h = (hash ^ weir_lb_secret) * WEIR_HASH_TABLE;

	h = (h ^ h >> 32) * WEIR_HASH_END;
	return h ^ h >> 31;
}

static __always_inline __u64 sticky_entry(__u64 key, __u32 state, __u32 server, __u32 now)
{
	return key >> WEIR_LB_TAG << WEIR_LB_TAG | (__u64)state << WEIR_LB_STATE | (__u64)server << WEIR_LB_SERVER | (now & 0xffff);
}

static __always_inline __u32 sticky_state(__u64 entry)
{
	return entry >> WEIR_LB_STATE & (WEIR_LB_STATES - 1);
}

static __always_inline __u32 sticky_server(__u64 entry)
{
	return entry >> WEIR_LB_SERVER & 0xffff;
}

/* Way of a flow in its bucket, WEIR_LB_WAYS: none. `zero` is 0, which the verifier does not know: all ways are one to it. */
static __always_inline __u32 sticky_find(struct weir_lb_bucket *bucket, __u64 key, __u32 zero)
{
	__u64 e;
	__u32 i;

#pragma unroll
	for (i = 0; i < WEIR_LB_WAYS; i++) {
		e = bucket->entry[i];
		if (e && (e ^ key) >> WEIR_LB_TAG == 0)
			break;
	}
	return i + zero;
}

/*
 * What the table says of a packet that may be an answer of `server` to the flow of this hash. It is one if that flow is remembered with that
 * server; the entry is as young as the answer then, in the state it had, so that a flow in which only the server talks is not displaced. A full
 * bucket, of confirmed flows that are not idle, may have had no room for the flow. Global as sticky_put() below.
 */
__noinline __u32 sticky_answers(__u64 hash, __u32 server, __u32 now, __u32 zero)
{
	__u64 key = sticky_key(hash), e, changed;
	__u32 at = (__u32)key & weir_lb_flow_mask, way, i, state, full = 1 + zero;
	struct weir_lb_bucket *bucket = bpf_map_lookup_elem(&flows, &at);

	if (!bucket)
		return STICKY_UNKNOWN;
	way = sticky_find(bucket, key, zero);
	if (way < WEIR_LB_WAYS) {
		opaque(way);
		way &= WEIR_LB_WAYS - 1;
		e = bucket->entry[way];
		if (sticky_server(e) != server)
			return STICKY_UNKNOWN;
		changed = sticky_entry(key, sticky_state(e), server, now);
		if (changed != e)
			bucket->entry[way] = changed;
		return STICKY_KNOWN;
	}
#pragma unroll
	for (i = 0; i < WEIR_LB_WAYS; i++) {
		e = bucket->entry[i];
		state = sticky_state(e);
		if (!e || state == WEIR_LB_NEW || ((now - (__u32)e) & 0xffff) > weir_lb_idle[state])
			full = zero;
	}
	return full ? STICKY_FULL : STICKY_UNKNOWN;
}

/*
 * Remembers `entry` in a bucket of flows, or of fragments. Global, so that the verifier walks it by itself, with arguments of which it knows
 * nothing; `zero` is 0. Returns 0 where there is no room.
 */
__noinline __u32 sticky_put(__u32 bucket_number, __u64 entry, __u32 now, __u32 is_fragment, __u32 zero)
{
	__u32 i, state, age, fresh = zero, free = WEIR_LB_WAYS + zero, oldest = WEIR_LB_WAYS + zero, oldest_age = zero, at;
	struct weir_lb_bucket *bucket;
	__u64 e;

	if (is_fragment)
		bucket = bpf_map_lookup_elem(&fragments, &bucket_number);
	else
		bucket = bpf_map_lookup_elem(&flows, &bucket_number);
	if (!bucket)
		return 0;
#pragma unroll
	for (i = 0; i < WEIR_LB_WAYS; i++) {
		e = bucket->entry[i];
		state = sticky_state(e);
		age = (now - (__u32)e) & 0xffff;
		if (e && (e ^ entry) >> WEIR_LB_TAG == 0) {
			at = i + zero;
			goto store;
		}
		if (!e || age > weir_lb_idle[state]) {
			free = i + zero;
			continue;
		}
		/* Of fragments, all may be displaced: they matter for a moment. */
		if (state == WEIR_LB_NEW || is_fragment) {
			fresh += 1 + zero;
			if (age >= oldest_age) {
				oldest = i + zero;
				oldest_age = age;
			}
		}
	}
	at = free;
	if (fresh >= WEIR_LB_QUOTA && !is_fragment)
		at = oldest;
	if (at >= WEIR_LB_WAYS)
		at = oldest;
	if (at >= WEIR_LB_WAYS)
		return 0;
store:
	opaque(at);
	at &= WEIR_LB_WAYS - 1;
	bucket->entry[at] = entry;
	return 1;
}

/*
 * Remembers a flow whose server its packets name themselves (QUIC), so that answers are known as such: confirmed by the second packet as
 * others. Returns 0 where there is no room.
 */
__noinline __u32 sticky_follow(__u64 hash, __u32 server, __u32 now, __u32 zero)
{
	__u64 key = sticky_key(hash), e, changed;
	__u32 at = (__u32)key & weir_lb_flow_mask, way;
	struct weir_lb_bucket *bucket = bpf_map_lookup_elem(&flows, &at);

	if (!bucket)
		return 0;
	way = sticky_find(bucket, key, zero);
	if (way < WEIR_LB_WAYS) {
		opaque(way);
		way &= WEIR_LB_WAYS - 1;
		e = bucket->entry[way];
		if (sticky_server(e) == server) {
			changed = sticky_entry(key, WEIR_LB_UDP, server, now);
			if (changed != e)
				bucket->entry[way] = changed;
			return 1;
		}
	}
	return sticky_put(at, sticky_entry(key, WEIR_LB_NEW, server, now), now, 0, zero);
}

#endif
