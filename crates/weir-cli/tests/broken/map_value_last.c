/*
 * The comparison lets the index be as large as the array is long.
 * rule: map-value-bounds
 * missing: >= 64
 * packet: yes
 */
#include "bpf.h"

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
	u32 zero = 0, index;
	struct slots *slots = bpf_map_lookup_elem(&totals, &zero);

	if (!slots || (void *)(data + 15) > data_end)
		return XDP_PASS;
	index = data[14];
#ifdef FIXED
	if (index >= 64)
#else
	if (index > 64)
#endif
		return XDP_PASS;
	slots->count[index] += 1; /* REJECTED */
	return XDP_PASS;
}
