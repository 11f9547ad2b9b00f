/*
 * A missing element is inserted and then used as if the first lookup had found it.
 * rule: not-memory
 * missing: if (!count)
 * packet: yes
 */
#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 key = ctx->rx_queue_index;
	u64 one = 1, *count = bpf_map_lookup_elem(&counters, &key);

	if (!count) {
		bpf_map_update_elem(&counters, &key, &one, 0);
#ifdef FIXED
		count = bpf_map_lookup_elem(&counters, &key);
		if (!count)
			return XDP_PASS;
#endif
	}
	*count += 1; /* REJECTED */
	return XDP_PASS;
}
