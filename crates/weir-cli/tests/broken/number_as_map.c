/*
 * A number is passed where a helper takes a map.
 * rule: helper-argument
 * missing: Pass a map instead of `map`
 * packet: yes
 */
#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} flows SEC(".maps");

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 key = ctx->rx_queue_index;
#ifdef FIXED
	void *map = &flows;
#else
	void *map = (void *)(long)ctx->ingress_ifindex;
#endif

	return bpf_map_lookup_elem(map, &key) ? XDP_DROP : XDP_PASS; /* REJECTED */
}
