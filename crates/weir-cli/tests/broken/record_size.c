/*
 * A record is reserved with a length that the frame decides.
 * rule: constant-required
 * missing: constant
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
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	u64 length = data_end - data;
	u8 *record;

	if (length < 8 || length > 256)
		return XDP_PASS;
#ifdef FIXED
	record = bpf_ringbuf_reserve(&events, 256, 0);
#else
	record = bpf_ringbuf_reserve(&events, length, 0); /* REJECTED */
#endif
	if (!record)
		return XDP_PASS;
	record[0] = 1;
	bpf_ringbuf_submit(record, 0);
	return XDP_PASS;
}
