/*
 * Two functions that call each other down need more stack together than there is.
 * rule: combined-stack
 * missing: 96 bytes or more of local variables to a map
 * packet: none
 */
#include "bpf.h"

#ifdef FIXED
#define BYTES 120
#else
#define BYTES 300
#endif

static __noinline int inner(struct xdp_md *ctx)
{
	volatile u8 buffer[BYTES];

	buffer[ctx->rx_queue_index & 63] = 1;
	return buffer[7];
}

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	volatile u8 buffer[BYTES];

	buffer[ctx->rx_queue_index & 63] = 2;
	return inner(ctx) + buffer[3] ? XDP_PASS : XDP_DROP; /* REJECTED */
}
