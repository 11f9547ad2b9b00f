/*
 * A constant is written to.
 * rule: read-only-map
 * missing: leave `const` away
 * packet: yes
 */
#include "bpf.h"

#ifdef FIXED
volatile u32 limit = 10;
#else
const volatile u32 limit = 10;
#endif

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	if (ctx->rx_queue_index > limit)
		return XDP_DROP;
	*(volatile u32 *)&limit = 20; /* REJECTED */
	return XDP_PASS;
}
