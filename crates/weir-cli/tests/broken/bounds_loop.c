/*
 * A loop sums up the bytes of the frame, up to a length that the frame states.
 * rule: packet-bounds
 * missing: data_end
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	u32 sum = 0, i, length;

	if ((void *)(data + 18) > data_end)
		return XDP_DROP;
	length = data[16];
	for (i = 0; i < length; i++) {
#ifdef FIXED
		if ((void *)(data + i + 1) > data_end)
			break;
#endif
		sum += data[i]; /* REJECTED */
	}
	return sum & 1 ? XDP_DROP : XDP_PASS;
}
