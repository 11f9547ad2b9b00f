// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A program of a chain as one writes it by hand: it calls the program in slot
 * weir_next, or ends the chain. With weir_count it counts packets and bytes as
 * weir's functions do, but knows where to go on without looking.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

#define LAST	0xffffffff

const volatile __u32 weir_next = LAST;
const volatile __u32 weir_count = 0;

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

SEC("xdp")
int tail(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct ledger *ledger = 0;
	int verdict = XDP_DROP;

	if (weir_count) {
		ledger = bpf_map_lookup_elem(&ledgers, &zero);
		if (!ledger)
			goto out;
		ledger->received++;
		ledger->bytes += ctx->data_end - ctx->data;
	}
	if (weir_next != LAST) {
		if (ledger)
			ledger->verdict[5]++;
		bpf_tail_call(ctx, &programs, weir_next);
	}
	if (ledger)
		ledger->verdict[XDP_DROP]++;
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
