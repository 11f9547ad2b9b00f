/* Programs that ask for what is not in the object: their device for metadata of packets, which only programs bound to that device
 * may, and the kernel for its configuration; and one that asks for nothing. */
#define NO_RESULTS
#include "bpf.h"

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, u64 *timestamp) __attribute__((section(".ksyms")));

SEC("xdp")
int bound(struct xdp_md *ctx)
{
	u64 when = 0;

	return bpf_xdp_metadata_rx_timestamp(ctx, &when) ? XDP_PASS : XDP_DROP;
}

extern int LINUX_KERNEL_VERSION __attribute__((section(".kconfig")));

SEC("xdp")
int versioned(struct xdp_md *ctx)
{
	return LINUX_KERNEL_VERSION > 7 ? XDP_PASS : XDP_DROP;
}

static long each(u32 index, void *none)
{
	return 0;
}

/* The kernel loads callbacks only with type information, and refuses that if it tells of what is nowhere. */
SEC("xdp")
int unbound(struct xdp_md *ctx)
{
	loop(2, each, 0, 0);
	return XDP_PASS;
}
