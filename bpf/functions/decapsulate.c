// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * decapsulate: the far end of a balancer's tunnels, on a server. Takes the outer headers off packets to its
 * addresses (IPv4 or IPv6 in either, GUE of version 0 and 1) and lets what was inside go on by the default output, as all that is no such
 * packet. docs/balancer.md.
 *
 * ECN is carried over as RFC 6040 says: congestion that the way through the tunnel marked reaches the packet, and where the
 * packet cannot say so, it is dropped.
 *
 * Hooks: xdp.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
const volatile __u32 weir_dc_features = WEIR_DC_IPIP;	/* WEIR_DC_* */
const volatile __u32 weir_dc_gue_port = 6080;

#define does(f)		(weir_dc_features & (f))

/* All that quick_parse.h may read is asked for. */
#define has(f)		1

#include "ctx.h"
#include "csum.h"
#include "finish.h"
#include "panel.h"
#include "stats.h"
#include "quick_parse.h"

#define IPPROTO_IPIP	4
#define IPPROTO_IPV6	41
#define L2_MAX		32	/* Ethernet header and four tags, rounded up */
#define ECN_CE		3

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct weir_tunnel_end);
	__type(value, __u32);
} tunnel_ends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct weir_tunnel_from);
	__type(value, __u32);
} tunnel_begins SEC(".maps");

static __always_inline void put_address(__u8 *at, __u64 high, __u64 low)
{
	*(__u32 *)at = bpf_htonl(high >> 32);
	*(__u32 *)(at + 4) = bpf_htonl((__u32)high);
	*(__u32 *)(at + 8) = bpf_htonl(low >> 32);
	*(__u32 *)(at + 12) = bpf_htonl((__u32)low);
}

/* Whether tunnels may begin where the packet comes from. */
static __always_inline int may_begin(struct head *h)
{
	struct weir_tunnel_from from = { .family = h->family };

	if (h->family == 6) {
		from.bits = 32 + 128;
		put_address(from.address, h->src_high, h->src_low);
	} else {
		from.bits = 32 + 32;
		*(__u32 *)from.address = bpf_htonl((__u32)h->src_low);
	}
	return bpf_map_lookup_elem(&tunnel_begins, &from) != 0;
}

/* Offset and family of the packet inside; 0 in *inner if this is no tunnel of ours. Returns QUICK_OK or a reason. */
static __always_inline int look_inside(ctx_t *ctx, struct head *h, __u32 *inner, __u32 *family)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *p;
	__u32 proto = h->kind & 255, off = h->l4, version;

	if (proto == IPPROTO_IPIP || proto == IPPROTO_IPV6) {
		if (!does(WEIR_DC_IPIP))
			return QUICK_OK;
		*inner = off;
		*family = proto == IPPROTO_IPIP ? 4 : 6;
		return QUICK_OK;
	}
	if (!does(WEIR_DC_GUE) || proto != IPPROTO_UDP || !h->has_ports || (h->ports & 0xffff) != weir_dc_gue_port)
		return QUICK_OK;
	off += 8;
	opaque(off);
	off &= 511;
	p = data + off;
	if (p + 4 > end)
		return WEIR_R_tunnel_bad;
	version = p[0] >> 6;
	*inner = off;
	if (version == 1) {
		*family = p[0] >> 4;
		return *family == 4 || *family == 6 ? QUICK_OK : WEIR_R_tunnel_bad;
	}
	/* Version 0: data, not control, and an IP packet. */
	if (version || p[0] & 0x20)
		return WEIR_R_tunnel_bad;
	*inner += 4 + (p[0] & 0x1f) * 4;
	if (p[1] == IPPROTO_IPIP)
		*family = 4;
	else if (p[1] == IPPROTO_IPV6)
		*family = 6;
	else
		return WEIR_R_tunnel_bad;
	return QUICK_OK;
}

