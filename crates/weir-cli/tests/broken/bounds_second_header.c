/*
 * The Ethernet header is checked, the IPv4 header behind it is not.
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
	struct iphdr *ip = data + sizeof(*eth);

	if ((void *)(eth + 1) > data_end)
		return XDP_DROP;
	if (eth->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
#ifdef FIXED
	if ((void *)(ip + 1) > data_end)
		return XDP_DROP;
#endif
	if (ip->protocol == IPPROTO_UDP) /* REJECTED */
		return XDP_DROP;
	return XDP_PASS;
}
