/*
 * The loop waits for something that nothing in it changes.
 * rule: endless-loop
 * missing: for (int i = 0; i < 64; i++)
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 left = ctx->rx_queue_index;

	for (;;) {
		asm volatile("" : "+r"(left)); /* REJECTED */
		if (left == 0)
			break;
#ifdef FIXED
		if (left > 64)
			break;
		left--;
#endif
	}
	return XDP_PASS;
}
