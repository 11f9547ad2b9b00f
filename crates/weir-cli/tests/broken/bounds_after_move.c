/*
 * The pointers are read anew after the frame got shorter at its head, but not compared again.
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
	struct iphdr *ip;

	if (data + 20 > data_end)
		return XDP_DROP;
	if (bpf_xdp_adjust_head(ctx, 4))
		return XDP_DROP;
	ip = (void *)(long)ctx->data + sizeof(struct ethhdr);
	data_end = (void *)(long)ctx->data_end;
#ifdef FIXED
	if ((void *)(ip + 1) > data_end)
		return XDP_DROP;
#endif
	return ip->ttl > 1 ? XDP_PASS : XDP_DROP; /* REJECTED */
}
