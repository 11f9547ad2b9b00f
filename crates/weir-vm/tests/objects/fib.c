/* Asks the routing table what the packet says: behind 14 bytes are flags, length, and the helper's parameters, and there the answer goes. */
#define NO_RESULTS
#include "bpf.h"

#define AT 14

struct question {
	u32 flags, length;
	u8 params[64];
};

SEC("xdp")
int route(struct xdp_md *ctx)
{
	struct question q;
	long answer;

	if (xdp_load_bytes(ctx, AT, &q, sizeof(q)))
		return -1000;
	answer = fib_lookup(ctx, q.params, q.length & 1 ? 63 : 64, q.flags);
	if (xdp_store_bytes(ctx, AT, &q, sizeof(q)))
		return -1001;
	return answer;
}

SEC("xdp")
int mtu(struct xdp_md *ctx)
{
	struct { u32 ifindex, length, difference, flags; } q;
	long answer;

	if (xdp_load_bytes(ctx, AT, &q, sizeof(q)))
		return -1000;
	answer = check_mtu(ctx, q.ifindex, &q.length, q.difference, q.flags);
	if (xdp_store_bytes(ctx, AT, &q, sizeof(q)))
		return -1001;
	return answer;
}
