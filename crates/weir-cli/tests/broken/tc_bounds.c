/*
 * A tc program reads the Ethernet header without asking whether it is there.
 * rule: packet-bounds
 * missing: 13 bytes
 * packet: yes
 */
#include "bpf.h"

SEC("tc")
int prog(struct __sk_buff *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;

#ifdef FIXED
	if ((void *)(eth + 1) > data_end)
		return 2;
#endif
	return eth->h_proto == bpf_htons(ETH_P_IP) ? 0 : 2; /* REJECTED */
}
