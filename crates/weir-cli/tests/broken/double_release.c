/*
 * A record is submitted twice.
 * rule: not-held
 * missing: Line 22 released it
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
	*event = ctx->rx_queue_index;
	bpf_ringbuf_submit(event, 0);
#ifndef FIXED
	bpf_ringbuf_discard(event, 0); /* REJECTED */
#endif
	return XDP_PASS;
}
