/*
 * A helper of XDP frames is called on a socket buffer.
 * rule: unknown-helper
 * missing: bpf_skb_adjust_room
 * packet: none
 */
#include "bpf.h"

SEC("tc")
int prog(struct __sk_buff *ctx)
{
#ifdef FIXED
	return ctx->len > 64 ? 0 : 2;
#else
	if (bpf_xdp_adjust_head((void *)ctx, 14)) /* REJECTED */
		return 2;
	return 0;
#endif
}
