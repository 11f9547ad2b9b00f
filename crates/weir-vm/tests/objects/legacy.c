/* As objects looked before BTF: the section `maps`, several programs, old names of sections. Also compiled without -g. */
#define NO_RESULTS
#include "bpf.h"

#ifdef TODAY
#define OLD(name) "xdp"
#define MAP(name, kind, key, value, entries, flags)                                                                    \
	struct {                                                                                                       \
		__uint(type, kind);                                                                                    \
		__uint(key_size, key);                                                                                 \
		__uint(value_size, value);                                                                             \
		__uint(max_entries, entries);                                                                          \
		__uint(map_flags, flags);                                                                              \
	} name SEC(".maps")
#else
#define OLD(name) name
#define MAP(name, kind, key, value, entries, flags)                                                                    \
	struct bpf_map_def SEC("maps") name = { kind, key, value, entries, flags }
#endif

struct bpf_map_def {
	u32 type, key_size, value_size, max_entries, map_flags;
};

MAP(counts, ARRAY, 4, 8, 4, 0);
MAP(names, HASH, 4, 4, 8, 1);
MAP(progs, PROG_ARRAY, 4, 4, 2, 0);

static __noinline void count(u32 slot)
{
	u64 *n = map_lookup_elem(&counts, &slot);

	if (n)
		*n += 1;
}

SEC(OLD("xdp_first"))
int first(struct xdp_md *ctx)
{
	u32 key = 7, value = 9;

	count(0);
	map_update_elem(&names, &key, &value, 0);
	tail_call(ctx, &progs, 1);
	return XDP_DROP;
}

SEC(OLD("prog"))
int second(struct xdp_md *ctx)
{
	count(1);
	return XDP_TX;
}

SEC("classifier")
int third(void *skb)
{
	return 2;
}

SEC("tracepoint/net/netif_rx")
int fourth(void *ctx)
{
	return 0;
}
