/*
 * The comparison has the two sides exchanged: only frames that are too short go on.
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
#else
	if ((void *)(eth + 1) < data_end)
		return XDP_DROP;
#endif
	if (eth->h_dest[0] & 1) /* REJECTED */
		return XDP_DROP;
	return XDP_PASS;
}