/* The packet inside is whole, and has the congestion mark that it met on its way. */
static __always_inline int check_inside(ctx_t *ctx, struct head *h, __u32 off, __u32 family)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip, *outer;
	__u32 l3 = h->l3, length, tos, outer_tos, word;

	opaque(l3);
	l3 &= 31;
	outer = data + l3;
	opaque(off);
	off &= 1023;
	ip = data + off;
	if (outer + 20 > end || ip + 20 > end)
		return WEIR_R_tunnel_bad;
	outer_tos = h->family == 4 ? outer[1] : be16_at(outer) >> 4;
	if (ip[0] >> 4 != family)
		return WEIR_R_tunnel_bad;
	if (family == 4) {
		length = be16_at(ip + 2);
		if ((ip[0] & 15) < 5 || length < (ip[0] & 15) * 4)
			return WEIR_R_tunnel_bad;
		tos = ip[1];
	} else {
		length = 40 + be16_at(ip + 4);
		tos = be16_at(ip) >> 4;
	}
	if (off + length > h->ip_end)
		return WEIR_R_tunnel_bad;
	if ((outer_tos & ECN_CE) != ECN_CE || (tos & ECN_CE) == ECN_CE)
		return QUICK_OK;
	if (!(tos & ECN_CE))
		return WEIR_R_tunnel_bad;
	if (family == 4) {
		word = be16_at(ip);
		ip[1] |= ECN_CE;
		*(__be16 *)(ip + 10) = bpf_htons(csum_update(be16_at(ip + 10), word, word | ECN_CE));
	} else {
		ip[1] |= ECN_CE << 4;
	}
	return QUICK_OK;
}

/* Takes `less` bytes out behind the `l3` bytes of Ethernet header and tags. */
static __always_inline int strip(ctx_t *ctx, __u32 l3, __u32 less, __u32 family)
{
	__u64 l2[L2_MAX / 8] = {};
	__be16 type = family == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);

	opaque(l3);
	l3 &= L2_MAX - 1;
	if (ctx_load(ctx, 0, l2, l3))
		return WEIR_R_internal;
	if (ctx_grow_head(ctx, -(int)less))
		return WEIR_R_internal;
	if (ctx_store(ctx, 0, l2, l3) || ctx_store(ctx, l3 - 2, &type, sizeof(type)))
		return WEIR_R_internal;
	return QUICK_OK;
}

/* Returns QUICK_OK for what goes on, or the reason to drop. */
static __always_inline int unpack(ctx_t *ctx, struct head *h)
{
	struct weir_tunnel_end key = {};
	__u32 inner = 0, family = 0;
	int reason = quick_parse(ctx, h);

	if (reason == QUICK_OTHER)
		return QUICK_OK;
	if (reason != QUICK_OK)
		return reason;
	/* Tunnels are not fragmented. */
	if (h->kind & WEIR_KIND_FRAGMENT || !h->l4)
		return QUICK_OK;
	key.high = h->dst_high;
	key.low = h->dst_low;
	key.family = h->family;
	if (!bpf_map_lookup_elem(&tunnel_ends, &key))
		return QUICK_OK;
	reason = look_inside(ctx, h, &inner, &family);
	if (reason != QUICK_OK || !inner)
		return reason;
	if (does(WEIR_DC_FROM) && !may_begin(h))
		return WEIR_R_tunnel_bad;
	reason = check_inside(ctx, h, inner, family);
	if (reason != QUICK_OK)
		return reason;
	return strip(ctx, h->l3, inner - h->l3, family);
}

SEC(CTX_SECTION)
int decapsulate(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();
	int verdict = XDP_ABORTED, reason;
	struct head h = {};
	struct panel p;

	if (!stats)
		goto out;
	p = panel_enter(ctx, stats, 1);
	h.len = p.len;
	reason = unpack(ctx, &h);
	verdict = CTX_PASS;
	if (reason >= 0) {
		stats->reason[reason & (WEIR_REASONS - 1)]++;
		verdict = CTX_DROP;
	} else {
		reason = WEIR_NO_REASON;
		panel_resized(ctx);
	}
	verdict = panel_leave_with(ctx, stats, p, 1, verdict, 0, reason);
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
