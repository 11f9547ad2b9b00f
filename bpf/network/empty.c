// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * empty: a function of virtual networks that counts packets and lets them go
 * on by its other interface. What a hop costs is measured with it.
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
#include "exact.h"
#include "network.h"

SEC(CTX_SECTION)
int empty(ctx_t *ctx)
{
	__u32 reason = WEIR_R_internal;
	struct net n = {};

	if (net_enter(ctx, &n))
		reason = WEIR_NO_REASON;
	return net_leave_onward(ctx, &n, reason);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
