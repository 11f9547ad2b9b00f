// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The generator of the XDP benchmarks, for test runs with live frames: frames
 * of 64 bytes from one source or from many at random, as fast as it goes or
 * paced. A source is computed from its number, so that many cost the generator
 * no memory (weir-lab/src/bench/xdp/traffic.rs computes the same). The kernel
 * recycles frames without resetting them, so every byte is written anew.
 *
 * A paced flood ends by time. Runs that come too early look at the clock and
 * return their frame, runs after the end return it at once: the kernel lets
 * others of higher precedence onto the CPU between runs only, so each is short.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

#define FRAME_WORDS	8	/* 64 bytes */
#define MOST_AT_ONCE	64	/* frames that are late and sent without another look */

const volatile __u64 weir_frame[FRAME_WORDS] = {};	/* source and checksum 0 */
const volatile __u32 weir_sum = 0;	/* of all words that the checksum covers but the source's */
const volatile __u32 weir_sources = 1;
const volatile __u32 weir_ipv6 = 0;
const volatile __u32 weir_verdict = XDP_TX;	/* XDP_DROP: what generating costs by itself */

struct flood {
	__u64 rate;	/* packets a second; 0: without pacing or end */
	__u64 lasting;	/* ns */
	__u64 start;	/* by the kernel's clock, ns */
	__u64 sent;
	__u64 credit;	/* frames that may be sent without a look at the clock */
	__u64 random;
	__u64 over;
	__u64 at_once;	/* frames that wait for each other, as those behind a moderated interrupt do; at least 1 */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flood);
} floods SEC(".maps");

/* Whether a frame is due. */
static __always_inline int is_due(struct flood *flood)
{
	__u64 now, due, early;

	if (flood->credit) {
		flood->credit--;
		return 1;
	}
	if (flood->over)
		return 0;
	now = bpf_ktime_get_ns();
	if (!flood->start)
		flood->start = now;
	if (now - flood->start >= flood->lasting) {
		flood->over = 1;
		return 0;
	}
	due = (now - flood->start) * flood->rate / 1000000000;
	if (due < flood->sent + flood->at_once)
		return 0;
	early = due - flood->sent - 1;
	flood->credit = early < MOST_AT_ONCE ? early : MOST_AT_ONCE - 1;
	return 1;
}

/* As it stands in the packet, of a sum of words. */
static __always_inline __u16 checksum(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return __builtin_bswap16(~sum);
}

SEC("xdp")
int flood(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u64 *to = (void *)data;
	__u32 zero = 0, number, spread, sum = weir_sum;
	struct flood *flood = bpf_map_lookup_elem(&floods, &zero);
	int i, verdict = XDP_DROP;

	if (!flood || (void *)(to + FRAME_WORDS) > end)
		goto out;
	if (flood->rate && !is_due(flood))
		goto out;
#pragma unroll
	for (i = 0; i < FRAME_WORDS; i++)
		to[i] = weir_frame[i];
	flood->random = flood->random * 6364136223846793005 + 1442695040888963407;
	number = (flood->random >> 32) * weir_sources >> 32;
	spread = number * 0x9e3779b1 & 0x3fffff;	/* a permutation of 22 bits */
	if (weir_ipv6) {
		__u16 low = spread >> 16 << 10, mid = spread;

		/* 2001:MID:LOW::, which differ in their first 38 bits */
		*(__u16 *)(data + 22) = __builtin_bswap16(0x2001);
		*(__u16 *)(data + 24) = __builtin_bswap16(mid);
		*(__u16 *)(data + 26) = __builtin_bswap16(low);
		*(__u16 *)(data + 60) = checksum(sum + 0x2001 + mid + low);
	} else {
		__u32 source = 0x01000000 + (spread << 8);
		__u16 high = source >> 16, low = source;

		/* 1.0.0.0 and on, which differ in their first 24 bits */
		*(__u16 *)(data + 26) = __builtin_bswap16(high);
		*(__u16 *)(data + 28) = __builtin_bswap16(low);
		*(__u16 *)(data + 24) = checksum(sum + high + low);
	}
	flood->sent++;
	verdict = weir_verdict;
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
