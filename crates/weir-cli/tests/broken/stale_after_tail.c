/*
 * The frame was cut at its end; the pointers from before are used on.
 * rule: not-memory
 * missing: eth = (void *)(long)ctx->data;
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;

	if (data + 60 > data_end)
		return XDP_DROP;
	if (bpf_xdp_adjust_tail(ctx, -4))
		return XDP_DROP;
#ifdef FIXED
	eth = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if ((void *)(eth + 1) > data_end)
		return XDP_DROP;
#endif
	return eth->h_proto == bpf_htons(ETH_P_IP) ? XDP_PASS : XDP_DROP; /* REJECTED */
}
