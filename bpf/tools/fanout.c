// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * fanout: chooses the packet socket of a sensor's worker for each packet
 * (PACKET_FANOUT_EBPF). The sensor spreads its state over slices by a hash of
 * the unordered pair of outermost addresses; the same hash is computed here, so
 * that each worker reads what its slices are about: both directions of a flow,
 * all fragments, and what a tunnel carries. An ICMP error goes by the addresses
 * that it quotes. What is not understood here comes to the first socket, and
 * workers hand over what is not theirs: this program decides about speed alone.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETH_HLEN	14
#define ETH_P_IP	0x0800
#define ETH_P_8021Q	0x8100
#define ETH_P_8021AD	0x88a8
#define ETH_P_QINQ1	0x9100
#define ETH_P_QINQ2	0x9200
#define ETH_P_IPV6	0x86dd
#define PACKET_OUTGOING	4
#define TAGS		3	/* in the packet, behind the one that the device took out */
#define ICMP		1
#define ICMP6		58
#define FRAGMENT	0x3fff	/* offset, and more fragments */

const volatile __u32 fanout_workers = 1;
const volatile __u32 fanout_slices = 16;

/* Two addresses, as numbers; IPv4 below 2^32. */
struct pair {
	__u64 a[2];	/* high, low */
	__u64 b[2];
};

static __always_inline int is_tag(__u16 type)
{
	return type == ETH_P_8021Q || type == ETH_P_8021AD || type == ETH_P_QINQ1 || type == ETH_P_QINQ2;
}

/* The upper half of a product, of which BPF computes the lower. */
static __always_inline __u64 high_half(__u64 x, __u64 y)
{
	__u64 x0 = (__u32)x, x1 = x >> 32, y0 = (__u32)y, y1 = y >> 32;
	__u64 middle = x1 * y0 + (x0 * y0 >> 32);
	__u64 low = x0 * y1 + (__u32)middle;

	return x1 * y1 + (middle >> 32) + (low >> 32);
}

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	__u64 one = hash ^ (word + 0xa0761d6478bd642fULL), other = 0xe7037ed1a0b428dbULL;

	return one * other ^ high_half(one, other);
}

static __always_inline __u64 spread(const struct pair *p)
{
	__u64 hash = 0x9e3779b97f4a7c15ULL;
	int swap = p->a[0] > p->b[0] || (p->a[0] == p->b[0] && p->a[1] > p->b[1]);
	const __u64 *low = swap ? p->b : p->a, *high = swap ? p->a : p->b;

	if (high[0] || high[1] > 0xffffffff) {
		hash = mix(hash, low[0]);
		hash = mix(hash, high[0]);
	}
	return mix(mix(hash, low[1]), high[1]);
}

static __always_inline void pair4(struct pair *p, const __be32 *words)
{
	p->a[0] = 0;
	p->a[1] = bpf_ntohl(words[0]);
	p->b[0] = 0;
	p->b[1] = bpf_ntohl(words[1]);
}

static __always_inline void pair6(struct pair *p, const __be32 *words)
{
	p->a[0] = (__u64)bpf_ntohl(words[0]) << 32 | bpf_ntohl(words[1]);
	p->a[1] = (__u64)bpf_ntohl(words[2]) << 32 | bpf_ntohl(words[3]);
	p->b[0] = (__u64)bpf_ntohl(words[4]) << 32 | bpf_ntohl(words[5]);
	p->b[1] = (__u64)bpf_ntohl(words[6]) << 32 | bpf_ntohl(words[7]);
}

/* Reads the addresses of the packet, or of the one that an ICMP error quotes. Returns whether there are any. */
static __always_inline int addresses(struct __sk_buff *skb, __u32 at, __u16 type, struct pair *p)
{
	__be32 ip[10], quoted[8];
	__u8 *head = (__u8 *)ip, kind;

	if (type == ETH_P_IP) {
		if (bpf_skb_load_bytes(skb, at, ip, 20) || head[0] >> 4 != 4 || (head[0] & 15) < 5)
			return 0;
		pair4(p, ip + 3);
		at += (head[0] & 15) * 4;
		if (head[9] != ICMP || ((head[6] << 8 | head[7]) & FRAGMENT) || bpf_skb_load_bytes(skb, at, &kind, 1))
			return 1;
		if (kind != 3 && kind != 4 && kind != 5 && kind != 11 && kind != 12)
			return 1;
		if (!bpf_skb_load_bytes(skb, at + 8 + 12, quoted, 8))
			pair4(p, quoted);
		return 1;
	}
	if (type == ETH_P_IPV6) {
		if (bpf_skb_load_bytes(skb, at, ip, 40) || head[0] >> 4 != 6)
			return 0;
		pair6(p, ip + 2);
		at += 40;
		if (head[6] != ICMP6 || bpf_skb_load_bytes(skb, at, &kind, 1) || kind < 1 || kind > 4)
			return 1;
		if (!bpf_skb_load_bytes(skb, at + 8 + 8, quoted, 32))
			pair6(p, quoted);
		return 1;
	}
	return 0;
}

/* Number of the socket among those that joined, in the order in which they did. */
SEC("socket")
int fanout_slice(struct __sk_buff *skb)
{
	__u16 type = bpf_ntohs((__u16)skb->protocol);
	struct pair p = {};
	__be16 word[2];
	__u32 at = 0;

	/* What the host sends has its Ethernet header before it still. */
	if (skb->pkt_type == PACKET_OUTGOING) {
		if (bpf_skb_load_bytes(skb, 12, word, 2))
			return 0;
		type = bpf_ntohs(word[0]);
		at = ETH_HLEN;
	}
#pragma unroll
	for (int n = 0; n < TAGS; n++) {
		if (!is_tag(type))
			break;
		if (bpf_skb_load_bytes(skb, at, word, 4))
			return 0;
		type = bpf_ntohs(word[1]);
		at += 4;
	}
	if (!addresses(skb, at, type, &p) || !fanout_slices || !fanout_workers)
		return 0;
	return spread(&p) % fanout_slices % fanout_workers;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
