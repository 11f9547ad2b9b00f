/*
 * A signed index is compared with the end of an array, and not with its start.
 * rule: pointer-distance
 * missing: may be negative
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
	u32 zero = 0;
	struct slots *slots = bpf_map_lookup_elem(&totals, &zero);
	int index;

	if (!slots || (void *)(data + 18) > data_end)
		return XDP_PASS;
	index = *(int *)(data + 14);
#ifdef FIXED
	if (index < 0)
		return XDP_PASS;
#endif
	if (index >= 64)
		return XDP_PASS;
	slots->count[index] += 1; /* REJECTED */
	return XDP_PASS;
}
