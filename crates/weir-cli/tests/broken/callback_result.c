/*
 * A callback of bpf_loop returns something else than go on or stop.
 * rule: callback-result
 * missing: return 0;
 * packet: none
 */
#include "bpf.h"

static int step(u32 index, void *state)
{
#ifdef FIXED
	return *(u32 *)state != 0;
#else
	return *(u32 *)state; /* REJECTED */
#endif
}

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 state = ctx->rx_queue_index;

	return bpf_loop(4, step, &state, 0) ? XDP_PASS : XDP_DROP;
}
