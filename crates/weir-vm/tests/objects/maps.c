/* Every map type and the helpers that work on them. */
#include "bpf.h"

#define MAP(name, kind, entries, k, v) \
	struct { __uint(type, kind); __uint(max_entries, entries); __type(key, k); __type(value, v); } name SEC(".maps")

struct locked {
	struct bpf_spin_lock lock;
	u32 count;
};
struct prefix {
	u32 length;
	u8 data[4];
};

MAP(array, ARRAY, 4, u32, u32);
MAP(percpu_array, PERCPU_ARRAY, 2, u32, u32);
MAP(hash, HASH, 2, u64, u64);
MAP(percpu_hash, PERCPU_HASH, 2, u32, u32);
MAP(lru, LRU_HASH, 2, u32, u32);
MAP(locks, ARRAY, 1, u32, struct locked);
MAP(devices, DEVMAP, 4, u32, u32);
MAP(device_hash, DEVMAP_HASH, 4, u32, u32);
MAP(cpus, CPUMAP, 4, u32, u32);
MAP(sockets, XSKMAP, 4, u32, u32);

struct {
	__uint(type, LPM_TRIE);
	__uint(max_entries, 3);
	__uint(map_flags, 1);
	__type(key, struct prefix);
	__type(value, u32);
} routes SEC(".maps");

