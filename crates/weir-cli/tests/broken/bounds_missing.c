/*
 * The Ethernet header is read without asking whether it is there.
 * rule: packet-bounds
 * missing: if ((void *)(eth + 1) > data_end)
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;

#ifdef FIXED
	if ((void *)(eth + 1) > data_end)
		return XDP_DROP;
#endif
	if (eth->h_proto == bpf_htons(ETH_P_IP)) /* REJECTED */
		return XDP_PASS;
	return data == data_end ? XDP_DROP : XDP_TX;
}
