/*
 * Up to 16 bytes are copied to a buffer of 16, and a zero is put behind them.
 * rule: stack-bounds
 * missing: sizeof(name)
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	char name[16] = {};
	u32 length;

	if ((void *)(data + 32) > data_end)
		return XDP_PASS;
	length = data[14];
#ifdef FIXED
	if (length >= sizeof(name))
#else
	if (length > sizeof(name))
#endif
		return XDP_PASS;
	__builtin_memcpy(name, data + 15, 16);
	name[length] = 0; /* REJECTED */
	return name[0] == 'a' && name[3] == 0 ? XDP_DROP : XDP_PASS;
}
