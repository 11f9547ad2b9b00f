/*
 * Eight bytes are written to the stack at an address that is no multiple of eight.
 * rule: misaligned
 * missing: at a multiple of 8 bytes
 * packet: none
 */
#include "bpf.h"

SEC("xdp")
int prog(struct xdp_md *ctx)
{
	u8 buffer[16] __attribute__((aligned(8))) = {};
	u8 *at = buffer;

	asm volatile("" : "+r"(at));
#ifdef FIXED
	*(u64 *)(at + 8) = ctx->rx_queue_index;
#else
	*(u64 *)(at + 4) = ctx->rx_queue_index; /* REJECTED */
#endif
	asm volatile("" : : "r"(at) : "memory");
	return buffer[9] ? XDP_DROP : XDP_PASS;
}
