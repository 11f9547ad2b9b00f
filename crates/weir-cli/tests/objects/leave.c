/* Sends everything to a device, or back by the one that it came in by. */
#include "../broken/bpf.h"

const volatile u32 device = 0;

static long (*const redirect)(u32 ifindex, u64 flags) = (void *)23;

SEC("xdp.frags")
int leave(struct xdp_md *ctx)
{
	return device ? redirect(device, 0) : XDP_TX;
}

char LICENSE[] SEC("license") = "GPL";
