/* A function of a chain: counts in a map of its own, writes down where the packet was, and goes on by the shared links. */
#define NO_RESULTS
#include "bpf.h"

static u32 (*get_smp_processor_id)(void) = (void *)8;

/* Which function this copy is; 0 is where packets come in. */
const volatile u32 number;

struct visit {
	u32 at;		/* function the packet is in */
	u32 hops;
	u64 path;	/* four bits a hop */
};

struct {
	__uint(type, PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct visit);
} shared_visit SEC(".maps");

struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u32);
} shared_programs SEC(".maps");

struct {
	__uint(type, ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u32);
} shared_links SEC(".maps");

struct {
	__uint(type, RINGBUF);
	__uint(max_entries, 4096);
} shared_events SEC(".maps");

struct {
	__uint(type, PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} seen SEC(".maps");

#ifdef WIDE
#define SIZE 4
#else
#define SIZE 2
#endif
struct {
	__uint(type, ARRAY);
	__uint(max_entries, SIZE);
	__type(key, u32);
	__type(value, u64);
} load SEC(".maps");

u64 runs;

static __noinline int mark(struct visit *visit)
{
	if (!visit)
		return 0;
	visit->path = visit->path << 4 | (number & 15);
	visit->hops++;
	return visit->hops;
}

SEC("xdp")
int hop(struct xdp_md *ctx)
{
	struct visit *visit;
	u32 zero = 0, *next;
	u64 *count;

	runs++;
	visit = map_lookup_elem(&shared_visit, &zero);
	if (!visit)
		return XDP_ABORTED;
	if (!number) {
		visit->hops = 0;
		visit->path = 0;
	}
	visit->at = number;
	mark(visit);
	count = map_lookup_elem(&seen, &zero);
	if (count)
		++*count;
	count = map_lookup_elem(&load, &zero);
	if (count)
		++*count;
	ringbuf_output(&shared_events, visit, sizeof(*visit), 0);
	next = map_lookup_elem(&shared_links, (const void *)&number);
	if (!next)
		return XDP_ABORTED;
	if (!*next)
		return XDP_PASS;
	tail_call(ctx, &shared_programs, *next);
	return XDP_DROP;
}
