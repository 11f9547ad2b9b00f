/*
 * The end of the frame is used as a pointer to its last bytes.
 * rule: not-memory
 * missing: only compare with its end
 * packet: none
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	u8 *data_end = (void *)(long)ctx->data_end;

	if (data + 4 > data_end)
		return XDP_DROP;
#ifdef FIXED
	return data[3] ? XDP_DROP : XDP_PASS;
#else
	return data_end[-1] ? XDP_DROP : XDP_PASS; /* REJECTED */
#endif
}
