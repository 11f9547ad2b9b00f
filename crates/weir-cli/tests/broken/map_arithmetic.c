/*
 * The address of a map is moved as if it were that of an array.
 * rule: pointer-arithmetic
 * missing: read its values with bpf_map_lookup_elem
 * packet: yes
 */
#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 key = ctx->rx_queue_index;
	void *map = &counters;
	u64 *count;

	asm volatile("" : "+r"(map));
#ifndef FIXED
	map += key; /* REJECTED */
#endif
	count = bpf_map_lookup_elem(map, &key);
	if (count)
		*count += 1;
	return XDP_PASS;
}
