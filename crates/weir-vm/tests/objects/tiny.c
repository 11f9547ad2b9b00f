/* Small, but with a map, constants, a subprogram and a callback: for damage tests. */
#include "bpf.h"

const volatile u32 step = 2;
static u64 seen;

static long bump(u32 index, u64 *sum)
{
	*sum += index * step;
	return 0;
}

SEC("xdp")
int tiny(struct xdp_md *ctx)
{
	u64 sum = 0;
	loop(4, bump, &sum, 0);
	seen += sum;
	result(0, seen);
	return XDP_PASS;
}
