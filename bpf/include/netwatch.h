/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Watching in virtual networks: what watch.h does in graphs, by interfaces. A
 * program says by which interface a packet came in to it, and what became of it
 * there (docs/watching.md).
 *
 * Only in objects built to be watched (-DWEIR_WATCH): elsewhere all of it is empty. What watching knows of a packet lies beside its chain,
 * so that both forms of a program share all other maps and packets may pass programs of both.
 */
#ifndef WEIR_NETWATCH_H
#define WEIR_NETWATCH_H

#ifdef WEIR_WATCH

#include "watch.h"

/* vid: of the interface that it came in by to the function that has it; 0: the entry, which has said its part. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_chain);
} weir_watch_chain SEC(".maps");

/* What watching knows of the packet that this CPU has; 0: it is not watched. */
static __always_inline struct weir_chain *netwatch_chain(struct weir_net_chain *chain)
{
	__u32 zero = 0;
	struct weir_chain *w = bpf_map_lookup_elem(&weir_watch_chain, &zero);

	if (!w || !chain || w->number != chain->number || !watch_is_on(w))
		return 0;
	return w;
}

/* Decides about a packet that came in by the chain's origin, or (vid) that goes on by an interface after a recirculation. */
static __noinline __attribute__((unused)) int netwatch_begin(ctx_t *ctx, struct weir_net_chain *chain, __u32 vid)
{
	__u32 zero = 0;
	struct weir_chain *w = bpf_map_lookup_elem(&weir_watch_chain, &zero);

	if (!w || !chain)
		return 0;
	w->number = chain->number;
	w->generation = chain->generation;
	w->port = chain->origin;
	w->len = ctx_len(ctx);
	w->vid = 0;
	watch_begin(ctx, w, vid);
	return 0;
}

/* An event of the function that has the packet; `where` says what follows: VID or number << 32 | slot. */
static __noinline __attribute__((unused)) int netwatch_say(ctx_t *ctx, struct weir_net_chain *chain, __u64 where, __u32 kind, __u32 what)
{
	struct weir_chain *w = netwatch_chain(chain);
	struct weir_watch_desk *desk = watch_desk();

	if (!w || !desk)
		return 0;
	desk->event.vid = w->vid;
	desk->event.next_vid = where >> 32;
	desk->event.next_slot = (__u32)where;
	desk->event.out = what >> 16;
	desk->event.verdict = what & 0xff;
	desk->event.reason = WEIR_NO_REASON;
	watch_emit(ctx, w, desk, kind);
	return 0;
}

/* Before the packet goes to the program at `slot`, where it comes in by interface `vid`. */
static __noinline __attribute__((unused)) int netwatch_step(ctx_t *ctx, struct weir_net_chain *chain, __u32 vid, __u32 slot)
{
	struct weir_chain *w = netwatch_chain(chain);
	struct weir_watch_desk *desk = watch_desk();
	__u32 at;

	if (!w || !desk)
		return 0;
	if (w->vid) {
		netwatch_say(ctx, chain, (__u64)vid << 32 | slot, WEIR_W_ON, WEIR_NEXT);
		at = w->hops;
		if (at < WEIR_WATCH_PATH)
			desk->event.path[at] = w->vid;
		w->hops = at + 1;
	}
	w->vid = vid;
	return 0;
}

/* The packet is dropped where it is, or a function ended its way with a verdict that says why in `reason`. */
static __noinline __attribute__((unused)) int netwatch_end(ctx_t *ctx, struct weir_net_chain *chain, __u32 verdict, __u32 reason)
{
	struct weir_chain *w = netwatch_chain(chain);

	if (!w)
		return 0;
	watch_end(ctx, w, w->vid, verdict, reason);
	return 0;
}

#else

#define netwatch_begin(ctx, chain, vid)			do { } while (0)
#define netwatch_say(ctx, chain, where, kind, what)	do { } while (0)
#define netwatch_step(ctx, chain, vid, slot)		do { } while (0)
#define netwatch_end(ctx, chain, verdict, reason)	((void)(reason))

#endif

/* What follows, as netwatch_say() wants it, and an output that is a number of 16 bits with a verdict. */
#define NETWATCH_TO(next, slot)		((__u64)(next) << 32 | (slot))
#define NETWATCH_WHAT(verdict, out)	((__u32)(out) << 16 | (verdict))

#endif
