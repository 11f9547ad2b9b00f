/*
 * A tc program writes to a field of the context that can only be read.
 * rule: context-field
 * missing: Write mark, priority
 * packet: yes
 */
#include "bpf.h"

SEC("tc")
int prog(struct __sk_buff *ctx)
{
#ifdef FIXED
	ctx->mark = 7;
#else
	ctx->len = 60; /* REJECTED */
#endif
	return 0;
}
