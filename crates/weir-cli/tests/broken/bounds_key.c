/*
 * An address in the frame is the key of a lookup, and nothing says that the address is there.
 * rule: packet-bounds
 * missing: 30 bytes
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
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	u64 *count;

#ifdef FIXED
	if ((void *)(ip + 1) > data_end)
		return XDP_DROP;
#endif
	count = bpf_map_lookup_elem(&counters, &ip->saddr); /* REJECTED */
	if (count)
		*count += 1;
	return XDP_PASS;
}
