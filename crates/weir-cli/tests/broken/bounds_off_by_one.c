/*
 * The comparison covers one byte less than is read.
 * rule: packet-bounds
 * missing: if ((void *)(bytes + 14) > data_end)
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	u8 *bytes = data;

#ifdef FIXED
	if (data + 14 > data_end)
		return XDP_DROP;
#else
	if (data + 13 > data_end)
		return XDP_DROP;
#endif
	return bytes[13] == 6 ? XDP_DROP : XDP_PASS; /* REJECTED */
}
