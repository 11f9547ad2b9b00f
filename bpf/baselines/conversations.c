// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Packets of many connections for test runs: writes the headers of the next
 * connection in a prepared order over the frame and goes on to the program
 * under test, if there is one. With none its time is that of writing.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PORTS	50		/* connections of a source address */
#define WORDS	11		/* Ethernet, IPv4 and UDP headers with 2 bytes of payload */

const volatile __u32 weir_order = 1;	/* entries of the order, a power of two */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} order SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tested SEC(".maps");

SEC("xdp.frags")
int conversations(struct xdp_md *ctx)
{
	__u16 *half = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, at, *counter = bpf_map_lookup_elem(&next, &zero), *number;
	__u32 source, sum;

	if (!counter || (void *)(half + 2 * WORDS) > end)
		return XDP_ABORTED;
	at = *counter & (weir_order - 1);
	*counter = at + 1;
	number = bpf_map_lookup_elem(&order, &at);
	if (!number)
		return XDP_ABORTED;
	source = 0x0a000000 + *number / PORTS;
	/* Version and length, total length 30, TTL 64, UDP, to 198.51.100.7. */
	sum = 0x4500 + 30 + 0x4011 + 0xc633 + 0x6407 + (source >> 16) + (source & 0xffff);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	half[6] = bpf_htons(0x0800);
	half[7] = bpf_htons(0x4500);
	half[8] = bpf_htons(30);
	half[9] = 0;
	half[10] = 0;
	half[11] = bpf_htons(0x4011);
	half[12] = bpf_htons(~sum);
	half[13] = bpf_htons(source >> 16);
	half[14] = bpf_htons(source);
	half[15] = bpf_htons(0xc633);
	half[16] = bpf_htons(0x6407);
	half[17] = bpf_htons(10000 + *number % PORTS);
	half[18] = bpf_htons(53);
	half[19] = bpf_htons(10);
	half[20] = 0;
	half[21] = 0;
	bpf_tail_call(ctx, &tested, 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
