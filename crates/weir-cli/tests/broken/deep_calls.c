/*
 * Nine functions call each other; eight frames are the limit.
 * rule: call-depth
 * missing: always_inline
 * packet: yes
 */
#include "bpf.h"

#define CALLS(name, next) \
	static __noinline int name(struct xdp_md *ctx) \
	{ \
		return next(ctx) + ctx->rx_queue_index; \
	}

static __noinline int f8(struct xdp_md *ctx)
{
	return ctx->ingress_ifindex;
}

#ifdef FIXED
#define f7 f8
#else
CALLS(f7, f8) /* REJECTED */
#endif
CALLS(f6, f7)
CALLS(f5, f6)
CALLS(f4, f5)
CALLS(f3, f4)
CALLS(f2, f3)
CALLS(f1, f2)

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	return f1(ctx) ? XDP_PASS : XDP_DROP;
}
