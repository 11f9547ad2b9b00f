// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The far end of a router's test bed: counts the frames of `destined` that
 * were forwarded as they must be (to a next hop of the bed's, one hop older)
 * and those that were not, and drops everything.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

#define HOPS_LEFT	63
#define UDP		17

enum { RIGHT, WRONG, PLACES };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PLACES);
	__type(key, __u32);
	__type(value, __u64);
} forwarded SEC(".maps");

SEC("xdp")
int far(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 place = RIGHT;
	__u64 *count;
	__u8 protocol, hops;

	if (data + 64 > end)
		goto out;
	if (data[12] == 0x08 && data[13] == 0x00) {
		protocol = data[23];
		hops = data[22];
	} else if (data[12] == 0x86 && data[13] == 0xdd) {
		protocol = data[20];
		hops = data[21];
	} else {
		goto out;
	}
	if (protocol != UDP)
		goto out;
	/* 02:00:00:00:05:NN */
	if (*(__u32 *)data != 2 || data[4] != 5 || hops != HOPS_LEFT)
		place = WRONG;
	count = bpf_map_lookup_elem(&forwarded, &place);
	if (count)
		*count += 1;
out:
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
