/* What native code does in ways of its own: wide loads, lookups in place, decided branches, frames and calls. */
#include "bpf.h"

static u32 (*get_smp_processor_id)(void) = (void *)8;

struct __attribute__((packed)) fields {
	u8 one;
	u16 two;
	u32 four;
	u64 eight;
	u16 last;
};

#define KEY(n) struct key##n { u8 bytes[n]; }
KEY(1);
KEY(2);
KEY(3);
KEY(5);
KEY(7);
KEY(12);
KEY(16);
KEY(23);
KEY(40);

#define MAP(n)                                                                 \
	struct {                                                               \
		__uint(type, HASH);                               \
		__uint(max_entries, 300);                                      \
		__type(key, struct key##n);                                    \
		__type(value, u64);                                          \
	} hash##n SEC(".maps")
MAP(1);
MAP(2);
MAP(3);
MAP(5);
MAP(7);
MAP(12);
MAP(16);
MAP(23);
MAP(40);

struct {
	__uint(type, PERCPU_HASH);
	__uint(max_entries, 40);
	__type(key, u32);
	__type(value, u32);
} percpu SEC(".maps");

struct {
	__uint(type, PERCPU_ARRAY);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, struct fields);
} slots SEC(".maps");

SEC("xdp")
int wide(struct xdp_md *ctx)
{
	struct fields *f = (void *)(long)ctx->data;

	if ((void *)(f + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	result(0, f->one);
	result(1, f->two);
	result(2, f->four);
	result(3, f->eight);
	result(4, f->last);
	result(5, __builtin_bswap16(f->two));
	result(6, __builtin_bswap32(f->four));
	result(7, __builtin_bswap64(f->eight));
	result(8, (u64)f->two << 32 | f->four);
	/* Written between its bytes: must not be joined. */
	u8 *b = (void *)f;
	u32 low = b[0];
	b[1] = 0x77;
	result(9, low | (u32)b[1] << 8);
	result(10, (u16)(b[3] << 8 | b[2]));
	result(11, (u16)(b[2] << 8 | b[3]));
	result(12, b[4] | b[5] << 8 | b[6] << 16 | (u32)b[7] << 24);
	result(13, b[7] | b[6] << 8 | b[5] << 16 | (u32)b[4] << 24);
	result(14, b[4] | b[5] << 8 | b[7] << 16);
	return XDP_PASS;
}

#define TRY(n, slot)                                                           \
	do {                                                                   \
		struct key##n key = {};                                        \
		u64 value = slot, *found;                                    \
		for (int i = 0; i < n; i++)                                    \
			key.bytes[i] = data[i % 8] + i;                        \
		found = map_lookup_elem(&hash##n, &key);                   \
		result(slot, found ? 1 + *found : 0);                             \
		map_update_elem(&hash##n, &key, &value, 0);                \
		found = map_lookup_elem(&hash##n, &key);                   \
		if (found)                                                     \
			*found += 100;                                         \
		result(slot + 1, found ? *found : 0);                             \
	} while (0)

SEC("xdp")
int keys(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;

	if (data + 8 > (u8 *)(long)ctx->data_end)
		return XDP_DROP;
	TRY(1, 0);
	TRY(2, 2);
	TRY(3, 4);
	TRY(5, 6);
	TRY(7, 8);
	TRY(12, 10);
	TRY(16, 12);
	TRY(23, 14);
	TRY(40, 16);
	return XDP_PASS;
}

static int fill(u32 i, void *ctx)
{
	u64 value = i * 3;
	struct key5 key = {};

	key.bytes[0] = i;
	key.bytes[4] = i >> 8;
	map_update_elem(&hash5, &key, &value, 0);
	if (i % 3 == 0) {
		key.bytes[0] = i / 2;
		map_delete_elem(&hash5, &key);
	}
	return 0;
}

/* Growing, deleting, and finding what is left. */
SEC("xdp")
int many(struct xdp_md *ctx)
{
	u32 found = 0;

	loop(280, fill, 0, 0);
	for (int i = 0; i < 280; i++) {
		struct key5 key = {};

		key.bytes[0] = i;
		key.bytes[4] = i >> 8;
		u64 *value = map_lookup_elem(&hash5, &key);
		if (value)
			found += *value + 1;
	}
	result(0, found);
	return XDP_PASS;
}

SEC("xdp")
int own(struct xdp_md *ctx)
{
	u32 key = 2, beyond = 3, host = ctx->rx_queue_index + 7, one = 1;
	struct fields *slot = map_lookup_elem(&slots, &key);

	if (!slot)
		return XDP_ABORTED;
	slot->two += 5;
	slot->eight = slot->two;
	result(0, slot->eight);
	result(1, map_lookup_elem(&slots, &beyond) == 0);
	map_update_elem(&percpu, &host, &one, 0);
	u32 *count = map_lookup_elem(&percpu, &host);
	if (count)
		*count += get_smp_processor_id() + 1;
	result(2, count ? *count : 99);
	result(3, ctx->ingress_ifindex);
	result(4, ktime_get_ns());
	return XDP_PASS;
}

int last(struct xdp_md *ctx);

struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__array(values, int(struct xdp_md *));
} programs SEC(".maps") = {
	.values = { [1] = (void *)&last },
};

static __noinline int away(struct xdp_md *ctx, int slot)
{
	u64 kept = ctx->ingress_ifindex;

	tail_call(ctx, &programs, slot);
	return kept + 40;
}

SEC("xdp")
int calls(struct xdp_md *ctx)
{
	u64 before = ctx->rx_queue_index + 11;
	int missed = away(ctx, 0);
	int taken = away(ctx, 1);

	result(0, missed);
	result(1, taken);
	result(2, before);
	tail_call(ctx, &programs, 1);
	return XDP_ABORTED;
}

SEC("xdp")
int last(struct xdp_md *ctx)
{
	u8 bytes[6] = {};

	result(3, xdp_load_bytes(ctx, 3, bytes, sizeof(bytes)));
	result(4, bytes[0] | bytes[1] << 8 | (u32)bytes[2] << 16 | (u64)bytes[5] << 40);
	result(5, xdp_load_bytes(ctx, 60000, bytes, sizeof(bytes)));
	return XDP_TX;
}