struct {
	__uint(type, RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct inner {
	__uint(type, ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} inner_one SEC(".maps"), inner_two SEC(".maps");

struct {
	__uint(type, ARRAY_OF_MAPS);
	__uint(max_entries, 3);
	__type(key, u32);
	__array(values, struct inner);
} outer SEC(".maps") = {
	.values = { &inner_one, 0, &inner_two },
};

struct {
	__uint(type, HASH_OF_MAPS);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, u32);
	__array(values, struct inner);
} outer_hash SEC(".maps");

SEC("xdp")
int arrays(struct xdp_md *ctx)
{
	u32 key = 1, bad = 4, value = 9;
	result(0, map_update_elem(&array, &key, &value, 0));
	result(1, map_update_elem(&array, &key, &value, 1));
	result(2, map_update_elem(&array, &bad, &value, 0));
	result(3, map_update_elem(&array, &key, &value, 3));
	result(4, map_delete_elem(&array, &key));
	result(5, (u64)map_lookup_elem(&array, &bad));
	u32 *found = map_lookup_elem(&array, &key);
	result(6, found ? *found : 0);
	found = map_lookup_elem(&percpu_array, &key);
	if (found)
		*found += 3;
	result(7, map_update_elem(&array, &key, &value, 4));
	return XDP_PASS;
}

SEC("xdp")
int hashes(struct xdp_md *ctx)
{
	u64 a = 1, b = 2, c = 3, v = 10;
	result(0, map_update_elem(&hash, &a, &v, 2));
	result(1, map_update_elem(&hash, &a, &v, 1));
	result(2, map_update_elem(&hash, &a, &v, 1));
	u64 *kept = map_lookup_elem(&hash, &a);
	v = 20;
	result(3, map_update_elem(&hash, &a, &v, 0));
	result(4, kept ? *kept : 0);
	map_update_elem(&hash, &b, &v, 0);
	result(5, map_update_elem(&hash, &c, &v, 0));
	result(6, map_delete_elem(&hash, &c));
	result(7, map_delete_elem(&hash, &a));
	result(8, map_update_elem(&hash, &c, &v, 0));
	/* The pointer must see stale memory, never c's value. */
	result(9, kept ? *kept : 0);
	kept = map_lookup_elem(&hash, &c);
	map_delete_elem(&hash, &c);
	result(10, kept ? *kept : 0);
	return XDP_PASS;
}

SEC("xdp")
int per_cpu(struct xdp_md *ctx)
{
	u32 key = 5, v = 1;
	u32 *p = map_lookup_elem(&percpu_hash, &key);
	if (p)
		(*p)++;
	else
		map_update_elem(&percpu_hash, &key, &v, 0);
	return XDP_PASS;
}

SEC("xdp")
int least_recent(struct xdp_md *ctx)
{
	u32 k[3] = { 1, 2, 3 };
	map_update_elem(&lru, &k[0], &k[0], 0);
	map_update_elem(&lru, &k[1], &k[1], 0);
	map_lookup_elem(&lru, &k[0]);
	result(0, map_update_elem(&lru, &k[2], &k[2], 0));
	result(1, !!map_lookup_elem(&lru, &k[0]));
	result(2, !!map_lookup_elem(&lru, &k[1]));
	result(3, !!map_lookup_elem(&lru, &k[2]));
	return XDP_PASS;
}

SEC("xdp")
int prefixes(struct xdp_md *ctx)
{
	struct prefix p = { 8, { 10, 1, 2, 3 } };
	u32 v = 8, *found;
	result(0, map_update_elem(&routes, &p, &v, 0));
	p.length = 24;
	v = 24;
	map_update_elem(&routes, &p, &v, 0);
	p.length = 32;
	found = map_lookup_elem(&routes, &p);
	result(1, found ? *found : 0);
	p.data[1] = 9;
	found = map_lookup_elem(&routes, &p);
	result(2, found ? *found : 0);
	p.data[0] = 11;
	result(3, (u64)map_lookup_elem(&routes, &p));
	p.length = 33;
	result(4, map_update_elem(&routes, &p, &v, 0));
	p.length = 0;
	result(5, map_update_elem(&routes, &p, &v, 0));
	p.length = 9;
	result(6, map_update_elem(&routes, &p, &v, 0));
	result(7, map_delete_elem(&routes, &p));
	p.length = 0;
	result(8, map_update_elem(&routes, &p, &v, 1));
	result(9, map_delete_elem(&routes, &p));
	return XDP_PASS;
}

SEC("xdp")
int locking(struct xdp_md *ctx)
{
	u32 key = 0;
	struct locked *l = map_lookup_elem(&locks, &key);
	if (!l)
		return XDP_ABORTED;
	spin_lock(&l->lock);
	l->count++;
	spin_unlock(&l->lock);
	return XDP_PASS;
}

SEC("xdp")
int lock_twice(struct xdp_md *ctx)
{
	u32 key = 0;
	struct locked *l = map_lookup_elem(&locks, &key);
	if (!l)
		return XDP_ABORTED;
	spin_lock(&l->lock);
	spin_lock(&l->lock);
	return XDP_PASS;
}

SEC("xdp")
int lock_leak(struct xdp_md *ctx)
{
	u32 key = 0;
	struct locked *l = map_lookup_elem(&locks, &key);
	if (!l)
		return XDP_ABORTED;
	spin_lock(&l->lock);
	return XDP_PASS;
}

SEC("xdp")
int records(struct xdp_md *ctx)
{
	u64 *a = ringbuf_reserve(&ring, 8, 0);
	u64 *b = ringbuf_reserve(&ring, 16, 0);
	if (!a || !b) {
		if (a)
			ringbuf_discard(a, 0);
		if (b)
			ringbuf_discard(b, 0);
		return XDP_ABORTED;
	}
	*a = 1;
	b[1] = 2;
	ringbuf_discard(a, 0);
	ringbuf_submit(b, 0);
	u32 word = 7;
	result(0, ringbuf_output(&ring, &word, 4, 0));
	result(1, ringbuf_query(&ring, 0));
	result(2, ringbuf_query(&ring, 1));
	void *none = ringbuf_reserve(&ring, 4096, 0);
	result(3, (u64)none);
	if (none)
		ringbuf_discard(none, 0);
	result(4, ringbuf_output(&ring, &word, 4, 4));
	return XDP_PASS;
}

SEC("xdp")
int record_full(struct xdp_md *ctx)
{
	u8 block[256] = {};
	u64 n = 0;
	while (n < 100 && !ringbuf_output(&ring, block, sizeof(block), 0))
		n++;
	result(0, n);
	result(1, ringbuf_output(&ring, block, sizeof(block), 0));
	return XDP_PASS;
}

SEC("xdp")
int record_leak(struct xdp_md *ctx)
{
	volatile u64 *a = ringbuf_reserve(&ring, 8, 0);
	if (a)
		*a = 1;
	return XDP_PASS;
}

SEC("xdp")
int record_after(struct xdp_md *ctx)
{
	volatile u64 *a = ringbuf_reserve(&ring, 8, 0);
	if (!a)
		return XDP_ABORTED;
	ringbuf_submit((void *)a, 0);
	*a = 1;
	return XDP_PASS;
}

SEC("xdp")
int nested(struct xdp_md *ctx)
{
	u32 key = 2, zero = 0, one = 1;
	void *map = map_lookup_elem(&outer, &key);
	u64 *v = map ? map_lookup_elem(map, &one) : 0;
	if (v)
		*v = 55;
	result(0, (u64)map_lookup_elem(&outer, &one));
	map = map_lookup_elem(&outer_hash, &key);
	v = map ? map_lookup_elem(map, &zero) : 0;
	result(1, v ? *v : 1234);
	return XDP_PASS;
}

SEC("xdp")
int redirects(struct xdp_md *ctx)
{
	result(0, redirect_map(&devices, 1, 0));
	result(1, redirect_map(&devices, 2, XDP_PASS));
	result(2, redirect_map(&device_hash, 300, XDP_DROP));
	result(3, redirect_map(&cpus, 0, 0x100));
	result(4, redirect_map(&sockets, 0, XDP_TX));
	result(5, redirect_map(&devices, 0, 8));
	result(6, redirect(3, 1));
	return redirect(3, 0);
}

SEC("xdp")
int redirect_last(struct xdp_md *ctx)
{
	return redirect_map(&devices, 1, XDP_PASS);
}

static long visit(void *map, u64 *key, u64 *value, u64 *sum)
{
	*sum += *key * 100 + *value;
	return *value == 99;
}

SEC("xdp")
int each(struct xdp_md *ctx)
{
	u64 sum = 0, k = 1, v = 7;
	map_update_elem(&hash, &k, &v, 0);
	k = 2;
	v = 8;
	map_update_elem(&hash, &k, &v, 0);
	result(0, for_each_map_elem(&hash, visit, &sum, 0));
	result(1, sum);
	result(2, for_each_map_elem(&hash, visit, &sum, 1));
	return XDP_PASS;
}

SEC("xdp")
int overrun(struct xdp_md *ctx)
{
	u32 key = 0;
	volatile u32 *v = map_lookup_elem(&array, &key);
	if (!v)
		return 0;
	return v[ctx->ingress_ifindex];
}

const volatile u32 constant = 1;

SEC("xdp")
int write_rodata(struct xdp_md *ctx)
{
	u32 *p = (u32 *)&constant;
	/* The compiler must not know that this is undefined. */
	asm volatile("" : "+r"(p));
	*p = 5;
	return 0;
}

SEC("xdp")
int wrong_map(struct xdp_md *ctx)
{
	u32 key = 0;
	return (long)map_lookup_elem(&ring, &key);
}
