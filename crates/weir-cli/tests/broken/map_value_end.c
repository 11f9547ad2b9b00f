/*
 * The value is smaller than the struct it is read as.
 * rule: map-value-bounds
 * missing: Declare a larger type, of 16 bytes at least
 * packet: yes
 */
#include "bpf.h"

struct pair {
	u64 packets, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
#ifdef FIXED
	__type(value, struct pair);
#else
	__type(value, u64);
#endif
} totals SEC(".maps");

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 zero = 0;
	struct pair *total = bpf_map_lookup_elem(&totals, &zero);

	if (!total)
		return XDP_PASS;
	total->bytes += ctx->data_end - ctx->data; /* REJECTED */
	return XDP_PASS;
}
