// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The data plane's finish() on its own: TX if it changed the packet, PASS if not.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 again = 0;		/* the checksum at this offset becomes what it was: for timing */
const volatile __u32 weir_csum_mode = WEIR_CSUM_OFFLOADED;

#include "ctx.h"
#include "csum.h"
#include "finish.h"

SEC(CTX_SECTION)
int finished(ctx_t *ctx)
{
	__u16 before = 0;
	int done;

	if (again)
		ctx_load(ctx, again, &before, sizeof(before));
	done = finish(ctx);
	if (again)
		ctx_store(ctx, again, &before, sizeof(before));
	return done ? XDP_TX : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
