/*
 * A function calls itself.
 * rule: recursion
 * missing: a loop with a constant bound
 * packet: none
 */
#include "bpf.h"

static __noinline int depth(struct xdp_md *ctx, u32 left)
{
	if (left == 0)
		return ctx->rx_queue_index;
#ifdef FIXED
	return left;
#else
	return depth(ctx, left / 2) + ctx->ingress_ifindex; /* REJECTED */
#endif
}

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	return depth(ctx, 4) ? XDP_PASS : XDP_DROP;
}
