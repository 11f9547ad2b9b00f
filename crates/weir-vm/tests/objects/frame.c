/* The frame: context fields, packet access, adjustments and the byte helpers. */
#include "bpf.h"

#define BEGIN(ctx) ((u8 *)(long)(ctx)->data)
#define END(ctx) ((u8 *)(long)(ctx)->data_end)
#define META(ctx) ((u8 *)(long)(ctx)->data_meta)

SEC("xdp")
int fields(struct xdp_md *ctx)
{
	result(0, END(ctx) - BEGIN(ctx));
	result(1, ctx->ingress_ifindex);
	result(2, ctx->rx_queue_index);
	result(4, BEGIN(ctx) - META(ctx));
	result(5, xdp_get_buff_len(ctx));
	return XDP_PASS;
}

SEC("xdp")
int swap_macs(struct xdp_md *ctx)
{
	u8 *p = BEGIN(ctx);
	if (p + 14 > END(ctx))
		return XDP_DROP;
	for (int i = 0; i < 6; i++) {
		u8 t = p[i];
		p[i] = p[i + 6];
		p[i + 6] = t;
	}
	return XDP_TX;
}

SEC("xdp")
int push(struct xdp_md *ctx)
{
	if (xdp_adjust_head(ctx, -8))
		return XDP_ABORTED;
	u64 *p = (u64 *)BEGIN(ctx);
	if ((u8 *)(p + 1) > END(ctx))
		return XDP_ABORTED;
	*p = 0x8877665544332211ull;
	result(0, xdp_adjust_head(ctx, 100000));
	result(1, xdp_adjust_head(ctx, -1000));
	return XDP_PASS;
}

SEC("xdp")
int tail(struct xdp_md *ctx)
{
	result(0, xdp_adjust_tail(ctx, 4));
	result(1, END(ctx) - BEGIN(ctx));
	result(2, xdp_adjust_tail(ctx, -100000));
	return XDP_PASS;
}

SEC("xdp")
int meta(struct xdp_md *ctx)
{
	result(0, xdp_adjust_meta(ctx, -3));
	result(1, xdp_adjust_meta(ctx, -4));
	u32 *m = (u32 *)META(ctx);
	if ((u8 *)(m + 1) > BEGIN(ctx))
		return XDP_ABORTED;
	*m = 0xaabbccdd;
	return XDP_PASS;
}

SEC("xdp")
int limits(struct xdp_md *ctx)
{
	int room = 3520 - (int)xdp_get_buff_len(ctx);
	result(0, xdp_adjust_head(ctx, -217));
	result(1, xdp_adjust_head(ctx, -216));
	result(2, xdp_adjust_head(ctx, 216));
	result(3, xdp_adjust_tail(ctx, room + 1));
	result(4, xdp_adjust_tail(ctx, room));
	result(5, xdp_adjust_meta(ctx, -252));
	result(6, xdp_adjust_meta(ctx, -216));
	result(7, xdp_adjust_head(ctx, -1));
	result(8, xdp_adjust_meta(ctx, 216));
	result(9, xdp_adjust_meta(ctx, 4));
	result(10, xdp_adjust_tail(ctx, -3506));
	return XDP_PASS;
}

SEC("xdp")
int bytes(struct xdp_md *ctx)
{
	u8 buffer[8] = {};
	result(0, xdp_load_bytes(ctx, 2, buffer, 4));
	result(1, *(u32 *)buffer);
	result(2, xdp_store_bytes(ctx, 10, buffer, 4));
	result(3, xdp_load_bytes(ctx, 12, buffer, 8));
	result(4, xdp_store_bytes(ctx, 0x10000, buffer, 1));
	return XDP_PASS;
}

SEC("xdp")
int too_long(struct xdp_md *ctx)
{
	u8 buffer[8] = {};
	result(0, xdp_load_bytes(ctx, 0, buffer, 0x10000));
	return XDP_PASS;
}

SEC("xdp/devmap")
int egress(struct xdp_md *ctx)
{
	result(0, ctx->egress_ifindex);
	return XDP_PASS;
}

SEC("xdp")
int checksum(struct xdp_md *ctx)
{
	u32 from[2] = { 0x12345678, 0xffffffff }, to[2] = { 0x9abcdef0, 1 };
	result(0, csum_diff(0, 0, to, 8, 0));
	result(1, csum_diff(from, 8, to, 8, 0));
	result(2, csum_diff(from, 4, 0, 0, 7));
	result(3, csum_diff(from, 3, to, 8, 0));
	return XDP_PASS;
}

SEC("xdp")
int stale(struct xdp_md *ctx)
{
	u8 *p = BEGIN(ctx);
	xdp_adjust_head(ctx, 0);
	return *(volatile u8 *)p;
}

SEC("xdp")
int past_end(struct xdp_md *ctx)
{
	return *(volatile u8 *)END(ctx);
}

SEC("xdp")
int before(struct xdp_md *ctx)
{
	return *(volatile u16 *)(BEGIN(ctx) - 1);
}

SEC("xdp")
int bad_context(struct xdp_md *ctx)
{
	return *(volatile u16 *)&ctx->ingress_ifindex;
}

SEC("xdp")
int write_context(struct xdp_md *ctx)
{
	*(volatile u32 *)&ctx->rx_queue_index = 1;
	return 0;
}

SEC("xdp")
int atomic_packet(struct xdp_md *ctx)
{
	__sync_fetch_and_add((u32 *)BEGIN(ctx), 1);
	return 0;
}

SEC("xdp")
int null(struct xdp_md *ctx)
{
	return *(volatile u32 *)(long)(ctx->ingress_ifindex - 1);
}

SEC("xdp")
int unknown(struct xdp_md *ctx)
{
	u8 params[64] = {};
	return get_current_comm(params, 12) != 0;
}

extern int kernel_only(void *ctx) __attribute__((weak)) SEC(".ksyms");

SEC("xdp")
int external(struct xdp_md *ctx)
{
	return kernel_only(ctx);
}

SEC("xdp")
int endless(struct xdp_md *ctx)
{
	volatile u32 x = 0;
	for (;;)
		x++;
}

static __noinline int deep(u64 n)
{
	volatile u64 kept = n;
	return deep(n + 1) + kept;
}

SEC("xdp")
int recursion(struct xdp_md *ctx)
{
	return deep(ctx->ingress_ifindex);
}

static __noinline u64 *escaping(u64 *hold)
{
	volatile u64 local = 5;
	*hold = (u64)&local;
	return hold;
}

SEC("xdp")
int dead_frame(struct xdp_md *ctx)
{
	u64 hold = 0;
	escaping(&hold);
	return *(volatile u64 *)hold;
}
