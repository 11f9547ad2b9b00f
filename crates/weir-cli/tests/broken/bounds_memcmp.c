/*
 * The beginning of the payload is compared with a word; that the payload is there is not.
 * rule: packet-bounds
 * missing: 44 bytes
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
	struct udphdr *udp = (void *)(ip + 1);
	char *payload = (void *)(udp + 1);

	if ((void *)(udp + 1) > data_end)
		return XDP_DROP;
	if (ip->protocol != IPPROTO_UDP)
		return XDP_PASS;
#ifdef FIXED
	if ((void *)(payload + 4) > data_end)
		return XDP_PASS;
#endif
	return __builtin_memcmp(payload, "quit", 4) ? XDP_PASS : XDP_DROP; /* REJECTED */
}
