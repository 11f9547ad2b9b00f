/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A hash of a packet's flow, for spreading flows over CPUs, devices or queues.
 * Both directions of a flow have the same hash. Reads the packet directly and keeps nothing.
 *
 * Covered: addresses and protocol; the ports of TCP, UDP and SCTP unless the packet is a fragment (all fragments of a datagram stay
 * together, apart from its flow's whole packets) or has IPv6 extension headers; of other packets the MAC addresses and the EtherType.
 */
#ifndef WEIR_SPREAD_H
#define WEIR_SPREAD_H

#define ETH_P_IP	0x0800
#define ETH_P_8021Q	0x8100
#define ETH_P_IPV6	0x86dd
#define ETH_P_8021AD	0x88a8
#define IPPROTO_TCP		6
#define IPPROTO_UDP		17
#define IPPROTO_SCTP		132

/* The same for (a, b) and (b, a). */
static __always_inline __u64 spread_pair(__u64 a, __u64 b)
{
	return (a + b) * 0x9e3779b97f4a7c15ULL ^ (a ^ b);
}

static __always_inline __u32 spread_end(__u64 x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ULL;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ULL;
	return x >> 32;
}

static __always_inline __u32 spread_hash(ctx_t *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *ip, *l4;
	__u64 x;
	__u32 off = 14, proto, i;
	__u16 type;

	if (data + 14 > end)
		return 0;
	type = *(__be16 *)(data + 12);
#pragma unroll
	for (i = 0; i < 2; i++) {
		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		if (data + off + VLAN_BYTES > end)
			break;
		type = *(__be16 *)(data + off + 2);
		off += VLAN_BYTES;
	}
	ip = data + off;
	if (type == bpf_htons(ETH_P_IP) && ip + 20 <= end) {
		x = spread_pair(*(__u32 *)(ip + 12), *(__u32 *)(ip + 16));
		proto = ip[9];
		x += proto;
		if (*(__be16 *)(ip + 6) & bpf_htons(0x3fff))
			return spread_end(x);
		l4 = ip + (ip[0] & 15) * 4;
	} else if (type == bpf_htons(ETH_P_IPV6) && ip + 40 <= end) {
		x = spread_pair(*(__u64 *)(ip + 8), *(__u64 *)(ip + 24)) +
		    spread_pair(*(__u64 *)(ip + 16), *(__u64 *)(ip + 32)) * 3;
		proto = ip[6];
		x += proto;
		l4 = ip + 40;
	} else {
		x = spread_pair(*(__u32 *)data | (__u64)*(__u16 *)(data + 4) << 32,
				*(__u32 *)(data + 6) | (__u64)*(__u16 *)(data + 10) << 32) + type;
		return spread_end(x);
	}
	if ((proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_SCTP) && l4 + 4 <= end)
		x = x * 5 + spread_pair(*(__u16 *)l4, *(__u16 *)(l4 + 2));
	return spread_end(x);
}

/* Which of n things a hash falls to. */
static __always_inline __u32 spread_over(__u32 hash, __u32 n)
{
	return (__u64)hash * n >> 32;
}

#endif
