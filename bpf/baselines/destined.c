// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The generator of the router's benchmark, for test runs with live frames:
 * frames of 64 bytes to one of many destinations at random, all from one
 * source. The kernel recycles frames without resetting them, so every byte is
 * written anew.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

#define FRAME_WORDS	8	/* 64 bytes */

const volatile __u64 weir_frame[FRAME_WORDS] = {};	/* the destination's bytes and the checksum 0 */
const volatile __u32 weir_sum = 0;	/* of all words that the checksum covers but the destination's */
const volatile __u32 weir_destinations = 1;	/* entries of the map */
const volatile __u32 weir_ipv6 = 0;
const volatile __u32 weir_verdict = XDP_TX;	/* XDP_DROP: what generating costs by itself */

/* IPv4: the address; IPv6: its first half. By their numbers as the host has them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} destinations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} random SEC(".maps");

/* As it stands in the packet, of a sum of words. */
static __always_inline __u16 checksum(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return __builtin_bswap16(~sum);
}

SEC("xdp")
int destined(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u64 *to = (void *)data, *state, *found, address;
	__u32 zero = 0, at, sum = weir_sum;
	int i, verdict = XDP_ABORTED;

	state = bpf_map_lookup_elem(&random, &zero);
	if (!state || (void *)(to + FRAME_WORDS) > end)
		goto out;
	*state = *state * 6364136223846793005 + 1442695040888963407;
	at = (*state >> 32) * weir_destinations >> 32;
	found = bpf_map_lookup_elem(&destinations, &at);
	if (!found)
		goto out;
	address = *found;
#pragma unroll
	for (i = 0; i < FRAME_WORDS; i++)
		to[i] = weir_frame[i];
	if (weir_ipv6) {
		*(__u64 *)(data + 38) = __builtin_bswap64(address);
		sum += (address >> 48) + (address >> 32 & 0xffff) + (address >> 16 & 0xffff) + (address & 0xffff);
		*(__u16 *)(data + 60) = checksum(sum);
	} else {
		*(__u16 *)(data + 30) = __builtin_bswap16(address >> 16);
		*(__u16 *)(data + 32) = __builtin_bswap16(address);
		*(__u16 *)(data + 24) = checksum(sum + (address >> 16 & 0xffff) + (address & 0xffff));
	}
	verdict = weir_verdict;
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
