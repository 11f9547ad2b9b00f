/* A program that starts a timer for each packet, which counts when it fires. */
#define NO_RESULTS
#include "bpf.h"

struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct element {
	u64 fired;
	struct bpf_timer timer;
};

struct {
	__uint(type, ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct element);
} timers SEC(".maps");

static long (*timer_init)(struct bpf_timer *timer, void *map, u64 flags) = (void *)169;
static long (*timer_set_callback)(struct bpf_timer *timer, void *callback) = (void *)170;
static long (*timer_start)(struct bpf_timer *timer, u64 ns, u64 flags) = (void *)171;

static int fire(void *map, u32 *key, struct element *element)
{
	element->fired++;
	return 0;
}

SEC("xdp.frags")
int timed(struct xdp_md *ctx)
{
	u32 key = 0;
	struct element *element = map_lookup_elem(&timers, &key);

	if (!element)
		return XDP_ABORTED;
	timer_init(&element->timer, &timers, 1 /* CLOCK_MONOTONIC */);
	timer_set_callback(&element->timer, fire);
	timer_start(&element->timer, 1000000, 0);
	return XDP_PASS;
}
