/*
 * A record of a ring buffer is written without asking whether the ring had room.
 * rule: null-value
 * missing: if (!event)
 * packet: none
 */
#include "bpf.h"

struct event {
	u32 bytes;
	u32 queue;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

#ifdef FIXED
	if (!event)
		return XDP_PASS;
#endif
	event->queue = ctx->rx_queue_index; /* REJECTED */
	bpf_ringbuf_submit(event, 0);
	return XDP_PASS;
}
