/*
 * The result of a lookup is used without asking whether there was one.
 * rule: null-value
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
	u64 *count = bpf_map_lookup_elem(&counters, &key);

#ifdef FIXED
	if (!count)
		return XDP_PASS;
#endif
	*count += 1; /* REJECTED */
	return XDP_PASS;
}
