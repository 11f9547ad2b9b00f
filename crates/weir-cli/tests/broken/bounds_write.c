/*
 * Bytes are written behind those that were checked.
 * rule: packet-bounds
 * missing: if ((void *)(ip + 1) > data_end)
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
	if ((void *)(ip + 1) > data_end)
		return XDP_DROP;
#else
	if ((void *)(eth + 1) > data_end)
		return XDP_DROP;
#endif
	ip->ttl = 64; /* REJECTED */
	return XDP_PASS;
}
