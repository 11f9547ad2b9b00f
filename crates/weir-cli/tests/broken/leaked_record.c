/*
 * A reserved record is forgotten when the frame is too short.
 * rule: leaked-reference
 * missing: bpf_ringbuf_discard(event, 0);
 * packet: yes
 */
#include "bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct event {
	u32 queue, proto;
};

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0); /* ACQUIRED */

	if (!event)
		return XDP_PASS;
	if ((void *)(eth + 1) > data_end) {
#ifdef FIXED
		bpf_ringbuf_discard(event, 0);
#endif
		return XDP_DROP;
	}
	event->queue = ctx->rx_queue_index;
	event->proto = eth->h_proto;
	bpf_ringbuf_submit(event, 0);
	return XDP_PASS;
} /* REJECTED */
