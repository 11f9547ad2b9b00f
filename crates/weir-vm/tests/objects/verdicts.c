/* Programs that need type information to be judged. What is named no_RULE_... breaks that rule, the rest is accepted. */
#include "bpf.h"

struct pair {
	u32 first, second;
};

struct guarded {
	u64 count;
	struct bpf_spin_lock lock;
	u32 other;
};

struct {
	__uint(type, ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pair);
} pairs SEC(".maps");

struct {
	__uint(type, HASH);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, struct guarded);
} locked SEC(".maps");

struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u32);
} jumps SEC(".maps");

__noinline int takes_number(u64 n)
{
	return n & 3;
}

__noinline int takes_context(struct xdp_md *ctx)
{
	return ctx->rx_queue_index & 3;
}

__noinline int takes_pair(struct pair *p)
{
	return p ? p->second & 3 : 0;
}

__noinline int trusts_pair(struct pair *p)
{
	return p->second & 3;
}

__noinline int takes_anything(void *p)
{
	return p != 0;
}

__noinline u64 yields_pointer(void)
{
	void *map = &pairs;

	asm volatile("" : "+r"(map));
	return (u64)map;
}

__noinline int moves_head(struct xdp_md *ctx)
{
	return xdp_adjust_head(ctx, 4) == 0;
}

__noinline int deep(u32 n)
{
	volatile u8 room[400];

	room[n & 255] = 1;
	return room[(n + 1) & 255];
}

SEC("xdp")
int number(struct xdp_md *ctx)
{
	return takes_number(ctx->rx_queue_index);
}

SEC("xdp")
int no_FunctionArgument_number(struct xdp_md *ctx)
{
	return takes_number((u64)ctx);
}

SEC("xdp")
int context(struct xdp_md *ctx)
{
	return takes_context(ctx);
}

SEC("xdp")
int no_FunctionArgument_context(struct xdp_md *ctx)
{
	struct xdp_md copy = {};

	return takes_context(&copy);
}

SEC("xdp")
int memory(struct xdp_md *ctx)
{
	struct pair p = { ctx->rx_queue_index, 1 };

	return takes_pair(&p);
}

SEC("xdp")
int memory_of_a_map(struct xdp_md *ctx)
{
	u32 key = 0;

	return takes_pair(map_lookup_elem(&pairs, &key));
}

SEC("xdp")
int no_memory(struct xdp_md *ctx)
{
	return takes_pair(0);
}

SEC("xdp")
int no_MapValueBounds(struct xdp_md *ctx)
{
	u32 key = ctx->rx_queue_index;
	struct pair *p = map_lookup_elem(&pairs, &key);

	return p ? takes_pair((struct pair *)&p->second) : 0;
}

SEC("xdp")
int no_NullValue(struct xdp_md *ctx)
{
	struct pair p = { ctx->rx_queue_index, 1 };

	return trusts_pair(&p);
}

SEC("xdp")
int no_FunctionSignature(struct xdp_md *ctx)
{
	return takes_anything(ctx);
}

SEC("xdp")
int no_ReturnsNoNumber(struct xdp_md *ctx)
{
	return yields_pointer() > ctx->rx_queue_index;
}

SEC("xdp")
int no_NotMemory_stale(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + 1 > end)
		return 0;
	moves_head(ctx);
	return *data & 1;
}

SEC("xdp")
int loaded_again(struct xdp_md *ctx)
{
	u8 *data, *end;

	moves_head(ctx);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + 1 > end)
		return 0;
	return *data & 1;
}

SEC("xdp")
int no_CombinedStack(struct xdp_md *ctx)
{
	volatile u8 room[200];

	room[ctx->rx_queue_index & 127] = 1;
	return deep(room[3]) & 1;
}

static int again(u64 index, void *context)
{
	return 0;
}

__noinline int global_again(u64 index, struct pair *context)
{
	return 0;
}

SEC("xdp")
int callback(struct xdp_md *ctx)
{
	loop(ctx->rx_queue_index, again, 0, 0);
	return 1;
}

