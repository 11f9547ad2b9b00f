/*
 * The program returns with a lock it took.
 * rule: leaked-lock
 * missing: bpf_spin_unlock(&slot->lock);
 * packet: yes
 */
#include "bpf.h"

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

	if (!slot)
		return XDP_PASS;
	bpf_spin_lock(&slot->lock); /* ACQUIRED */
	slot->packets++;
#ifdef FIXED
	bpf_spin_unlock(&slot->lock);
#endif
	return XDP_PASS;
} /* REJECTED */
