// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The generator of the balancer's benchmark, for test runs with live frames:
 * frames of 64 bytes, UDP or TCP over IPv4 or IPv6, of one of many clients, at
 * random or one after the other. Client n has the address FIRST + n and a port
 * of its own, which is computed (weir-lab/src/bench/balancer/traffic.rs
 * computes the same). The kernel recycles frames without resetting them, so
 * every byte is written anew.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

#define FRAME_WORDS	8	/* 64 bytes */

const volatile __u64 weir_frame[FRAME_WORDS] = {};	/* the client's bytes and checksums 0 */
const volatile __u32 weir_sum = 0;	/* IPv4: of the header without the source */
const volatile __u32 weir_sum4 = 0;	/* of all words that the L4 checksum covers but the client's */
const volatile __u32 weir_checksum_at = 40;	/* of the L4 checksum */
const volatile __u32 weir_first = 0;	/* the low 32 bits of the first client's address */
const volatile __u32 weir_clients = 1;
const volatile __u32 weir_ipv6 = 0;
const volatile __u32 weir_in_turn = 0;
const volatile __u32 weir_bad = 0;	/* so many of 256 packets come from 198.18.N.N */
const volatile __u32 weir_verdict = XDP_TX;	/* XDP_DROP: what generating costs by itself */

struct state {
	__u64 random;
	__u64 next;
	__u64 bad;	/* sent */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} states SEC(".maps");

/* As it stands in the packet, of a sum of words. */
static __always_inline __u16 checksum(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return __builtin_bswap16(~sum);
}

SEC("xdp")
int callers(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, number, address, port, more, at = weir_checksum_at;
	__u64 *to = (void *)data;
	struct state *state;
	int i, verdict = XDP_ABORTED;

	state = bpf_map_lookup_elem(&states, &zero);
	if (!state || (void *)(to + FRAME_WORDS) > end)
		goto out;
	state->random = state->random * 6364136223846793005 + 1442695040888963407;
	if (weir_in_turn) {
		number = state->next++;
		if (number >= weir_clients)
			number -= number / weir_clients * weir_clients;
	} else {
		number = (state->random >> 32) * weir_clients >> 32;
	}
	address = weir_first + number;
	port = 1024 + (number * 40503 & 0x7fff);
	if ((state->random >> 40 & 0xff) < weir_bad) {
		address = 0xc6120000 + (number & 0xffff);
		state->bad++;
	}
#pragma unroll
	for (i = 0; i < FRAME_WORDS; i++)
		to[i] = weir_frame[i];
	more = (address >> 16) + (address & 0xffff);
	if (weir_ipv6) {
		*(__u16 *)(data + 34) = __builtin_bswap16(address >> 16);
		*(__u16 *)(data + 36) = __builtin_bswap16(address);
		*(__u16 *)(data + 54) = __builtin_bswap16(port);
	} else {
		*(__u16 *)(data + 26) = __builtin_bswap16(address >> 16);
		*(__u16 *)(data + 28) = __builtin_bswap16(address);
		*(__u16 *)(data + 34) = __builtin_bswap16(port);
		*(__u16 *)(data + 24) = checksum(weir_sum + more);
	}
	if (at <= 62)
		*(__u16 *)(data + at) = checksum(weir_sum4 + more + port);
	verdict = weir_verdict;
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
