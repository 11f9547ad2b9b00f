/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Next hops: link-layer addresses and the way out, from the kernel's tables.
 *
 * A function keeps one struct weir_near for each of its next hops and CPU (so that nobody reads what another writes) and asks the kernel
 * when it is older than a second or so: a lookup costs more than all the rest that is done to a packet. The kernel must know the
 * way already: who configures sees to that its neighbours are asked for.
 *
 * Needs clock.h.
 */
#ifndef WEIR_NEAR_H
#define WEIR_NEAR_H

#define NEAR_SHIFT	30	/* a unit of time is 1.07 s */

/* Ports of the edge by index of their devices. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_port_at);
} ports_by_index SEC(".maps");

static __always_inline __u32 near_time(void)
{
	/* 0 stands for "never". */
	return (__u32)(clock_ns() >> NEAR_SHIFT) + 1;
}

static __always_inline int near_holds(struct weir_near *near, __u32 time)
{
	return near->until == time && near->port;
}

/*
 * Asks the kernel for the way that `fib` describes (family, dst, ifindex) and remembers it. Returns a code of bpf_fib_lookup;
 * BPF_FIB_LKUP_RET_NOT_FWDED also for a device that is no port of the edge.
 */
static __always_inline long near_ask(ctx_t *ctx, struct weir_near *near, struct weir_fib *fib, __u32 flags, __u32 time)
{
	struct weir_port_at *at;
	__u32 index;
	long code;

	near->port = 0;
	near->until = time;
	code = bpf_fib_lookup(ctx, (void *)fib, sizeof(*fib), flags);
	if (code)
		return code;
	index = fib->ifindex;
	at = bpf_map_lookup_elem(&ports_by_index, &index);
	if (!at)
		return BPF_FIB_LKUP_RET_NOT_FWDED;
	__builtin_memcpy(near->to, fib->dmac, 6);
	__builtin_memcpy(near->from, fib->smac, 6);
	near->interface = at->interface;
	near->mtu = at->mtu;
	near->port = at->port;
	return code;
}

#endif
