/*
 * A helper that wants the context gets the frame.
 * rule: helper-argument
 * missing: Pass the context instead of `data`
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	u8 buffer[4];

#ifdef FIXED
	if (bpf_xdp_load_bytes(ctx, 0, buffer, sizeof(buffer)))
#else
	if (bpf_xdp_load_bytes(data, 0, buffer, sizeof(buffer))) /* REJECTED */
#endif
		return XDP_DROP;
	return buffer[0] || data == data_end ? XDP_PASS : XDP_DROP;
}
