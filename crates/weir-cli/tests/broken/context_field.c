/*
 * The context is read behind its last field.
 * rule: context-field
 * missing: Read a field of struct xdp_md by its name
 * packet: yes
 */
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
