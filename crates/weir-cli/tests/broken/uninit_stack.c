/*
 * A lookup reads a key that was never set. Root may do that since Linux 6.3; others, and older kernels, may not.
 * flags: --strict-stack
 * rule: uninit-stack
 * missing: __builtin_memset(&key, 0, sizeof(key));
 * packet: none
 */
#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

SEC("xdp")
int prog(struct xdp_md *ctx)
{
#ifdef FIXED
	u32 key = 0;
#else
	u32 key;
#endif
	u64 *count = bpf_map_lookup_elem(&counters, &key); /* REJECTED */

	if (count)
		*count += 1;
	return XDP_PASS;
}
