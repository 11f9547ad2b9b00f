/*
 * The verdict is returned without ever being chosen.
 * rule: uninit-register
 * missing: action = XDP_PASS;
 * packet: none
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
#ifdef FIXED
	int action = XDP_PASS;
#else
	int action;
#endif

	return action; /* REJECTED */
}
