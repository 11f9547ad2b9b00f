// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * What memory and calls cost by themselves: each program does one thing STEPS
 * times in a run, and `limits_loop` does nothing as often. Where the next step
 * depends on what the last one read, no step can begin before the last ended.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

#define STEPS	256
/* Tail calls of a run: the kernel follows 33. */
#define TAILS	32

/* Entries of the maps less one; their number is a power of two. */
const volatile __u32 limits_mask = 0;

/* Where the last run ended, so that each one goes on over other entries. */
__u32 limits_at = 0;

struct line {
	__u32 next;
	__u32 pad[15];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct line);
} chain SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct tuple {
	__u32 number;
	__u32 rest[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct tuple);
	__type(value, __u64);
} hash SEC(".maps");

struct prefix {
	__u32 len;
	__u32 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u64);
} trie SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps");

/* A step to some other entry; the constants are those of Numerical Recipes. */
static __always_inline __u32 elsewhere(__u32 at)
{
	return at * 1664525 + 1013904223;
}

SEC("xdp")
int limits_loop(struct xdp_md *ctx)
{
	__u32 i, at = limits_at;

	for (i = 0; i < STEPS; i++) {
		at = elsewhere(at);
		barrier_var(at);
	}
	limits_at = at;
	return XDP_PASS;
}

SEC("xdp")
int limits_chain(struct xdp_md *ctx)
{
	__u32 i, at = limits_at;
	struct line *line;

	for (i = 0; i < STEPS; i++) {
		line = bpf_map_lookup_elem(&chain, &at);
		if (!line)
			break;
		at = line->next;
	}
	limits_at = at & limits_mask;
	return XDP_PASS;
}

SEC("xdp")
int limits_percpu(struct xdp_md *ctx)
{
	__u32 i, key, at = limits_at;
	__u64 *counter;

	for (i = 0; i < STEPS; i++) {
		at = elsewhere(at);
		key = at >> 26;
		counter = bpf_map_lookup_elem(&counters, &key);
		if (!counter)
			break;
		*counter += 1;
	}
	limits_at = at;
	return XDP_PASS;
}

SEC("xdp")
int limits_atomic(struct xdp_md *ctx)
{
	__u32 i, at = limits_at, zero = 0;
	struct line *line = bpf_map_lookup_elem(&chain, &zero);

	if (!line)
		goto out;
	for (i = 0; i < STEPS; i++) {
		at = elsewhere(at);
		barrier_var(at);
		__sync_fetch_and_add(&line->pad[0], 1);
	}
	limits_at = at;
out:
	return XDP_PASS;
}

SEC("xdp")
int limits_hash(struct xdp_md *ctx)
{
	__u32 i, at = limits_at;
	struct tuple key = {};
	__u64 *value;

	for (i = 0; i < STEPS; i++) {
		at = elsewhere(at);
		key.number = (at >> 8) & limits_mask;
		value = bpf_map_lookup_elem(&hash, &key);
		if (!value)
			break;
		/* The next key waits for this value, which is 0. */
		at += *value;
	}
	limits_at = at;
	return XDP_PASS;
}

SEC("xdp")
int limits_trie(struct xdp_md *ctx)
{
	struct prefix key = { .len = 32 };
	__u32 i, at = limits_at;
	__u64 *value;

	for (i = 0; i < STEPS; i++) {
		at = elsewhere(at);
		key.address = (at >> 8) & limits_mask;
		value = bpf_map_lookup_elem(&trie, &key);
		if (!value)
			break;
		at += *value;
	}
	limits_at = at;
	return XDP_PASS;
}

static __noinline __u32 call(__u32 at)
{
	barrier_var(at);
	return elsewhere(at);
}

SEC("xdp")
int limits_call(struct xdp_md *ctx)
{
	__u32 i, at = limits_at;

	for (i = 0; i < STEPS; i++)
		at = call(at);
	limits_at = at;
	return XDP_PASS;
}

/* The NUMA node: as short as a helper can be, and never compiled in line. */
SEC("xdp")
int limits_helper(struct xdp_md *ctx)
{
	__u32 i, at = limits_at;

	for (i = 0; i < STEPS; i++) {
		at = elsewhere(at);
		at += bpf_get_numa_node_id();
	}
	limits_at = at;
	return XDP_PASS;
}

SEC("xdp")
int limits_clock(struct xdp_md *ctx)
{
	__u32 i, at = limits_at;

	for (i = 0; i < STEPS; i++) {
		at = elsewhere(at);
		at += bpf_ktime_get_ns();
	}
	limits_at = at;
	return XDP_PASS;
}

SEC("xdp")
int limits_tail(struct xdp_md *ctx)
{
	__u32 left = limits_at;

	if (left >= TAILS) {
		limits_at = 0;
		goto out;
	}
	limits_at = left + 1;
	bpf_tail_call(ctx, &programs, 0);
out:
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
