// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * workload: what a workload's device runs. Finds the interface that the device
 * is, holds the packet to the addresses that the workload was given, and hands
 * it to the function that the interface is linked to.
 *
 * ICMP is marked: it leaves where packet sockets on devices see it.
 * One program for all devices. The only place where the generation's word is read: the packet keeps to that half.
 *
 * Hooks: xdp, tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
const volatile __u32 weir_replay = 0;

#include "ctx.h"
#include "stats.h"
#include "spread.h"
#include "exact.h"
#include "network.h"
#include "netentry.h"
#include "netdhcp.h"
#include "nettag.h"
#include "netguard.h"

/* Whether it is ICMP, and is to be seen where it leaves: echoes and errors are what people look for, and few packets are such. */
static __always_inline int is_icmp(ctx_t *ctx)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip = data + 14;
	__u16 type;

	if (ip + 20 > end)
		return 0;
	type = *(__be16 *)(data + 12);
	if (type == bpf_htons(ETH_P_IP))
		return ip[9] == IPPROTO_ICMP;
	return type == bpf_htons(ETH_P_IPV6) && ip[6] == IPPROTO_ICMPV6;
}

SEC(CTX_SECTION)
int workload(ctx_t *ctx)
{
	__u32 reason = WEIR_R_no_link;
	struct weir_exact *device;
	int action = NET_DROPPED;
	struct net n = {};

	if (!net_begin(ctx, &n))
		goto out;
	device = net_find(n.chain, exact_scope(WEIR_EX_DEVICE, 0, 0), ctx_word(ctx, ingress_ifindex), 0);
	if (!device)
		goto leave;
	n.chain->vid = device->value;
	n.chain->origin = device->value;
	n.in = net_interface(n.chain, device->value);
	if (!n.in)
		goto leave;
	net_count(n.chain, n.packets, ctx_len(ctx), 0);
	netwatch_begin(ctx, n.chain, 0);
	net_pull(ctx, 14 + 40);
	reason = net_untag_beside(ctx);
	if (reason == WEIR_NO_REASON)
		reason = net_untag_inside(ctx);
	if (reason == WEIR_NO_REASON)
		reason = net_guard(ctx, &n);
	if (is_icmp(ctx))
		n.chain->place |= WEIR_CW_SHOWN;
leave:
	action = net_leave(ctx, &n, n.chain->vid, reason);
out:
	return action;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
