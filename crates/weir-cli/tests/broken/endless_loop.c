/* The loop waits for something that nothing in it changes. */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 left = ctx->rx_queue_index;

	for (;;) {
		asm volatile("" : "+r"(left));
		if (left == 0) /* REJECTED */
			break;
#ifdef FIXED
		if (left > 64)
			break;
		left--;
#endif
	}
	return XDP_PASS;
}
