// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * redirect: hands packets to devices, CPUs or AF_XDP sockets. A packet that
 * cannot be handed over is dropped and counted (redirect_failed); of a socket that nobody has opened it may go on instead.
 * What fails later, in the kernel's queues, only tracepoints see (bpf/monitor).
 *
 * Hooks: xdp.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
const volatile __u32 weir_to = WEIR_TO_DEVICES;
const volatile __u32 weir_targets = 1;		/* of them, at most WEIR_TARGETS */
const volatile __u32 weir_spread = WEIR_SPREAD_FLOW;
const volatile __u32 weir_cpu[WEIR_TARGETS] = {};	/* WEIR_TO_CPUS: number of each */
const volatile __u64 weir_flags = 0;		/* of bpf_redirect_map; low bits: what to do without a socket */

#include "ctx.h"
#include "csum.h"
#include "finish.h"
#include "panel.h"
#include "stats.h"
#include "spread.h"

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);	/* interface index */
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);	/* struct bpf_cpumap_val: size of the queue, no program */
} cpus SEC(".maps");

/* By receive queue. Filled by whoever opens the sockets. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* Packets handed over, by target: place in the configuration, of sockets the receive queue; WEIR_TO_ALL of broadcasts. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_TARGETS);
	__type(key, __u32);
	__type(value, struct weir_counter);
} handed SEC(".maps");

/* Those among them that came in by generic ports: the kernel tells only of native ones what devices sent. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_TARGETS);
	__type(key, __u32);
	__type(value, struct weir_counter);
} handed_generic SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} turn SEC(".maps");

/* Which target the packet is for. */
static __always_inline __u32 choose(ctx_t *ctx)
{
	__u32 zero = 0, at, *next;

	if (weir_to == WEIR_TO_SOCKETS)
		return ctx_queue(ctx);
	if (weir_targets == 1)
		return 0;
	if (weir_spread == WEIR_SPREAD_FLOW)
		return spread_over(spread_hash(ctx), weir_targets);
	next = bpf_map_lookup_elem(&turn, &zero);
	if (!next)
		return 0;
	at = *next;
	*next = at + 1 < weir_targets ? at + 1 : 0;
	return at;
}

static __always_inline int hand_over(ctx_t *ctx, __u32 target)
{
	finish(ctx);
	if (weir_to == WEIR_TO_CPUS)
		return bpf_redirect_map(&cpus, weir_cpu[target & (WEIR_TARGETS - 1)], weir_flags);
	if (weir_to == WEIR_TO_SOCKETS)
		return bpf_redirect_map(&sockets, target, weir_flags);
	return bpf_redirect_map(&devices, target, weir_flags);
}

SEC(CTX_SECTION)
int redirect(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();
	struct weir_counter *counter;
	__u32 reason = WEIR_NO_REASON, target;
	int verdict = XDP_DROP;
	struct panel p;

	if (!stats)
		goto out;
	p = panel_enter(ctx, stats, 1);
	target = choose(ctx);
	verdict = hand_over(ctx, target);
	if (verdict == XDP_REDIRECT) {
		target = weir_flags & BPF_F_BROADCAST ? WEIR_TO_ALL : target & (WEIR_TARGETS - 1);
		counter = bpf_map_lookup_elem(&handed, &target);
		if (counter) {
			counter->packets++;
			counter->bytes += p.len;
		}
#ifdef WEIR_PANEL
		if (p.chain && p.chain->away & WEIR_AWAY_GENERIC) {
			counter = bpf_map_lookup_elem(&handed_generic, &target);
			if (counter) {
				counter->packets++;
				counter->bytes += p.len;
			}
		}
#endif
	} else if (verdict != XDP_PASS) {
		reason = WEIR_R_redirect_failed;
		stats->reason[WEIR_R_redirect_failed]++;
		verdict = XDP_DROP;
	}
	verdict = panel_leave_with(ctx, stats, p, 1, verdict, 0, reason);
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
