/* Sends what comes in by one interface out by the one a device map names for it, and counts; drops UDP to port 9. */
#include "../broken/bpf.h"

#ifndef BPF_MAP_TYPE_DEVMAP_HASH
#define BPF_MAP_TYPE_DEVMAP_HASH 25
#endif

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 8);
	__type(key, u32);
	__type(value, u32);
} peers SEC(".maps");

u64 seen, dropped;

static long (*const redirect_map)(void *map, u64 key, u64 flags) = (void *)51;

SEC("xdp")
int across(struct xdp_md *ctx)
{
	u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	__sync_fetch_and_add(&seen, 1);
	if (data + 38 <= end && data[12] == 8 && data[13] == 0 && data[23] == 17 && data[36] == 0 && data[37] == 9) {
		__sync_fetch_and_add(&dropped, 1);
		return XDP_DROP;
	}
	return redirect_map(&peers, ctx->ingress_ifindex, 0);
}

char LICENSE[] SEC("license") = "GPL";
