/*
 * The comparison shows only that the IPv6 header begins in the frame, not that it ends there.
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
	struct ipv6hdr *ip = (void *)(eth + 1);

#ifdef FIXED
	if ((void *)(ip + 1) > data_end)
		return XDP_DROP;
#else
	if ((void *)ip > data_end)
		return XDP_DROP;
#endif
	if (eth->h_proto != bpf_htons(ETH_P_IPV6))
		return XDP_PASS;
	return ip->hop_limit > 1 ? XDP_PASS : XDP_DROP; /* REJECTED */
}
