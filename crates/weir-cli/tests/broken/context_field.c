/* The context is read behind its last field. */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u32 *fields = (u32 *)ctx;

#ifdef FIXED
	return fields[4] ? XDP_DROP : XDP_PASS;
#else
	return fields[6] ? XDP_DROP : XDP_PASS; /* REJECTED */
#endif
}
