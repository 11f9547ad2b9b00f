/* Types of every shape as keys and values of maps, and a program that counts frames in them. */
#include "../broken/bpf.h"

#define PERCPU_ARRAY 6
#define LRU_HASH 9
#define PROG_ARRAY 3

enum color { RED, GREEN = 7, BLUE = -2 };

struct inner {
	u16 a;
	u32 b; /* two bytes of padding before it */
};

struct everything {
	u8 byte;
	signed char small;
	_Bool flag;
	char name[13];
	u64 wide;
	long long negative;
	__be16 port;
	__be32 address;
	enum color color;
	u32 low : 3, mid : 20, high : 9;
	int signed_field : 5;
	struct inner inners[2];
	union {
		u32 word;
		u8 bytes[4];
	};
	union {
		u64 number;
		struct inner pair;
	} choice;
	void *pointer;
	double real;
	__int128 huge;
	u8 grid[2][3];
	char flexible[];
};

struct flow {
	__be32 saddr, daddr;
	__be16 sport, dport;
	u8 proto;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, struct flow);
	__type(value, struct everything);
} flows SEC(".maps");

struct {
	__uint(type, PERCPU_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} percpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__uint(value_size, 8);
} untyped SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__uint(value_size, 4);
} programs SEC(".maps");

static long (*bpf_tail_call)(void *ctx, void *map, u32 index) = (void *)12;
static long (*bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;

u32 frames;
struct inner last = { .a = 1, .b = 2 };
const volatile u32 limit = 5;

SEC("xdp")
int count(struct xdp_md *ctx)
{
	u32 zero = 0;
	u64 *seen = bpf_map_lookup_elem(&percpu, &zero);
	u64 length = ctx->data_end - ctx->data;
	struct flow flow = {};

	frames++;
	last.b += length;
	if (seen)
		*seen += 1;
	bpf_map_update_elem(&untyped, &frames, &length, 0);
	bpf_ringbuf_output(&events, &frames, 4, 0);
	flow.proto = 6;
	if (bpf_map_lookup_elem(&flows, &flow))
		return XDP_DROP;
	bpf_tail_call(ctx, &programs, 0);
	return frames > limit ? XDP_TX : XDP_PASS;
}

SEC("xdp")
int drop(struct xdp_md *ctx)
{
	return XDP_DROP;
}

SEC("tc")
int longer(struct __sk_buff *skb)
{
	if (skb->len > 44)
		return 2; /* TC_ACT_SHOT */
	skb->mark = 1;
	return skb->len == 43 ? -1 : 0;
}
