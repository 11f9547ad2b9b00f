/*
 * A pointer on the stack is read back after one of its bytes was overwritten.
 * rule: not-memory
 * missing: Use a pointer
 * packet: none
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	volatile struct {
		struct xdp_md *ctx;
	} kept;

	kept.ctx = ctx;
#ifndef FIXED
	*(volatile u8 *)&kept = 0;
#endif
	return kept.ctx->rx_queue_index ? XDP_DROP : XDP_PASS; /* REJECTED */
}
