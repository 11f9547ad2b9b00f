/*
 * A helper is called between taking and releasing a lock.
 * rule: call-under-lock
 * missing: Move the call before the lock
 * packet: none
 */
#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

struct slot {
	struct bpf_spin_lock lock;
	u32 packets;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 zero = 0;
	struct slot *slot = bpf_map_lookup_elem(&slots, &zero);
	u64 *count;

	if (!slot)
		return XDP_PASS;
#ifdef FIXED
	count = bpf_map_lookup_elem(&counters, &zero);
#endif
	bpf_spin_lock(&slot->lock);
#ifndef FIXED
	count = bpf_map_lookup_elem(&counters, &zero); /* REJECTED */
#endif
	slot->packets += 1;
	bpf_spin_unlock(&slot->lock);
	return count ? XDP_PASS : XDP_DROP;
}
