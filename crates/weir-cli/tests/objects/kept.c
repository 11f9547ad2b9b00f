/* A program that is loaded and replaced: counts frames and answers what a constant says. -DENTRIES=n changes a map, -DTC the kind,
 * -DBROKEN makes it one that no verifier takes. */
#include "../broken/bpf.h"

#define PERCPU_ARRAY 6
#ifndef ENTRIES
#define ENTRIES 4
#endif

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENTRIES);
	__type(key, u32);
	__type(value, u64);
} seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, u32);
} notes SEC(".maps");

const volatile u32 verdict = XDP_PASS;

#ifdef TC
SEC("tc")
int kept(struct __sk_buff *ctx)
{
	return 0;
}
#else
SEC("xdp.frags")
int kept(struct xdp_md *ctx)
{
	u32 zero = 0;
	u64 *count = bpf_map_lookup_elem(&seen, &zero);
	u32 *note = bpf_map_lookup_elem(&notes, &zero);

	if (count)
		__sync_fetch_and_add(count, 1);
#ifndef BROKEN
	if (!note)
		return verdict;
#endif
	*note += 1;
	return verdict;
}

SEC("xdp")
int other(struct xdp_md *ctx)
{
	return XDP_DROP;
}
#endif

