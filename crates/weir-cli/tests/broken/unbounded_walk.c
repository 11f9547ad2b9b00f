/*
 * The loop has an end, but one that is a million rounds away.
 * rule: budget
 * missing: a smaller constant bound
 * packet: none
 */
#include "bpf.h"

#ifdef FIXED
#define ROUNDS 1000
#else
#define ROUNDS 1000000
#endif

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 i, sum = ctx->rx_queue_index;

	for (i = 0; i < ROUNDS; i++) {
		sum = sum * 31 + i;
		asm volatile("" : "+r"(sum)); /* REJECTED */
	}
	return sum & 1 ? XDP_DROP : XDP_PASS;
}
