/* Sends frames of EtherType 0x88b5 back with their addresses swapped and four bytes of tail more; everything else passes. */
#include "../broken/bpf.h"

u64 swapped;

static long (*const adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;

SEC("xdp")
int swap(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u8 byte;
	int i;

	if (data + 14 > end || data[12] != 0x88 || data[13] != 0xb5)
		return XDP_PASS;
#pragma unroll
	for (i = 0; i < 6; i++) {
		byte = data[i];
		data[i] = data[i + 6];
		data[i + 6] = byte;
	}
	__sync_fetch_and_add(&swapped, 1);
	if (adjust_tail(ctx, 4))
		return XDP_DROP;
	return XDP_TX;
}

char LICENSE[] SEC("license") = "GPL";
