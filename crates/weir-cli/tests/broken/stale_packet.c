/*
 * A pointer into the frame is used after the frame was moved.
 * rule: not-memory
 * missing: eth = (void *)(long)ctx->data;
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > data_end)
		return XDP_DROP;
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*eth)))
		return XDP_DROP;
#ifdef FIXED
	data_end = (void *)(long)ctx->data_end;
	eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > data_end)
		return XDP_DROP;
#endif
	eth->h_proto = bpf_htons(ETH_P_IP); /* REJECTED */
	return XDP_TX;
}
