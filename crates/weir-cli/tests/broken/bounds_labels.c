/*
 * The walk over the labels of a DNS name compares the first byte with the end, and no other.
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
	u8 *cursor = data + 54;
	int i;

	if ((void *)(cursor + 1) > data_end)
		return XDP_PASS;
	for (i = 0; i < 4; i++) {
		if (*cursor == 0) /* REJECTED */
			return XDP_DROP;
		cursor += *cursor + 1;
#ifdef FIXED
		if ((void *)(cursor + 1) > data_end)
			return XDP_PASS;
#endif
	}
	return XDP_PASS;
}
