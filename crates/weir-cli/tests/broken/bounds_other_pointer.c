/*
 * One pointer is compared with the end, and one at an unknown distance from it is read.
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
	u8 *option;

	if ((void *)(data + 64) > data_end)
		return XDP_PASS;
	option = data + 34 + data[14];
#ifdef FIXED
	if ((void *)(option + 2) > data_end)
		return XDP_PASS;
#endif
	return option[1] == 4 ? XDP_DROP : XDP_PASS; /* REJECTED */
}
