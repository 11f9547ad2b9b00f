/* Raw SYN cookies: the program makes one for a SYN and checks the one of any other segment. */
#include "bpf.h"

static s64 (*gen4)(void *ip, void *tcp, u32 tcp_len) = (void *)204;
static s64 (*gen6)(void *ip, void *tcp, u32 tcp_len) = (void *)205;
static long (*check4)(void *ip, void *tcp) = (void *)206;
static long (*check6)(void *ip, void *tcp) = (void *)207;

static __always_inline int judge(struct xdp_md *ctx, u32 header, int v6)
{
	u8 *data = (u8 *)(long)ctx->data, *end = (u8 *)(long)ctx->data_end;
	u8 *ip = data + 14, *tcp = ip + header;
	u32 len;

	if (tcp + 20 > end)
		return XDP_DROP;
	if (tcp[13] & 2) {
		len = (tcp[12] >> 4) * 4;
		if (len < 20 || len > 60 || tcp + len > end)
			return XDP_DROP;
		/* A length that is not the header's, to see the error. */
		result(1, v6 ? gen6(ip, tcp, 20 + (len == 60) * 4) : gen4(ip, tcp, 20 + (len == 60) * 4));
		if (tcp + 60 <= end)
			result(0, v6 ? gen6(ip, tcp, len) : gen4(ip, tcp, len));
	} else {
		result(2, v6 ? check6(ip, tcp) : check4(ip, tcp));
	}
	return XDP_PASS;
}

SEC("xdp")
int cookie4(struct xdp_md *ctx)
{
	return judge(ctx, 20, 0);
}

SEC("xdp")
int cookie6(struct xdp_md *ctx)
{
	return judge(ctx, 40, 1);
}
