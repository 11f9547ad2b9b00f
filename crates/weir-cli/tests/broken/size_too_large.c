/*
 * A length from the frame is never zero, but may be larger than the buffer.
 * rule: stack-bounds
 * missing: if (length > sizeof(buffer))
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	u8 buffer[32];
	u32 length;

	if ((void *)(data + 16) > data_end)
		return XDP_PASS;
#ifdef FIXED
	length = (data[14] & 31) + 1;
#else
	length = data[14] + 1;
#endif
	if (bpf_xdp_load_bytes(ctx, 0, buffer, length)) /* REJECTED */
		return XDP_PASS;
	return buffer[0] ? XDP_PASS : XDP_DROP;
}