SEC("xdp")
int no_CallbackGlobal(struct xdp_md *ctx)
{
	loop(ctx->rx_queue_index, global_again, 0, 0);
	return 1;
}

static int inner(u64 index, u64 *sum)
{
	*sum += index;
	return *sum > 1000;
}

static int outer(u64 index, u64 *sum)
{
	loop(index & 7, inner, sum, 0);
	return 0;
}

SEC("xdp")
int nested_callbacks(struct xdp_md *ctx)
{
	u64 sum = 0;

	loop(ctx->rx_queue_index, outer, &sum, 0);
	return sum & 1;
}

static int pick(u64 index, u32 *at)
{
	if (index & 1)
		*at = 1;
	return 0;
}

/* What a callback wrote decides the access: its value must not be forgotten. */
SEC("xdp")
int callback_chooses(struct xdp_md *ctx)
{
	u32 key = 0, at = 0;
	struct pair *p = map_lookup_elem(&pairs, &key);

	loop(ctx->rx_queue_index, pick, &at, 0);
	return p && at < 2 ? ((u32 *)p)[at] & 1 : 0;
}

static int pick_far(u64 index, u32 *at)
{
	if (index & 1)
		*at = 2;
	return 0;
}

SEC("xdp")
int no_MapValueBounds_callback(struct xdp_md *ctx)
{
	u32 key = 0, at = 0;
	struct pair *p = map_lookup_elem(&pairs, &key);

	loop(ctx->rx_queue_index, pick_far, &at, 0);
	return p && at < 3 ? ((u32 *)p)[at] & 1 : 0;
}

SEC("xdp")
int locks(struct xdp_md *ctx)
{
	u32 key = 0;
	struct guarded *g = map_lookup_elem(&locked, &key);

	if (!g)
		return 0;
	spin_lock(&g->lock);
	g->count++;
	spin_unlock(&g->lock);
	return 1;
}

SEC("xdp")
int no_LeakedLock(struct xdp_md *ctx)
{
	u32 key = 0;
	struct guarded *g = map_lookup_elem(&locked, &key);

	if (!g)
		return 0;
	spin_lock(&g->lock);
	g->count++;
	if (g->count > 5)
		return 2;
	spin_unlock(&g->lock);
	return 1;
}

SEC("xdp")
int no_OtherLock(struct xdp_md *ctx)
{
	u32 key = 0, next = 1;
	struct guarded *g = map_lookup_elem(&locked, &key), *h = map_lookup_elem(&locked, &next);

	if (!g || !h)
		return 0;
	spin_lock(&g->lock);
	spin_unlock(&h->lock);
	return 1;
}

SEC("xdp")
int no_CallUnderLock(struct xdp_md *ctx)
{
	u32 key = 0;
	struct guarded *g = map_lookup_elem(&locked, &key);

	if (!g)
		return 0;
	spin_lock(&g->lock);
	g->count = takes_number(g->count);
	spin_unlock(&g->lock);
	return 1;
}

SEC("xdp")
int no_LockAccess(struct xdp_md *ctx)
{
	u32 key = 0;
	struct guarded *g = map_lookup_elem(&locked, &key);

	if (!g)
		return 0;
	*(volatile u64 *)&g->lock = 0;
	return 1;
}

static __noinline int jumps_away(struct xdp_md *ctx, u32 n)
{
	tail_call(ctx, &jumps, n);
	return 1;
}

SEC("xdp")
int tail_call_in_a_function(struct xdp_md *ctx)
{
	return jumps_away(ctx, ctx->rx_queue_index);
}

SEC("xdp")
int no_NotMemory_after_a_tail_call(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + 1 > end)
		return 0;
	jumps_away(ctx, 2);
	return *data & 1;
}

SEC("xdp")
int prints(struct xdp_md *ctx)
{
	static const char text[] = "here";

	trace_printk(text, sizeof(text));
	return 1;
}

