// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Makes the frame of a test run one of a prepared client again and calls the program at place 0: what a balancer
 * costs when clients differ from packet to packet. What the program before put in front is taken off first.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct client {
	__be32 address;
	__be16 port;
	__u16 pad;
};

const volatile __u32 weir_clients = 1;		/* a power of two */
const volatile __u32 weir_len = 64;		/* of the frame */
const volatile __be32 weir_service = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct client);
} clients SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} call SEC(".maps");

SEC("xdp.frags")
int client_runs(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, at, *counter = bpf_map_lookup_elem(&next, &zero);
	struct client *from;

	if (!counter)
		return XDP_ABORTED;
	if (end - data != weir_len && bpf_xdp_adjust_head(ctx, end - data - weir_len))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + 54 > end)
		return XDP_ABORTED;
	at = (*counter)++ & (weir_clients - 1);
	from = bpf_map_lookup_elem(&clients, &at);
	if (!from)
		return XDP_ABORTED;
	*(__u32 *)data = 0x02000000;
	*(__u32 *)(data + 4) = 0x00020100;
	*(__u32 *)(data + 8) = 0x02000000;
	*(__u16 *)(data + 12) = bpf_htons(0x0800);
	*(__u16 *)(data + 26) = from->address;
	*(__u16 *)(data + 28) = from->address >> 16;
	*(__u16 *)(data + 30) = weir_service;
	*(__u16 *)(data + 32) = weir_service >> 16;
	*(__u16 *)(data + 34) = from->port;
	bpf_tail_call(ctx, &call, 0);
	return XDP_ABORTED;
}

/* The floor. */
SEC("xdp.frags")
int client_runs_tx(struct xdp_md *ctx)
{
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
