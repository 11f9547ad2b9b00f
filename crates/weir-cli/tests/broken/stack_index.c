/*
 * An index from the frame writes beyond a buffer on the stack.
 * rule: stack-bounds
 * missing: if (index >= sizeof(seen) / sizeof(seen[0]))
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	volatile u8 seen[64] = {};
	u32 index;

	if ((void *)(data + 16) > data_end)
		return XDP_DROP;
	index = *(u16 *)(data + 14);
#ifdef FIXED
	if (index >= sizeof(seen))
		return XDP_DROP;
#endif
	seen[index] = 1; /* REJECTED */
	return seen[3] ? XDP_DROP : XDP_PASS;
}
