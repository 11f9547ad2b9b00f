/* A program that asks its device for metadata of packets, which only programs bound to that device may, and one that does not. */
#define NO_RESULTS
#include "bpf.h"

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, u64 *timestamp) __attribute__((section(".ksyms")));

SEC("xdp")
int bound(struct xdp_md *ctx)
{
	u64 when = 0;

	return bpf_xdp_metadata_rx_timestamp(ctx, &when) ? XDP_PASS : XDP_DROP;
}

SEC("xdp")
int unbound(struct xdp_md *ctx)
{
	return XDP_PASS;
}
