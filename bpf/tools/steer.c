// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * steer: the XDP program beside AF_XDP sockets (`weir xsk`). What matches goes to the socket of its receive queue; everything else, and what comes on a
 * queue without a socket, goes on to the stack.
 *
 * xdp.frags: sockets may take packets of several buffers. What is looked at lies in the first one.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "steer.h"

const volatile __u32 weir_what = STEER_ALL;	/* STEER_* */
const volatile __u32 weir_value = 0;	/* EtherType or port, host order */
const volatile __u32 weir_mark = 0;	/* write the time in front of frames */

#define ETH_P_IP	0x0800
#define ETH_P_IPV6	0x86dd
#define IPPROTO_UDP	17
#define IP_FRAGMENT	0x3fff	/* more fragments, or an offset */

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steer_counters);
} counters SEC(".maps");

static __always_inline int is_udp_to(__u8 *data, __u8 *end, __u16 type)
{
	__u8 *udp;

	if (type == bpf_htons(ETH_P_IP)) {
		if (data + 34 > end || data[23] != IPPROTO_UDP)
			return 0;
		if (*(__be16 *)(data + 20) & bpf_htons(IP_FRAGMENT))
			return 0;
		udp = data + 14 + (data[14] & 15) * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (data + 54 > end || data[20] != IPPROTO_UDP)
			return 0;
		udp = data + 54;
	} else {
		return 0;
	}
	if (udp + 4 > end)
		return 0;
	return *(__be16 *)(udp + 2) == bpf_htons(weir_value);
}

static __always_inline int matches(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u16 type;

	if (weir_what == STEER_ALL)
		return 1;
	if (data + 14 > end)
		return 0;
	type = *(__be16 *)(data + 12);
	if (weir_what == STEER_ETHERTYPE)
		return type == bpf_htons(weir_value);
	return is_udp_to(data, end, type);
}

/* Writes the mark. Returns whether there was room. */
static __always_inline int mark(struct xdp_md *ctx)
{
	struct steer_mark *m;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*m)))
		return 0;
	m = (void *)(long)ctx->data_meta;
	if ((void *)(m + 1) > (void *)(long)ctx->data)
		return 0;
	m->mark = STEER_MARK;
	m->queue = ctx->rx_queue_index;
	m->time = bpf_ktime_get_ns();
	return 1;
}

SEC("xdp.frags")
int steer(struct xdp_md *ctx)
{
	__u32 zero = 0, queue = ctx->rx_queue_index;
	struct steer_counters *c = bpf_map_lookup_elem(&counters, &zero);
	int verdict = XDP_PASS;

	if (!c)
		goto out;
	if (!matches(ctx)) {
		c->passed++;
		goto out;
	}
	/* Asked first: the stack must not see a frame with our mark. */
	if (!bpf_map_lookup_elem(&sockets, &queue)) {
		c->lonely++;
		goto out;
	}
	if (weir_mark && !mark(ctx))
		c->unmarked++;
	verdict = bpf_redirect_map(&sockets, queue, XDP_PASS);
	if (verdict == XDP_REDIRECT)
		c->steered++;
	else
		c->lonely++;
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
