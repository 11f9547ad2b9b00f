/* A callback of bpf_loop returns something else than go on or stop. */
#include "bpf.h"

static int step(u32 index, void *state)
{
#ifdef FIXED
	return *(u32 *)state != 0;
#else
	return *(u32 *)state;
#endif
} /* REJECTED */

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 state = ctx->rx_queue_index;

	return bpf_loop(4, step, &state, 0) ? XDP_PASS : XDP_DROP;
}
