/* The loop has an end, but one that is a million rounds away. */
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
		sum = sum * 31 + i; /* REJECTED? */
		asm volatile("" : "+r"(sum));
	}
	return sum & 1 ? XDP_DROP : XDP_PASS;
}
