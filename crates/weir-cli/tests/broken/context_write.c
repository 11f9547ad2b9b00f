/*
 * A field of the context is written to, which XDP does not allow.
 * rule: context-field
 * missing: Keep the value in a variable of your own
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 queue = ctx->rx_queue_index;

#ifndef FIXED
	ctx->rx_queue_index = queue + 1; /* REJECTED */
#endif
	return queue ? XDP_DROP : XDP_PASS;
}
