// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * refuse: tells the sender of a packet that a router of a virtual network does
 * not send on why, by an ICMP error from the address of the interface that the
 * packet came in by; at a limited rate for each interface. RFC 792, 1812, 4443.
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
#include "clock.h"
#include "csum.h"
#include "finish.h"
#include "spread.h"
#include "exact.h"
#include "network.h"
#include "icmp_error.h"

#define ERROR_INTERVAL_NS	1000000ULL	/* one a millisecond on average, */
#define ERROR_BURST_NS		50000000ULL	/* 50 at once: as Linux limits its own */

/* When the next error to who sends by an interface is due. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_TN_ERRORS);
	__type(key, __u32);
	__type(value, __u64);
} net_errors SEC(".maps");

/* Type << 8 | code of the error for a cause. */
static __always_inline __u32 error_of(__u32 cause, __u32 v6)
{
	switch (cause) {
	case WEIR_NE_EXPIRED:
		return v6 ? ICMP6_TIME_EXCEED << 8 : ICMP_TIME_EXCEEDED << 8;
	case WEIR_NE_NO_ROUTE:
		return v6 ? ICMP6_DEST_UNREACH << 8 | ICMP6_NOROUTE : ICMP_DEST_UNREACH << 8 | ICMP_NET_UNREACH;
	case WEIR_NE_UNREACHABLE:
		/* RFC 4443, 3.1: address unreachable. */
		return v6 ? ICMP6_DEST_UNREACH << 8 | 3 : ICMP_DEST_UNREACH << 8 | ICMP_HOST_UNREACH;
	case WEIR_NE_PROHIBITED:
		return v6 ? ICMP6_DEST_UNREACH << 8 | ICMP6_ADM_PROHIBITED : ICMP_DEST_UNREACH << 8 | ICMP_PKT_FILTERED;
	}
	return v6 ? ICMP6_PKT_TOOBIG << 8 : ICMP_DEST_UNREACH << 8 | ICMP_FRAG_NEEDED;
}

/* Makes the packet the error that tells its sender, from the address of the interface it came in by. Returns 1 if it is. */
static __always_inline int tell(ctx_t *ctx, struct net *n, __u32 cause, __u32 mtu, __u32 v6)
{
	__u32 slot = n->chain->vid & (WEIR_TN_ERRORS - 1), what = error_of(cause, v6), off;
	__u64 *due = bpf_map_lookup_elem(&net_errors, &slot);
	struct icmp_error e = { .l3 = 14, .family = v6 ? 6 : 4, .type = what >> 8, .code = what & 0xff };
	__u8 ip[40], l4 = 0;

	if (ctx_load(ctx, 14, ip, v6 ? 40 : 20))
		return 0;
	off = v6 ? 40 : (ip[0] & 15) * 4;
	/* ICMP whose type is missing may be an error. */
	if (ctx_load(ctx, 14 + off, &l4, 1) && (v6 ? ip[6] == 58 : ip[9] == 1))
		return 0;
	if (v6 ? icmp_is_hidden6(ip) || !icmp_answerable6(ip, &l4) : !icmp_answerable4(ip, &l4))
		return 0;
	if (v6) {
		__builtin_memcpy(e.from, n->in->address6, 16);
		e.ip_len = 40 + bpf_ntohs(*(__be16 *)(ip + 4));
	} else {
		e.from[0] = n->in->address4;
		e.ip_len = bpf_ntohs(*(__be16 *)(ip + 2));
	}
	if (!(e.from[0] | e.from[1] | e.from[2] | e.from[3]) || e.ip_len > ctx_len(ctx) - 14)
		return 0;
	if (cause == WEIR_NE_TOO_BIG)
		e.word = mtu;
	if (!due || !icmp_error_due(due, clock_ns(), ERROR_INTERVAL_NS, ERROR_BURST_NS))
		return 0;
	return icmp_error(ctx, &e);
}

SEC(CTX_SECTION)
int refuse(ctx_t *ctx)
{
	__u32 reason = WEIR_R_internal, vid = 0, cause;
	struct net n = {};
	__be16 type;

	if (!net_enter_again(ctx, &n))
		goto leave;
	reason = n.chain->reason;
	cause = n.chain->cause;
	if (ctx_load(ctx, 12, &type, sizeof(type)))
		goto leave;
	if (!tell(ctx, &n, cause >> 16, cause & 0xffff, type == bpf_htons(ETH_P_IPV6)))
		goto leave;
	n.stats->reason[WEIR_R_answered]++;
	vid = n.chain->vid;
	reason = WEIR_NO_REASON;
leave:
	return net_leave(ctx, &n, vid, reason);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
