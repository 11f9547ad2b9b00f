// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The XDP firewall that the mmb paper compares with (section 4.3.2): one hash
 * map with five-tuples as keys and a verdict and a count as values.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include "tuple.h"

struct rule {
	__u64 drop;
	__u64 packets;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct tuple);
	__type(value, struct rule);
} rules SEC(".maps");

SEC("xdp")
int tuple_hash(struct xdp_md *ctx)
{
	struct tuple t;
	struct rule *r;

	if (read_tuple(ctx, &t))
		return XDP_PASS;
	r = bpf_map_lookup_elem(&rules, &t);
	if (!r)
		return XDP_PASS;
	__sync_fetch_and_add(&r->packets, 1);
	return r->drop ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
