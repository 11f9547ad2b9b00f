/*
 * A helper of socket buffers is called on an XDP frame.
 * rule: unknown-helper
 * missing: bpf_xdp_store_bytes
 * packet: none
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 ttl = 64;

#ifdef FIXED
	return bpf_xdp_load_bytes(ctx, 22, &ttl, 1) ? XDP_DROP : XDP_PASS;
#else
	return bpf_skb_store_bytes(ctx, 22, &ttl, 1, 0) ? XDP_DROP : XDP_PASS; /* REJECTED */
#endif
}
