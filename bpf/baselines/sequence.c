// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A numbered stream of frames: `number` makes it in test runs with live frames,
 * `check` at the far end counts what arrived, what is missing, what came twice
 * and what came late. One CPU at a time sends, and one receives.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

#define FRAME_WORDS	8	/* 64 bytes: addresses, an EtherType of nobody's, and the number in word 2 */
#define NUMBER		2
#define WINDOW		8192	/* numbers that are remembered */

struct tally {
	__u64 next;	/* number that is sent next, or expected */
	__u64 received;
	__u64 missing;	/* numbers that were passed over; those that came late are among them */
	__u64 late;	/* came behind a higher number */
	__u64 twice;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tally SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WINDOW);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

SEC("xdp")
int number(struct xdp_md *ctx)
{
	__u64 *to = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct tally *t = bpf_map_lookup_elem(&tally, &zero);
	int i;

	if (!t || (void *)(to + FRAME_WORDS) > end)
		return XDP_ABORTED;
	/* 02:00:00:00:00:02 <- 02:00:00:00:00:01, EtherType 0x88b5; frames come back as they were left */
	to[0] = 0x0002020000000002ULL;
	to[1] = 0x0000b58801000000ULL;
#pragma unroll
	for (i = NUMBER; i < FRAME_WORDS; i++)
		to[i] = 0;
	to[NUMBER] = t->next++;
	return XDP_TX;
}

SEC("xdp")
int check(struct xdp_md *ctx)
{
	__u64 *at = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, place;
	struct tally *t = bpf_map_lookup_elem(&tally, &zero);
	__u64 n, *last;

	if (!t || (void *)(at + FRAME_WORDS) > end)
		return XDP_PASS;
	if ((at[1] & 0xffff00000000ULL) != 0xb58800000000ULL)
		return XDP_PASS;
	n = at[NUMBER];
	place = n & (WINDOW - 1);
	last = bpf_map_lookup_elem(&seen, &place);
	if (!last)
		return XDP_ABORTED;
	t->received++;
	if (*last == n + 1) {
		t->twice++;
		return XDP_DROP;
	}
	*last = n + 1;
	if (n < t->next) {
		t->late++;
	} else {
		t->missing += n - t->next;
		t->next = n + 1;
	}
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
