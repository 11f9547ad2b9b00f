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

#define IPPROTO_ICMP	1
#define IPPROTO_ICMPV6	58

static __always_inline int same_mac(__u8 *a, __u8 *b)
{
	return *(__u32 *)a == *(__u32 *)b && *(__u16 *)(a + 4) == *(__u16 *)(b + 4);
}

/* Whether the workload may use an address that is not the one in its record. */
static __always_inline int may_use(struct net *n, __u64 high, __u64 low)
{
	__u32 scope = exact_scope(WEIR_EX_ADDRESS, n->chain->vid, 0);

	if (!(n->in->flags & WEIR_VF_MORE_ADDRESSES))
		return 0;
	return net_find(n->chain, scope, high, low) != 0;
}

static __always_inline int may_use4(struct net *n, __u32 address)
{
	return address == n->in->address4 || may_use(n, 0, NET_MAPPED(address));
}

/* Link-local addresses and the unspecified one are not of the network: duplicate address detection and router discovery need them. */
static __always_inline int may_use6(struct net *n, __u8 *address)
{
	__u32 *a = (void *)address, *own = n->in->address6;

	if (a[0] == own[0] && a[1] == own[1] && a[2] == own[2] && a[3] == own[3])
		return 1;
	if ((a[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000))
		return 1;
	if (!(a[0] | a[1] | a[2] | a[3]))
		return 1;
	return may_use(n, *(__u64 *)address, *(__u64 *)(address + 8));
}

/* Whether the frame comes from the workload's MAC address. */
static __always_inline int has_own_mac(ctx_t *ctx, struct net *n)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end);

	if (n->in->flags & WEIR_VF_ANY_MAC)
		return 1;
	return data + 14 <= end && same_mac(data + 6, n->in->mac);
}

/* Whether the packet says of itself what its workload may say: reads the frame up to the IPv6 source, or to ARP's sender. */
static __always_inline int honest(ctx_t *ctx, struct net *n)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip = data + 14;
	__u16 type;

	if (data + 14 > end)
		return 0;
	if (n->in->flags & WEIR_VF_ANY_ADDRESS)
		return 1;
	type = *(__be16 *)(data + 12);
	if (type == bpf_htons(ETH_P_IP)) {
		if (ip + 20 > end)
			return 0;
		/* 0.0.0.0: a host that asks for its address, and nothing else. */
		if (!*(__u32 *)(ip + 12))
			return net_is_dhcp(data, end);
		return may_use4(n, *(__u32 *)(ip + 12));
	}
	if (type == bpf_htons(ETH_P_IPV6)) {
		if (ip + 40 > end)
			return 0;
		return may_use6(n, ip + 8);
	}
	if (type == bpf_htons(ETH_P_ARP)) {
		if (ip + 28 > end)
			return 0;
		if (!(n->in->flags & WEIR_VF_ANY_MAC) && !same_mac(ip + 8, n->in->mac))
			return 0;
		/* 0.0.0.0: a probe for a duplicate. */
		return !*(__u32 *)(ip + 14) || may_use4(n, *(__u32 *)(ip + 14));
	}
	/* Tags hide what is behind them, and what is neither IP nor ARP speaks for nobody. */
	return type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD);
}

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
	__u32 reason = WEIR_R_unlinked;
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
	net_pull(ctx, 14 + 40);
	reason = WEIR_R_spoofed_mac;
	if (!has_own_mac(ctx, &n))
		goto leave;
	reason = honest(ctx, &n) ? WEIR_NO_REASON : WEIR_R_spoofed;
	if (is_icmp(ctx))
		n.chain->place |= WEIR_CW_SHOWN;
leave:
	action = net_leave(ctx, &n, n.chain->vid, reason);
out:
	return action;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
