/*
 * A length from the frame decides how many bytes are copied to the stack.
 * rule: size-zero
 * missing: if (length == 0 || length > sizeof(buffer))
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	u8 buffer[64];
	u32 length;

	if ((void *)(data + 18) > data_end)
		return XDP_DROP;
	length = *(u32 *)(data + 14);
#ifdef FIXED
	if (length == 0 || length > sizeof(buffer))
		return XDP_DROP;
#endif
	if (bpf_xdp_load_bytes(ctx, 0, buffer, length)) /* REJECTED */
		return XDP_DROP;
	return buffer[0] ? XDP_PASS : XDP_DROP;
}
