// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Writes the next of the prepared source addresses into an IPv4 or IPv6 frame without tags and
 * calls the program at place 0: what a function costs when sources differ from packet to packet.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

struct address {
	__u64 word[2];	/* as in the packet; IPv4: the first four bytes */
};

const volatile __u32 weir_addresses = 1;	/* a power of two */
const volatile __u32 weir_ip6 = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct address);
} addresses SEC(".maps");

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
int sources(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0, at, *counter = bpf_map_lookup_elem(&next, &zero);
	struct address *from;

	if (!counter || data + 54 > end)
		return XDP_ABORTED;
	at = (*counter)++ & (weir_addresses - 1);
	from = bpf_map_lookup_elem(&addresses, &at);
	if (!from)
		return XDP_ABORTED;
	if (weir_ip6) {
		*(__u32 *)(data + 22) = from->word[0];
		*(__u32 *)(data + 26) = from->word[0] >> 32;
		*(__u32 *)(data + 30) = from->word[1];
		*(__u32 *)(data + 34) = from->word[1] >> 32;
	} else {
		*(__u16 *)(data + 26) = from->word[0];
		*(__u16 *)(data + 28) = from->word[0] >> 16;
	}
	bpf_tail_call(ctx, &call, 0);
	return XDP_ABORTED;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
