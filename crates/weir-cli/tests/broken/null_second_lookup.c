/*
 * The first of two lookups is checked, the second is not.
 * rule: null-value
 * missing: if (!limit)
 * packet: yes
 */
#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

struct slots {
	u32 count[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slots);
} totals SEC(".maps");

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	u32 zero = 0, key = ctx->rx_queue_index;
	struct slots *slots = bpf_map_lookup_elem(&totals, &zero);
	u64 *limit;

	if (!slots)
		return XDP_PASS;
	limit = bpf_map_lookup_elem(&counters, &key);
#ifdef FIXED
	if (!limit)
		return XDP_PASS;
#endif
	slots->count[0] += 1;
	return slots->count[0] > *limit ? XDP_DROP : XDP_PASS; /* REJECTED */
}
