/*
 * Metadata in front of the frame is read; whether somebody put some there is not asked.
 * rule: packet-bounds
 * missing: if ((void *)(meta + 1) > (void *)(long)ctx->data)
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 *meta = (void *)(long)ctx->data_meta;
	void *data = (void *)(long)ctx->data;

#ifdef FIXED
	if ((void *)(meta + 1) > data)
		return XDP_PASS;
#endif
	return *meta == 7 ? XDP_DROP : XDP_PASS; /* REJECTED */
}
