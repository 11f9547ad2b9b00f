/*
 * An index from the frame selects a counter beyond those in the value.
 * rule: map-value-bounds
 * missing: if (index >= 64)
 * packet: yes
 */
#include "bpf.h"

struct counters {
	u64 seen[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counters);
} table SEC(".maps");

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	u32 zero = 0, index;
	struct counters *counters = bpf_map_lookup_elem(&table, &zero);

	if (!counters || (void *)(data + 14) > data_end)
		return XDP_PASS;
	index = data[13];
#ifdef FIXED
	if (index >= 64)
		return XDP_DROP;
#endif
	counters->seen[index]++; /* REJECTED */
	return XDP_PASS;
}
