// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The linear scan: every rule is compared with every packet, all that match are
 * counted. State of the loop is in a map value, as in the functions of weir.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "tuple.h"

struct rule {
	__be32 source, source_mask;
	__be32 destination, destination_mask;
	__u16 sport_low, sport_high;	/* host order */
	__u16 dport_low, dport_high;
	__u8 protocol;			/* 0: any */
	__u8 flags, flags_mask;		/* of TCP */
	__u8 pad;
	__u32 drop;
	__u64 packets;
};

struct scan {
	struct tuple tuple;
	__u16 sport, dport;
	__u32 flags;
	__u32 drop, accept;
};

const volatile __u32 weir_rules = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scan);
} scans SEC(".maps");

static long compare(__u32 at, struct scan **scan)
{
	struct rule *r = bpf_map_lookup_elem(&rules, &at);
	struct scan *s = *scan;

	if (!r)
		return 1;
	if ((s->tuple.source & r->source_mask) != r->source ||
	    (s->tuple.destination & r->destination_mask) != r->destination ||
	    (r->protocol && r->protocol != s->tuple.protocol) ||
	    s->sport < r->sport_low || s->sport > r->sport_high ||
	    s->dport < r->dport_low || s->dport > r->dport_high ||
	    (s->flags & r->flags_mask) != r->flags)
		return 0;
	__sync_fetch_and_add(&r->packets, 1);
	if (r->drop)
		s->drop = 1;
	else
		s->accept = 1;
	return 0;
}

SEC("xdp")
int linear(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct scan *s = bpf_map_lookup_elem(&scans, &zero);

	if (!s || read_tuple(ctx, &s->tuple))
		return XDP_PASS;
	s->sport = bpf_ntohs(s->tuple.sport);
	s->dport = bpf_ntohs(s->tuple.dport);
	s->flags = tcp_flags(ctx);
	s->drop = 0;
	s->accept = 0;
	bpf_loop(weir_rules, compare, &s, 0);
	return s->drop && !s->accept ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
