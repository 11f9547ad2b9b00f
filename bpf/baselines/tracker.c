// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The stateful XDP tracker that the mmb paper compares with (section 4.3.3):
 * rules on five-tuples, rules on source, destination and protocol that open
 * connections, and connections with time, TCP state and packets, in a hash map
 * each. A connection is looked up before the rules.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include "tuple.h"

struct triple {
	__be32 source;
	__be32 destination;
	__u8 protocol;
	__u8 pad[3];
};

struct connection {
	__u64 seen_ns;
	__u64 packets;
	__u64 flags;		/* TCP flags seen */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct tuple);
	__type(value, __u64);	/* 1: drop */
} tuples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct triple);
	__type(value, __u64);	/* 1: track */
} triples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct tuple);
	__type(value, struct connection);
} connections SEC(".maps");

SEC("xdp")
int tracker(struct xdp_md *ctx)
{
	struct connection opened = {}, *c;
	struct triple triple = {};
	__u64 flags, *rule;
	struct tuple t;

	if (read_tuple(ctx, &t))
		return XDP_PASS;
	flags = tcp_flags(ctx);
	c = bpf_map_lookup_elem(&connections, &t);
	if (c) {
		c->seen_ns = bpf_ktime_get_ns();
		c->flags |= flags;
		__sync_fetch_and_add(&c->packets, 1);
		return XDP_PASS;
	}
	rule = bpf_map_lookup_elem(&tuples, &t);
	if (rule && *rule)
		return XDP_DROP;
	triple.source = t.source;
	triple.destination = t.destination;
	triple.protocol = t.protocol;
	rule = bpf_map_lookup_elem(&triples, &triple);
	if (!rule)
		return XDP_PASS;
	opened.seen_ns = bpf_ktime_get_ns();
	opened.packets = 1;
	opened.flags = flags;
	bpf_map_update_elem(&connections, &t, &opened, BPF_ANY);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
