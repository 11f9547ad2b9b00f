/*
 * Two comparisons are joined with &&, where one that fails is enough.
 * rule: packet-bounds
 * missing: data_end
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);

#ifdef FIXED
	if ((void *)(eth + 1) > data_end || (void *)(ip + 1) > data_end)
		return XDP_DROP;
#else
	if ((void *)(eth + 1) > data_end && (void *)(ip + 1) > data_end)
		return XDP_DROP;
#endif
	return ip->ttl > 1 ? XDP_PASS : XDP_DROP; /* REJECTED */
}
