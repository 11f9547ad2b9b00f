/* A static function in a program's section, called through a relocation against the section or directly. */
#include "bpf.h"

SEC("xdp") static __noinline int beside(struct xdp_md *ctx)
{
	return ctx->ingress_ifindex + 1000;
}

static __noinline int in_text(struct xdp_md *ctx)
{
	return beside(ctx) + 1;
}

SEC("xdp/first")
int first(struct xdp_md *ctx)
{
	return in_text(ctx);
}

SEC("xdp")
int second(struct xdp_md *ctx)
{
	return beside(ctx);
}
