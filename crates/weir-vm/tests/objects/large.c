/* Maps with more elements than 25 bits count: those at both ends, and one beyond. */
#include "bpf.h"

#define ENTRIES ((1u << 26) + 5)

struct {
	__uint(type, ARRAY);
	__uint(max_entries, ENTRIES);
	__type(key, u32);
	__type(value, u64);
} slots SEC(".maps");

struct {
	__uint(type, HASH);
	__uint(max_entries, ENTRIES);
	__type(key, u64);
	__type(value, u32);
} elements SEC(".maps");

struct {
	__uint(type, PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

static __always_inline u64 *slot(u32 key)
{
	return map_lookup_elem(&slots, &key);
}

SEC("xdp")
int ends(struct xdp_md *ctx)
{
	u64 *first = slot(0), *middle = slot(1u << 25), *last = slot(ENTRIES - 1);

	if (!first || !middle || !last)
		return XDP_DROP;
	*first += 1;
	*middle += 20;
	*last += 300;
	result(0, *first + *middle + *last);
	result(1, slot(ENTRIES) != 0);

	u64 key = ~0ull;
	u32 value = 7;

	result(2, map_update_elem(&elements, &key, &value, 0));
	u32 *found = map_lookup_elem(&elements, &key);

	result(3, found ? *found : 0);

	u32 zero = 0;
	u64 *count = map_lookup_elem(&counts, &zero);

	if (count)
		*count += 1;
	return XDP_PASS;
}

/* Reads beside the last value. */
SEC("xdp")
int beyond(struct xdp_md *ctx)
{
	u64 *last = slot(ENTRIES - 1);

	return last ? (int)last[1] : XDP_DROP;
}
