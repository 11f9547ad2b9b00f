// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * from_kernel: what a VXLAN device of the kernel's runs on what it received,
 * where edges are reached by such a device (`tunnel = "kernel-vxlan"`). The outer header is gone; what it said
 * is in a key, and is believed no more than the header by `underlay`.
 *
 * Hooks: tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_replay = 0;

#include "ctx.h"
#include "stats.h"
#include "clock.h"
#include "csum.h"
#include "spread.h"
#include "exact.h"
#include "network.h"
#include "netentry.h"
#include "tunnel.h"
#include "tunnel_in.h"

/* A probe that came by a device of the kernel's goes back by its key. */
static __always_inline __u32 probed_by_key(ctx_t *ctx, struct bpf_tunnel_key *key, struct weir_net_remote *r, __u64 flags, int *action)
{
	struct weir_net_heard *h = heard_from(r);
	struct probe p = {};

	if (!h || !is_probe(ctx, 0, &p))
		return WEIR_R_tunnel_bad;
	if (p.probe.op == bpf_htons(WEIR_TP_ANSWER)) {
		heard(h, &p.probe);
		return WEIR_R_probe;
	}
	if (p.probe.op != bpf_htons(WEIR_TP_ASK) || !answered(ctx, 0))
		return WEIR_R_tunnel_bad;
	h->asked++;
	__builtin_memcpy(key->local_ipv6, r->local, 16);
	__builtin_memcpy(key->remote_ipv6, r->address, 16);
	if (!(flags & BPF_F_TUNINFO_IPV6)) {
		key->local_ipv4 = bpf_ntohl(r->local[0]);
		key->remote_ipv4 = bpf_ntohl(r->address[0]);
		flags |= BPF_F_ZERO_CSUM_TX | BPF_F_DONT_FRAGMENT;
	}
	key->tunnel_ttl = TUNNEL_HOPS;
	key->tunnel_tos = 0;
	key->tunnel_label = 0;
	key->tunnel_ext = 0;
	if (bpf_skb_set_tunnel_key(ctx, key, sizeof(*key), flags))
		return WEIR_R_internal;
	*action = bpf_redirect(ctx_word(ctx, ifindex), 0);
	return WEIR_NO_REASON;
}

static __always_inline __u32 take_key(ctx_t *ctx, struct net *n, __u32 *vid, int *action)
{
	struct bpf_tunnel_key key = {};
	struct weir_net_remote *r;
	__u64 src[2] = {}, flags = 0;
	__u32 reason;
	long code;

	code = bpf_skb_get_tunnel_key(ctx, &key, sizeof(key), 0);
	if (code == -EPROTO) {
		flags = BPF_F_TUNINFO_IPV6;
		code = bpf_skb_get_tunnel_key(ctx, &key, sizeof(key), flags);
	}
	if (code)
		return WEIR_R_tunnel_bad;
	if (flags) {
		__builtin_memcpy(src, key.remote_ipv6, 16);
	} else {
		src[1] = NET_MAPPED(bpf_htonl(key.remote_ipv4));
	}
	r = sender(n, src, WEIR_TK_KERNEL, &reason);
	if (!r)
		return reason;
	if (key.tunnel_id == WEIR_TP_IDENTIFIER)
		return probed_by_key(ctx, &key, r, flags, action);
	*vid = owner(n, key.tunnel_id, 0, ctx_len(ctx), &reason);
	if (!*vid)
		return reason;
	n->chain->origin = *vid;
	/* Protocol and tags are right: it came out of the kernel's own device. */
	n->chain->place = WEIR_CW_TUNNEL;
	return WEIR_NO_REASON;
}

SEC(CTX_SECTION)
int from_kernel(ctx_t *ctx)
{
	__u32 reason = WEIR_R_internal, vid = 0;
	int action = NET_DROPPED;
	struct net n = {};

	if (net_begin(ctx, &n))
		reason = take_key(ctx, &n, &vid, &action);
	return tunnel_end(ctx, &n, vid, action, reason);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
