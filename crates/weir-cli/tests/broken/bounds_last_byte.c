/*
 * The length of the frame is computed and compared, but a number says nothing about a pointer.
 * rule: packet-bounds
 * missing: data_end
 * packet: none
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	u64 length = data_end - (void *)data;
	u8 last;

	if (length < 1 || length > 1500)
		return XDP_DROP;
#ifdef FIXED
	if (bpf_xdp_load_bytes(ctx, length - 1, &last, 1))
		return XDP_DROP;
#else
	last = data[length - 1]; /* REJECTED */
#endif
	return last ? XDP_PASS : XDP_DROP;
}
