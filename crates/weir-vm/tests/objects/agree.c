/* Programs as others write them, for comparison with the kernel over captures: every kind of map and helper in ordinary use. */
#include "bpf.h"

#define MAP(name, kind, entries, k, v) \
	struct { __uint(type, kind); __uint(max_entries, entries); __type(key, k); __type(value, v); } name SEC(".maps")
#define ETH_BYTES 14
#define NO_PREALLOC 1

struct counter {
	u64 packets, bytes;
};

struct prefix {
	u32 length;
	u8 data[4];
};

struct address {
	u8 bytes[6];
};

struct event {
	u32 length, type;
	u64 number;
};

MAP(protocols, PERCPU_HASH, 256, u16, struct counter);
MAP(totals, PERCPU_ARRAY, 4, u32, struct counter);
MAP(sources, HASH, 512, struct address, u32);
MAP(recent, LRU_HASH, 4096, struct address, u64);
MAP(recent_percpu, LRU_PERCPU_HASH, 4096, struct address, u64);
MAP(devices, DEVMAP, 8, u32, u32);
MAP(device_hash, DEVMAP_HASH, 8, u32, u32);
MAP(cpus, CPUMAP, 2, u32, u32);
MAP(sockets, XSKMAP, 4, u32, u32);

struct {
	__uint(type, LPM_TRIE);
	__uint(max_entries, 64);
	__uint(map_flags, NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, u32);
} prefixes SEC(".maps");

struct {
	__uint(type, QUEUE);
	__uint(max_entries, 5);
	__type(value, u32);
} queue SEC(".maps");

struct {
	__uint(type, STACK);
	__uint(max_entries, 5);
	__type(value, u32);
} stack SEC(".maps");

struct {
	__uint(type, BLOOM_FILTER);
	__uint(max_entries, 65536);
	__uint(map_extra, 4);
	__type(value, struct address);
} seen SEC(".maps");

