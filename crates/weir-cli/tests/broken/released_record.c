/*
 * A record is written after it was submitted.
 * rule: not-memory
 * missing: Use the record before it is submitted
 * packet: yes
 */
#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u64 *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return XDP_PASS;
#ifdef FIXED
	*event = ctx->rx_queue_index;
	bpf_ringbuf_submit(event, 0);
#else
	bpf_ringbuf_submit(event, 0);
	*event = ctx->rx_queue_index; /* REJECTED */
#endif
	return XDP_PASS;
}
