/* Linking and calls: subprograms, callbacks, tail calls, constants and globals. */
#include "bpf.h"

struct outer {
	u32 first;
	struct {
		u16 inner_a;
		u16 inner_b;
	};
	union {
		u64 wide;
		u8 bytes[8];
	};
	u32 low : 3, high : 5;
	struct { u32 x, y; } point[3];
};
enum colour { RED = 3, GREEN = 5 };

const volatile u32 limit = 7;
static const volatile u16 hidden = 0x1234;
const volatile u64 table[4] = { 1, 10, 100, 1000 };
volatile u32 counter = 40;
static volatile u64 zeroed;
volatile struct outer probe;
volatile enum colour colour;

struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__array(values, int(struct xdp_md *));
} jumps SEC(".maps");

__noinline int global_sum(u64 a, u64 b)
{
	return a * limit + b + hidden;
}

static __noinline int local_sum(u64 *cell)
{
	*cell += 5;
	return global_sum(*cell, 1);
}

SEC("xdp")
int calls(struct xdp_md *ctx)
{
	u64 cell = 3;
	int r = local_sum(&cell);
	counter++;
	zeroed += table[cell & 3];
	result(0, r);
	result(1, cell);
	result(2, counter);
	result(3, zeroed);
	return XDP_PASS;
}

struct state {
	u64 sum;
	u64 stop;
};

static long add(u32 index, struct state *state)
{
	state->sum += index;
	return index == state->stop;
}

static long nested(u32 index, struct state *state)
{
	loop(3, add, state, 0);
	return 0;
}

SEC("xdp")
int loops(struct xdp_md *ctx)
{
	struct state s = { 0, 100 };
	result(0, loop(10, add, &s, 0));
	result(1, s.sum);
	s.stop = 4;
	s.sum = 0;
	result(2, loop(10, add, &s, 0));
	result(3, loop(10, add, &s, 1));
	result(4, loop((1 << 23) + 1, add, &s, 0));
	s.sum = 0;
	s.stop = 100;
	result(5, loop(4, nested, &s, 0));
	result(6, s.sum);
	return XDP_PASS;
}

static __noinline int from_subprogram(struct xdp_md *ctx)
{
	/* Volatile, or the compiler takes the returned value for a constant. */
	volatile int missed = -1;
	tail_call(ctx, &jumps, 2);
	return missed;
}

SEC("xdp")
int leaf(struct xdp_md *ctx)
{
	return 77;
}

SEC("xdp")
int caller(struct xdp_md *ctx)
{
	int r = from_subprogram(ctx);
	return r + 1;
}

SEC("xdp")
int count(struct xdp_md *ctx)
{
	zeroed++;
	tail_call(ctx, &jumps, 1);
	return XDP_DROP;
}

SEC("xdp")
int miss(struct xdp_md *ctx)
{
	tail_call(ctx, &jumps, 3);
	tail_call(ctx, &jumps, 400);
	return XDP_TX;
}

SEC("xdp/other")
int clock(struct xdp_md *ctx)
{
	static const char format[] = "t=%llu n=%u s=%s";
	static const char word[] = "abc";
	u64 now = ktime_get_ns();
	result(0, now);
	result(1, get_prandom_u32());
	result(2, get_prandom_u32());
	result(3, strncmp_(word, 4, "abd"));
	result(4, strncmp_(word, 4, "abc"));
	trace_printk(format, sizeof(format), now, ctx->rx_queue_index, word);
	return XDP_PASS;
}

struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__array(values, int(struct xdp_md *));
} wired SEC(".maps") = {
	.values = { [1] = (void *)&leaf },
};

SEC("xdp")
int prewired(struct xdp_md *ctx)
{
	tail_call(ctx, &wired, 1);
	return 0;
}
