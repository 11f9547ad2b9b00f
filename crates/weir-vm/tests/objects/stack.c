/* Programs that use BYTES bytes of stack: by themselves, with a tail call of their own, and through a function they call. */
#define NO_RESULTS
#include "bpf.h"

#ifndef BYTES
#define BYTES 64
#endif

struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} calls SEC(".maps");

static __always_inline int use(struct xdp_md *ctx)
{
	volatile u64 bytes[BYTES / 8];

	for (int i = 0; i < BYTES / 8; i++)
		bytes[i] = ctx->rx_queue_index;
	return bytes[0] ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int plain(struct xdp_md *ctx)
{
	return use(ctx);
}

SEC("xdp")
int calling(struct xdp_md *ctx)
{
	int answer = use(ctx);

	tail_call(ctx, &calls, 0);
	return answer;
}

static __noinline int called(struct xdp_md *ctx)
{
	tail_call(ctx, &calls, 0);
	return ctx->rx_queue_index;
}

/* The frames in front of the function that calls count against 256 bytes. */
SEC("xdp")
int deeper(struct xdp_md *ctx)
{
	int answer = use(ctx);

	return called(ctx) + answer;
}
