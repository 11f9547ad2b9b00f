/*
 * A function that is not static is verified by itself, for any caller; it does not ask whether its argument is null.
 * rule: null-value
 * missing: if (!eth)
 * packet: none
 */
#include "bpf.h"

__noinline int is_ip(struct ethhdr *eth)
{
#ifdef FIXED
	if (!eth)
		return 0;
#endif
	return eth->h_proto == bpf_htons(ETH_P_IP); /* REJECTED */
}

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;

	if ((void *)(eth + 1) > data_end)
		return XDP_DROP;
	return is_ip(eth) ? XDP_PASS : XDP_DROP;
}
