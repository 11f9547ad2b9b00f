/* Programs that are joined to a wrapper: everything an object can have beside its program, and names that weir uses, too. */
#define NO_RESULTS
#include "bpf.h"

#ifndef ENTRIES
#define ENTRIES 4
#endif

/* Names of weir's own. */
struct {
	__uint(type, ARRAY);
	__uint(max_entries, ENTRIES);
	__type(key, u32);
	__type(value, u64);
} stats SEC(".maps");

const volatile u32 weir_port = 7;
const volatile u32 limit = 100;
static const volatile u32 hidden = 3;
u32 written = 5;
u32 zeroed;
static u32 kept[4];

int tail_first(struct xdp_md *ctx);
int tail_itself(struct xdp_md *ctx);

struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 3);
	__uint(key_size, 4);
	__array(values, int(void *));
} calls SEC(".maps") = {
	.values = { [0] = (void *)&tail_first, [1] = (void *)&tail_itself },
};

static __always_inline u32 length(struct xdp_md *ctx)
{
	return ctx->data_end - ctx->data;
}

static __noinline void count(u32 key, u64 more)
{
	u64 *value = map_lookup_elem(&stats, &key);

	if (value)
		*value += more;
}

__noinline int weigh(struct xdp_md *ctx, u32 factor)
{
	static u32 calls_made;

	calls_made++;
	return length(ctx) * factor + hidden + calls_made % 2;
}

static long each(u32 index, u32 *sum)
{
	*sum += index;
	kept[index & 3]++;
	return 0;
}

/* Data of all sorts, functions of all sorts, a callback, names that clash. */
SEC("xdp")
int everything(struct xdp_md *ctx)
{
	u32 sum = 0;
	int weight;

	loop(5, each, &sum, 0);
	weight = weigh(ctx, weir_port);
	count(0, 1);
	count(1, sum + weight);
	written++;
	zeroed += weight & 1;
	if (length(ctx) > limit)
		return XDP_DROP;
	return weight & 1 ? XDP_TX : XDP_PASS;
}

/* A target of tail calls, in a section of its own. */
SEC("xdp/first")
int tail_first(struct xdp_md *ctx)
{
	count(2, 1);
	return length(ctx) & 1 ? XDP_DROP : XDP_TX;
}

/* Its answer is that of the program it calls; where the call misses, its own. */
SEC("xdp")
int tail(struct xdp_md *ctx)
{
	count(0, 1);
	tail_call(ctx, &calls, length(ctx) > limit ? 2 : 0);
	count(1, 1);
	return XDP_PASS;
}

/* Both a function of the wrapper and a target of its own tail calls. */
SEC("xdp")
int tail_itself(struct xdp_md *ctx)
{
	u32 key = 3;
	u64 *value = map_lookup_elem(&stats, &key);

	if (!value)
		return XDP_ABORTED;
	if (++*value % 4 == 0)
		return XDP_TX;
	tail_call(ctx, &calls, 1);
	return XDP_ABORTED;
}

/* Tail calls out of a function of the object. */
static __noinline int called(struct xdp_md *ctx)
{
	tail_call(ctx, &calls, 0);
	count(3, 1);
	return XDP_PASS;
}

SEC("xdp")
int tail_deeper(struct xdp_md *ctx)
{
	int answer = called(ctx);

	count(1, 1);
	return answer == XDP_DROP ? 17 : answer;
}

/* Returns what the first byte of the frame says. */
SEC("xdp")
int code(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	return data + 1 > end ? XDP_ABORTED : *data;
}

/* Two bytes more in front, so that the length changes. */
SEC("xdp")
int longer(struct xdp_md *ctx)
{
	return xdp_adjust_head(ctx, -2) ? XDP_ABORTED : XDP_PASS;
}
