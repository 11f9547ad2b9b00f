/*
 * The sum over an IPv4 header believes the length that the header states.
 * rule: packet-bounds
 * missing: data_end
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
	u16 *word = (void *)ip;
	u32 sum = 0, i;

	if ((void *)(ip + 1) > data_end)
		return XDP_DROP;
	for (i = 0; i < ip->ihl * 2; i++) {
#ifdef FIXED
		u16 next;

		if (bpf_xdp_load_bytes(ctx, sizeof(*eth) + i * 2, &next, sizeof(next)))
			return XDP_DROP;
		sum += next;
#else
		sum += word[i]; /* REJECTED */
#endif
	}
	return (sum & 0xffff) + (sum >> 16) == 0xffff ? XDP_PASS : XDP_DROP;
}
