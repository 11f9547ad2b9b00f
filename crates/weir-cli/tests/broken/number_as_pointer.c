/*
 * A number is used as an address.
 * rule: not-memory
 * missing: A number from the packet, a map or the context is not an address
 * packet: yes
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
#ifdef FIXED
	u32 number = ctx->ingress_ifindex;

	return number ? XDP_DROP : XDP_PASS;
#else
	u32 *address = (void *)(long)ctx->ingress_ifindex;

	return *address ? XDP_DROP : XDP_PASS; /* REJECTED */
#endif
}
