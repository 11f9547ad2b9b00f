// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A packet generator for test runs with live frames: writes the next of the
 * prepared frames over the one it was given and sends it out of the interface
 * that the test run names. All frames have the length of the map's values. The
 * kernel recycles frames without resetting them, so every byte is written anew.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

#define FRAME_WORDS	12	/* 96 bytes */

struct frame {
	__u64 word[FRAME_WORDS];
};

const volatile __u32 weir_frames = 1;	/* entries of the map */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct frame);
} frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

SEC("xdp")
int generator(struct xdp_md *ctx)
{
	__u64 *to = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, at, *counter = bpf_map_lookup_elem(&next, &zero);
	struct frame *from;
	int i;

	if (!counter)
		return XDP_ABORTED;
	at = *counter;
	*counter = at + 1 < weir_frames ? at + 1 : 0;
	from = bpf_map_lookup_elem(&frames, &at);
	if (!from || (void *)(to + FRAME_WORDS) > end)
		return XDP_ABORTED;
#pragma unroll
	for (i = 0; i < FRAME_WORDS; i++)
		to[i] = from->word[i];
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
