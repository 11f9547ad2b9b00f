/*
 * An offset from the frame is a signed number, and only its upper end is checked.
 * rule: packet-negative
 * missing: is not negative
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	int offset;

	if ((void *)(data + 64) > data_end)
		return XDP_PASS;
	offset = *(signed char *)(data + 14);
#ifdef FIXED
	if (offset < 0)
		return XDP_PASS;
#endif
	if (offset > 32)
		return XDP_PASS;
	if ((void *)(data + offset + 1) > data_end)
		return XDP_PASS;
	return data[offset] ? XDP_PASS : XDP_DROP; /* REJECTED */
}