struct {
	__uint(type, PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} events SEC(".maps");

struct {
	__uint(type, RINGBUF);
	__uint(max_entries, 1 << 20);
} ring SEC(".maps");

struct inner {
	__uint(type, ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} inner_a SEC(".maps"), inner_b SEC(".maps");

struct {
	__uint(type, ARRAY_OF_MAPS);
	__uint(max_entries, 3);
	__type(key, u32);
	__array(values, struct inner);
} outer SEC(".maps") = {
	.values = { &inner_a, 0, &inner_b },
};

struct {
	__uint(type, HASH_OF_MAPS);
	__uint(max_entries, 4);
	__type(key, u32);
	__array(values, struct inner);
} named SEC(".maps") = {
	.values = { &inner_b, &inner_a },
};

struct {
	__uint(type, PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__uint(value_size, 4);
} programs SEC(".maps");

u64 packets, oddities[4];
const volatile u32 limit = 600;
const volatile struct {
	u32 seed;
	u8 key[8];
} settings = { 17, { 1, 2, 3, 4, 5, 6, 7, 8 } };
u32 state = 1;

static __always_inline u32 length(struct xdp_md *ctx)
{
	return (long)ctx->data_end - (long)ctx->data;
}

/* The type behind the addresses, as it stands; 0 for a frame without. */
static __noinline u32 ether_type(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;

	if (data + ETH_BYTES > (u8 *)(long)ctx->data_end)
		return 0;
	return *(u16 *)(data + 12);
}

/* The source address. */
static __noinline int source(struct xdp_md *ctx, struct address *to)
{
	u8 *data = (void *)(long)ctx->data;

	if (data + ETH_BYTES > (u8 *)(long)ctx->data_end)
		return -1;
	__builtin_memcpy(to, data + 6, 6);
	return 0;
}

SEC("xdp")
int count(struct xdp_md *ctx)
{
	u32 slot = length(ctx) > limit;
	u16 type = ether_type(ctx);
	struct counter *c = map_lookup_elem(&protocols, &type), fresh = { 1, length(ctx) };
	struct address from;
	u32 *n, one = 1;

	packets++;
	if (c) {
		c->packets++;
		c->bytes += length(ctx);
	} else if (map_update_elem(&protocols, &type, &fresh, 1)) {
		oddities[0]++;
	}
	c = map_lookup_elem(&totals, &slot);
	if (!c || source(ctx, &from))
		return XDP_ABORTED;
	c->packets++;
	c->bytes += xdp_get_buff_len(ctx);
	n = map_lookup_elem(&sources, &from);
	if (n)
		__sync_fetch_and_add(n, 1);
	else if (map_update_elem(&sources, &from, &one, 0) == -7)
		oddities[1]++;
	if (n && *n % 64 == 0)
		map_delete_elem(&sources, &from);
	return slot ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int lines(struct xdp_md *ctx)
{
	u32 value = length(ctx), got = 0;

	result(0, map_push_elem(&queue, &value, 0));
	result(1, map_push_elem(&stack, &value, value & 1 ? 2 : 0));
	result(2, map_peek_elem(&queue, &got));
	result(3, got);
	if (value % 3 == 0) {
		result(4, map_pop_elem(&queue, &got));
		result(5, got);
	}
	if (value % 5 == 0) {
		result(6, map_pop_elem(&stack, &got));
		result(7, got);
		result(8, map_peek_elem(&stack, &got));
		result(9, got);
	}
	return got & 1 ? XDP_TX : XDP_PASS;
}

SEC("xdp")
int filter(struct xdp_md *ctx)
{
	struct address from;
	u64 *n;
	u32 slot;
	long known;

	if (source(ctx, &from))
		return XDP_ABORTED;
	known = map_peek_elem(&seen, &from);
	slot = known == 0 ? 10 : 11;
	n = map_lookup_elem(&results, &slot);
	if (n)
		*n += 1;
	if (known) {
		result(12, known);
		result(13, map_push_elem(&seen, &from, 0));
	}
	return known ? XDP_PASS : XDP_DROP;
}

SEC("xdp")
int sample(struct xdp_md *ctx)
{
	struct event event = { length(ctx), ether_type(ctx), packets++ };
	u64 bytes = event.length > 64 ? 64 : event.length;
	struct event *record;

	result(14, perf_event_output(ctx, &events, 0xffffffffULL | bytes << 32, &event, sizeof(event)));
	if (event.number % 7 == 0)
		result(15, perf_event_output(ctx, &events, 0xffffffffULL | (bytes + 4096) << 32, &event, 4));
	if (event.number % 5 == 0)
		result(16, ringbuf_output(&ring, &event, sizeof(event), 1));
	record = ringbuf_reserve(&ring, sizeof(*record), 0);
	if (!record)
		return XDP_ABORTED;
	*record = event;
	if (event.length & 1)
		ringbuf_discard(record, 1);
	else
		ringbuf_submit(record, 1);
	return XDP_PASS;
}

SEC("xdp")
int nested(struct xdp_md *ctx)
{
	u32 which = length(ctx) % 3, slot = ether_type(ctx) & 3;
	void *map = map_lookup_elem(&outer, &which);
	u64 *n;

	if (!map) {
		oddities[2]++;
		return XDP_DROP;
	}
	n = map_lookup_elem(map, &slot);
	if (!n)
		return XDP_ABORTED;
	*n += length(ctx);
	map = map_lookup_elem(&named, &which);
	if (!map)
		return XDP_TX;
	n = map_lookup_elem(map, &slot);
	if (n)
		*n ^= 1ull << (length(ctx) & 63);
	return XDP_PASS;
}

SEC("xdp")
int remember(struct xdp_md *ctx)
{
	struct address from;
	u64 *n, *other, one = 1;

	if (source(ctx, &from))
		return XDP_ABORTED;
	n = map_lookup_elem(&recent, &from);
	other = map_lookup_elem(&recent_percpu, &from);
	if (n)
		*n += length(ctx);
	else
		result(17, map_update_elem(&recent, &from, &one, 1));
	if (other)
		*other += length(ctx);
	else
		result(18, map_update_elem(&recent_percpu, &from, &one, 0));
	if (length(ctx) % 50 == 0)
		result(19, map_delete_elem(&recent, &from));
	return n ? XDP_PASS : XDP_DROP;
}

SEC("xdp")
int routes(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data;
	struct prefix key = { 32 };
	u32 *found;

	if (ether_type(ctx) != 8 || data + 34 > (u8 *)(long)ctx->data_end)
		return XDP_PASS;
	__builtin_memcpy(key.data, data + 26, 4);
	found = map_lookup_elem(&prefixes, &key);
	if (!found) {
		u32 value = key.data[0];

		key.length = 8 + key.data[3] % 17;
		result(20, map_update_elem(&prefixes, &key, &value, 1));
		return XDP_DROP;
	}
	*found += 256;
	if (*found >> 8 == 9)
		result(21, map_delete_elem(&prefixes, &key));
	return XDP_TX;
}

SEC("xdp")
int spread(struct xdp_md *ctx)
{
	u32 n = length(ctx);
	struct { u32 ifindex, program; } *device;

	switch (n % 11) {
	case 0: return redirect_map(&devices, n % 8, XDP_DROP);
	case 1: return redirect_map(&devices, n, XDP_TX);
	case 2: return redirect_map(&device_hash, n % 8, XDP_PASS);
	case 3: return redirect_map(&devices, 0, 8);
	case 4: return redirect_map(&devices, 0, 8 | 16);
	case 5: return redirect_map(&devices, 0, 32);
	case 6: return redirect_map(&cpus, n % 4, XDP_PASS);
	case 7: return redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
	case 8: return redirect(1, 0);
	case 9: return redirect(1, 1);
	}
	n = n % 8;
	device = map_lookup_elem(&devices, &n);
	return device ? device->ifindex : XDP_PASS;
}

SEC("xdp")
int reshape(struct xdp_md *ctx)
{
	u32 n = length(ctx);
	u8 *data, *meta;
	u32 buffer[4];

	switch (n % 6) {
	case 0:
		result(30, xdp_adjust_head(ctx, -(int)(n % 300)));
		break;
	case 1:
		result(31, xdp_adjust_head(ctx, n % 64));
		break;
	case 2:
		result(32, xdp_adjust_tail(ctx, n % 97 - 48));
		break;
	case 3:
		result(33, xdp_adjust_meta(ctx, -(int)(n % 300)));
		meta = (void *)(long)ctx->data_meta;
		if (meta + 4 <= (u8 *)(long)ctx->data)
			*(u32 *)meta = 0x01020304;
		break;
	case 4:
		result(34, xdp_load_bytes(ctx, n % 80, buffer, sizeof(buffer)));
		buffer[0] ^= n;
		result(35, xdp_store_bytes(ctx, n % 90, buffer, sizeof(buffer)));
		break;
	}
	data = (void *)(long)ctx->data;
	if (data + ETH_BYTES <= (u8 *)(long)ctx->data_end)
		data[5] ^= settings.key[n & 7];
	return XDP_TX;
}

struct sum {
	struct xdp_md *ctx;
	u64 total;
	u32 at;
};

static long add_byte(u32 index, struct sum *sum)
{
	u8 byte;

	if (xdp_load_bytes(sum->ctx, index * 3, &byte, 1))
		return 1;
	sum->total = sum->total * 31 + byte;
	return 0;
}

static long add_value(void *map, const void *key, u64 *value, u64 *total)
{
	*total += *value ^ *(const u32 *)key;
	return 0;
}

__noinline int scramble(u32 a, u32 b)
{
	return (a * settings.seed) ^ (b >> 3);
}

SEC("xdp")
int arithmetic(struct xdp_md *ctx)
{
	struct sum sum = { ctx, settings.seed };
	u32 words[8] = { length(ctx), ether_type(ctx), 3, 4, 5, 6, 7, 8 };
	char text[24] = "  -0x7fZ", out[40];
	u64 arguments[3] = { length(ctx), ether_type(ctx), -5ll }, total = 0;
	s64 number = 0;

	result(40, loop(length(ctx) / 3 + 2, add_byte, &sum, 0));
	result(41, sum.total);
	result(42, csum_diff(words, 16, words + 4, 16, sum.total));
	result(43, csum_diff(0, 0, words, 32, 0));
	text[4] = '0' + length(ctx) % 10;
	text[6] = "0123456789abcFg-"[ether_type(ctx) & 15];
	result(44, strtol_(text, sizeof(text), 0, &number));
	result(45, number);
	result(46, strtoul_(text + 3, sizeof(text) - 3, ether_type(ctx) & 16, (u64 *)&number));
	result(47, number);
	result(48, snprintf_(out, (length(ctx) & 31) + 1, "%u|%04x|%5lld|%%", arguments, sizeof(arguments)));
	__builtin_memcpy(arguments, out, 8);
	result(49, out[0]);
	result(50, strncmp_(out, 3, "123"));
	state = scramble(state, length(ctx));
	result(51, state);
	result(52, for_each_map_elem(&results, add_value, &total, 0) > 0);
	result(53, total);
	tail_call(ctx, &programs, length(ctx) & 1);
	return XDP_PASS;
}

SEC("xdp")
int tail_target(struct xdp_md *ctx)
{
	oddities[3]++;
	return XDP_DROP;
}

/* Types of the kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ethhdr {
	u16 h_proto;
	u8 h_source[6];
};

struct iphdr {
	u8 ttl;
	u32 saddr;
	u16 tot_len;
};

struct net_device {
	u32 ifindex, mtu, absent;
};

struct net_device___flavour {
	u32 ifindex;
};

struct sk_buff {
	u32 len;
	u8 ip_summed : 2;
};

struct task_struct___gone {
	u32 not_there;
};
#pragma clang attribute pop

enum bpf_map_type { BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_NEVER };

#define field(kind, expression) __builtin_preserve_field_info(expression, kind)

SEC("xdp")
int kernel_types(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct net_device *device = 0;
	struct sk_buff *skb = 0;
	struct iphdr *ip;
	int field_of_task = field(2, ((struct task_struct___gone *)0)->not_there);

	if ((u8 *)eth + 34 > (u8 *)(long)ctx->data_end)
		return XDP_PASS;
	ip = (void *)eth + ETH_BYTES;
	result(0, eth->h_proto);
	result(1, eth->h_source[2]);
	result(2, ip->saddr);
	result(3, ip->tot_len);
	result(4, field(0, device->mtu));
	result(5, field(2, device->absent));
	result(6, field(0, ((struct net_device___flavour *)0)->ifindex));
	result(7, field(0, skb->ip_summed));
	result(8, field(4, skb->ip_summed));
	result(9, field(5, skb->ip_summed));
	result(10, __builtin_preserve_type_info(*(struct net_device *)0, 1));
	result(11, __builtin_btf_type_id(*(struct sk_buff *)0, 1));
	result(12, __builtin_preserve_enum_value(*(enum bpf_map_type *)BPF_MAP_TYPE_LRU_HASH, 1));
	result(13, __builtin_preserve_enum_value(*(enum bpf_map_type *)BPF_MAP_TYPE_NEVER, 0));
	result(14, field_of_task);
	result(15, field(1, ip->ttl));
	return ip->ttl & 1 ? XDP_PASS : XDP_DROP;
}
