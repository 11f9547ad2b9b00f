/*
 * The UDP header stands behind IPv4 options of any length, and nothing says that it is still in the frame.
 * rule: packet-bounds
 * missing: if ((void *)(udp + 1) > data_end)
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
	struct udphdr *udp;

	if ((void *)(ip + 1) > data_end)
		return XDP_DROP;
	if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->protocol != IPPROTO_UDP)
		return XDP_PASS;
	udp = (void *)ip + ip->ihl * 4;
#ifdef FIXED
	if ((void *)(udp + 1) > data_end)
		return XDP_DROP;
#endif
	return udp->dest == bpf_htons(53) ? XDP_DROP : XDP_PASS; /* REJECTED */
}
