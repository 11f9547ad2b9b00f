/* Maps as iproute2 declares them: an outer map names its inner one by an id. */
#define NO_RESULTS
#include "bpf.h"

struct bpf_elf_map {
	u32 type, size_key, size_value, max_elem, flags, id, pinning, inner_id, inner_idx;
};

struct bpf_elf_map SEC("maps") inner = { ARRAY, 4, 4, 2, 0, 42, 2, 0, 1 };
struct bpf_elf_map SEC("maps") outer = { ARRAY_OF_MAPS, 4, 4, 3, 0, 0, 2, 42, -1 };

SEC("xdp")
int nested(struct xdp_md *ctx)
{
	u32 zero = 0, one = 1, *value;
	void *map = map_lookup_elem(&outer, &one);

	if (!map)
		return XDP_ABORTED;
	value = map_lookup_elem(map, &zero);
	if (!value)
		return XDP_DROP;
	*value += 5;
	return map_lookup_elem(&outer, &zero) ? XDP_TX : XDP_PASS;
}
