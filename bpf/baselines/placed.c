// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The servers' end of a balancer's test bed: which server each client's packet
 * was sent to. A server's number is the last two bytes of the destination, of
 * the outer header where there is one, a client's that of `callers`. Drops
 * everything.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

#define SERVERS		1024
#define IPIP		4
#define IPV6		41
#define UDP		17
#define TCP		6
#define GUE_PORT	6080

const volatile __u32 weir_first = 0;	/* as of `callers` */
const volatile __u32 weir_clients = 1;
const volatile __u32 weir_keep = 0;	/* remember where each client went */
const volatile __u32 weir_by_mac = 0;	/* a server's number is the end of its MAC: nothing else tells */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SERVERS);
	__type(key, __u32);
	__type(value, __u64);
} servers SEC(".maps");

/* All of them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} arrived SEC(".maps");

/* By client: the server's number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} where SEC(".maps");

SEC("xdp")
int placed(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *ip = data + 14, *inner;
	__u32 server, client, *place, zero = 0;
	__u8 protocol;
	__u64 *count;

	if (ip + 40 > end)
		goto out;
	if (data[12] == 0x08 && data[13] == 0x00) {
		server = ip[18] << 8 | ip[19];
		protocol = ip[9];
		inner = ip + 20;
	} else if (data[12] == 0x86 && data[13] == 0xdd) {
		server = ip[38] << 8 | ip[39];
		protocol = ip[6];
		inner = ip + 40;
	} else {
		goto out;
	}
	if (weir_by_mac)
		server = data[4] << 8 | data[5];
	if (protocol == UDP && inner + 8 <= end && (inner[2] << 8 | inner[3]) == GUE_PORT)
		/* Version 0 of GUE has a header of four bytes before the packet, version 1 none. */
		inner += inner + 9 <= end && inner[8] >> 4 ? 8 : 12;
	else if (protocol == UDP || protocol == TCP)
		inner = ip;
	else if (protocol != IPIP && protocol != IPV6)
		goto out;
	server &= SERVERS - 1;
	count = bpf_map_lookup_elem(&servers, &server);
	if (!count)
		goto out;
	*count += 1;
	count = bpf_map_lookup_elem(&arrived, &zero);
	if (count)
		*count += 1;
	if (!weir_keep || inner + 24 > end)
		goto out;
	if (inner[0] >> 4 == 4)
		client = inner[12] << 24 | inner[13] << 16 | inner[14] << 8 | inner[15];
	else
		client = inner[20] << 24 | inner[21] << 16 | inner[22] << 8 | inner[23];
	client -= weir_first;
	if (client >= weir_clients)
		goto out;
	place = bpf_map_lookup_elem(&where, &client);
	if (place)
		*place = server;
out:
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
