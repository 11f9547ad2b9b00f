// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A program of a chain on tc as one writes it by hand: it counts what
 * functions of virtual networks count (its own ledger, and what came in by its interface), and calls the
 * program in slot weir_next, which it knows without looking, or drops.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

#define LAST	0xffffffff

const volatile __u32 weir_next = LAST;
const volatile __u32 weir_vid = 0;

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps");

struct ledger {
	__u64 received;
	__u64 bytes;
	__u64 verdict[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ledger);
} ledgers SEC(".maps");

struct count {
	__u64 packets, bytes, dropped, pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 128);
	__type(key, __u32);
	__type(value, struct count);
} counts SEC(".maps");

SEC("tc")
int tc_tail(struct __sk_buff *skb)
{
	__u32 zero = 0, vid = weir_vid, packets;
	struct ledger *ledger = bpf_map_lookup_elem(&ledgers, &zero);
	struct count *count = bpf_map_lookup_elem(&counts, &vid);

	if (!ledger || !count)
		goto out;
	packets = skb->gso_segs ? skb->gso_segs : 1;
	ledger->received += packets;
	ledger->bytes += skb->len;
	count->packets += packets;
	count->bytes += skb->len;
	if (weir_next != LAST) {
		ledger->verdict[5] += packets;
		bpf_tail_call(skb, &programs, weir_next);
	}
	ledger->verdict[1] += packets;
out:
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
