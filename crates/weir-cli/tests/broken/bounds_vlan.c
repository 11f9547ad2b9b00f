/*
 * The frame has room for an Ethernet header; where it says that a VLAN tag follows, the tag is read without asking again.
 * rule: packet-bounds
 * missing: if ((void *)(tag + 1) > data_end)
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct vlan_hdr *tag = (void *)(eth + 1);

	if ((void *)(eth + 1) > data_end)
		return XDP_DROP;
	if (eth->h_proto != bpf_htons(ETH_P_8021Q))
		return XDP_PASS;
#ifdef FIXED
	if ((void *)(tag + 1) > data_end)
		return XDP_DROP;
#endif
	return tag->tci == bpf_htons(7) ? XDP_DROP : XDP_PASS; /* REJECTED */
}
