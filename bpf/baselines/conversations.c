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
#define HALVES	28		/* Ethernet, IPv4 and TCP headers with 2 bytes of payload */

const volatile __u32 weir_order = 1;	/* entries of the order, a power of two */
const volatile __u32 weir_tcp = 0;	/* segments of TCP whose sequence numbers rise, instead of UDP */

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

/* Packets so far: the sequence number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sent SEC(".maps");

SEC("xdp.frags")
int conversations(struct xdp_md *ctx)
{
	__u16 *half = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, at, *counter = bpf_map_lookup_elem(&next, &zero), *number;
	__u32 source, sum, len, proto, *sequence = bpf_map_lookup_elem(&sent, &zero);

	if (!counter || !sequence || (void *)(half + HALVES) > end)
		return XDP_ABORTED;
	at = *counter & (weir_order - 1);
	*counter = at + 1;
	number = bpf_map_lookup_elem(&order, &at);
	if (!number)
		return XDP_ABORTED;
	source = 0x0a000000 + *number / PORTS;
	len = weir_tcp ? 42 : 30;
	proto = weir_tcp ? 0x4006 : 0x4011;
	/* Version and length, total length, TTL 64, protocol, to 198.51.100.7. */
	sum = 0x4500 + len + proto + 0xc633 + 0x6407 + (source >> 16) + (source & 0xffff);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	half[6] = bpf_htons(0x0800);
	half[7] = bpf_htons(0x4500);
	half[8] = bpf_htons(len);
	half[9] = 0;
	half[10] = 0;
	half[11] = bpf_htons(proto);
	half[12] = bpf_htons(~sum);
	half[13] = bpf_htons(source >> 16);
	half[14] = bpf_htons(source);
	half[15] = bpf_htons(0xc633);
	half[16] = bpf_htons(0x6407);
	half[17] = bpf_htons(10000 + *number % PORTS);
	half[18] = bpf_htons(53);
	if (weir_tcp) {
		*sequence += 1;
		half[19] = bpf_htons(*sequence >> 16);
		half[20] = bpf_htons(*sequence);
		half[21] = 0;
		half[22] = bpf_htons(1);
		/* Data offset 5, ACK; window. */
		half[23] = bpf_htons(0x5010);
		half[24] = bpf_htons(512);
		half[25] = 0;
		half[26] = 0;
		half[27] = 0;
	} else {
		half[19] = bpf_htons(10);
		half[20] = 0;
		half[21] = 0;
	}
	bpf_tail_call(ctx, &tested, 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
