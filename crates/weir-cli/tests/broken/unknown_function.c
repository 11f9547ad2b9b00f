/*
 * A function of a C library is called, which the kernel does not have.
 * rule: external
 * missing: __builtin_strlen
 * packet: none
 */
#include "bpf.h"

extern unsigned long strlen(const char *text);

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	char name[16] = {};

	if (bpf_xdp_load_bytes(ctx, 14, name, 15))
		return XDP_PASS;
#ifdef FIXED
	return name[0] ? XDP_PASS : XDP_DROP;
#else
	return strlen(name) > 3 ? XDP_PASS : XDP_DROP; /* REJECTED */
#endif
}