struct bpf_iter_num {
	u64 __opaque[1];
} __attribute__((aligned(8)));
struct bpf_iter_bits {
	u64 __opaque[2];
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __attribute__((weak)) SEC(".ksyms");
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __attribute__((weak)) SEC(".ksyms");
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __attribute__((weak)) SEC(".ksyms");
extern int bpf_iter_bits_new(struct bpf_iter_bits *it, const u64 *unsafe_ptr__ign, u32 words) __attribute__((weak)) SEC(".ksyms");
extern int *bpf_iter_bits_next(struct bpf_iter_bits *it) __attribute__((weak)) SEC(".ksyms");
extern void bpf_iter_bits_destroy(struct bpf_iter_bits *it) __attribute__((weak)) SEC(".ksyms");

/* A bound that is not known: no count of rounds is walked. */
SEC("xdp")
int iterates(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	u32 sum = 0;
	int *n;

	bpf_iter_num_new(&it, 3, ctx->ingress_ifindex + 9);
	while ((n = bpf_iter_num_next(&it)))
		sum += *n;
	bpf_iter_num_destroy(&it);
	return sum;
}

SEC("xdp")
int iterates_in_iterations(struct xdp_md *ctx)
{
	struct bpf_iter_num outer, inner;
	u32 rounds = 0;
	int *n, *m;

	bpf_iter_num_new(&outer, 0, ctx->rx_queue_index + 5);
	while ((n = bpf_iter_num_next(&outer))) {
		bpf_iter_num_new(&inner, 0, *n);
		while ((m = bpf_iter_num_next(&inner)))
			rounds++;
		bpf_iter_num_destroy(&inner);
	}
	bpf_iter_num_destroy(&outer);
	return rounds;
}

SEC("xdp")
int iterates_over_bits(struct xdp_md *ctx)
{
	u64 words[2] = { 0x8000000000000001, 0x30 + ctx->rx_queue_index };
	struct bpf_iter_bits it;
	u32 sum = 0;
	int *bit;

	bpf_iter_bits_new(&it, words, 2);
	while ((bit = bpf_iter_bits_next(&it)))
		sum += *bit;
	bpf_iter_bits_destroy(&it);
	return sum;
}

SEC("xdp")
int no_IteratorState_begun(struct xdp_md *ctx)
{
	struct bpf_iter_num it = {};

	return bpf_iter_num_next(&it) != 0;
}

SEC("xdp")
int no_IteratorState_other(struct xdp_md *ctx)
{
	struct bpf_iter_bits it;
	u64 word = 1;

	bpf_iter_bits_new(&it, &word, 1);
	bpf_iter_num_next((void *)&it);
	bpf_iter_bits_destroy(&it);
	return 0;
}

SEC("xdp")
int no_IteratorState_twice(struct xdp_md *ctx)
{
	struct bpf_iter_num it;

	bpf_iter_num_new(&it, 0, 3);
	bpf_iter_num_new(&it, 0, 3);
	bpf_iter_num_destroy(&it);
	return 0;
}

SEC("xdp")
int no_LeakedReference_iterator(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	int *n;

	bpf_iter_num_new(&it, 0, 3);
	n = bpf_iter_num_next(&it);
	return n ? *n : 0;
}

SEC("xdp")
int no_ReadOnlyMemory_item(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	int *n;

	bpf_iter_num_new(&it, 0, 3);
	while ((n = bpf_iter_num_next(&it)))
		*n = 7;
	bpf_iter_num_destroy(&it);
	return 0;
}

/* What a later round finds was stored by an earlier one. */
SEC("xdp")
int no_MapValueBounds_iterated(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	struct pair *pair;
	u32 key = 0, at = 0, sum = 0;
	int *n;

	pair = map_lookup_elem(&pairs, &key);
	if (!pair)
		return 0;
	bpf_iter_num_new(&it, 0, ctx->rx_queue_index);
	while ((n = bpf_iter_num_next(&it))) {
		sum += ((volatile u8 *)pair)[at];
		at += 3;
	}
	bpf_iter_num_destroy(&it);
	return sum;
}

/* The kernel's loader would look for it even where no program that uses it is loaded. */
#ifdef KERNEL_FUNCTION
extern int bpf_not_there(const struct xdp_md *ctx) __attribute__((section(".ksyms")));

SEC("xdp")
int no_External(struct xdp_md *ctx)
{
	return bpf_not_there(ctx);
}
#endif
