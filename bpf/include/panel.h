/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The patch panel, inlined at the end of every function: the instance's number
 * and the output it chose name the next hop, which is a program to tail-call or
 * a way out of the graph. Plain arrays only (docs/design/graph.md).
 *
 * A function begins with panel_enter() or counts `received` and `bytes` itself, and leaves through
 * panel_leave(), which counts the verdict; reasons are the function's own affair. Built by itself (no panel), for a graph (-DWEIR_PANEL),
 * for a graph that is watched (-DWEIR_WATCH, too), so that what is not in use costs nothing, and for virtual networks on tc
 * (-DWEIR_NETWORK), where a function has two interfaces and what comes in by one leaves by the other (network.h).
 */
#ifndef WEIR_PANEL_H
#define WEIR_PANEL_H

#ifdef WEIR_NETWORK

#include "panel_net.h"

#else

#include "chain.h"
#include "watch.h"

#ifdef WEIR_PANEL

#include "csum.h"
#include "finish.h"
#ifndef WEIR_HOOK_TC
#include "meta.h"
#endif

/* 1: packets to the stack take their mark along. */
const volatile __u32 weir_metadata = 0;

/* The number of the instance that the program is; 0: it serves several, and who calls says which one is meant. */
const volatile __u32 weir_vid = 0;

/*
 * Where the outputs lead, if that holds as long as the program does; slot 0: look it up in weir_links. A constant slot is a direct jump
 * that the kernel patches, without look-up and indirect jump, and ways out that are not taken are not there to be verified.
 * weir_next_vid names the instance to programs that serve several, or the place of a device.
 */
const volatile __u32 weir_next_slot[WEIR_OUTS] = {};
const volatile __u32 weir_next_vid[WEIR_OUTS] = {};

/* Index: (low bit of the generation * WEIR_VIDS + number of the instance) * WEIR_OUTS + output. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * WEIR_VIDS * WEIR_OUTS);
	__type(key, __u32);
	__type(value, struct weir_hop);
} weir_links SEC(".maps");

/*
 * The programs of the instances, one array for each hook: an array takes programs of one type. An instance that packets of both hooks come to has
 * the same slot in both, so that links and constants are the same.
 */
#ifdef WEIR_HOOK_TC
#define weir_programs	weir_tc_programs
#endif
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, WEIR_PROGRAMS);
	__type(key, __u32);
	__type(value, __u32);
} weir_programs SEC(".maps");

#ifdef WEIR_HOOK_TC
/* Indexes of the devices by their places in weir_devices, 0: none. The kernel binds a map of devices to programs of one type. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} weir_tc_devices SEC(".maps");
#else
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, WEIR_DEVICES);
	__type(key, __u32);
	__type(value, __u32);
} weir_devices SEC(".maps");
#endif

static __always_inline int panel_missed(ctx_t *ctx, struct weir_stats *stats)
{
	stats->reason[WEIR_R_missed_call] += ctx_segments(ctx);
	return XDP_DROP;
}

/* Leaves the packet's mark where `handover` finds it; on tc it is the socket buffer's at once. */
static __always_inline void panel_hand_over(ctx_t *ctx, struct weir_stats *stats)
{
	struct weir_chain *chain = panel_chain();

#ifdef WEIR_HOOK_TC
	if (chain && chain->mark)
		ctx->mark = chain->mark;
#else
	if (chain && chain->mark && !meta_make(ctx, chain, 0))
		stats->reason[WEIR_R_mark_lost]++;
#endif
}

/* Packets of generic ports that were handed to the device of a place: the kernel tells of native ones only. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_DEVICES);
	__type(key, __u32);
	__type(value, struct weir_counter);
} weir_handed SEC(".maps");

/* Packets that were sent back by XDP_TX, by port: drivers do not tell. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_PORTS);
	__type(key, __u32);
	__type(value, struct weir_counter);
} weir_transmitted SEC(".maps");

/* Sends the packet back by the device that has it. Returns the verdict. */
static __always_inline int panel_transmit(ctx_t *ctx)
{
	struct weir_chain *chain = panel_chain();
	struct weir_counter *counter;
	__u32 port;

	if (chain) {
		port = chain->port;
		counter = bpf_map_lookup_elem(&weir_transmitted, &port);
		if (counter) {
			counter->packets += ctx_segments(ctx);
			counter->bytes += chain->len;
		}
	}
#ifdef WEIR_HOOK_TC
	bpf_redirect(ctx_word(ctx, ifindex), 0);
#endif
	return XDP_TX;
}

/* Whether the device of a place is there, and takes the packet once the program has ended. */
static __always_inline int panel_takes(__u32 place)
{
#ifdef WEIR_HOOK_TC
	__u32 *device = bpf_map_lookup_elem(&weir_tc_devices, &place);

	return device && *device && bpf_redirect(*device, 0) == TC_ACT_REDIRECT;
#else
	return bpf_redirect_map(&weir_devices, place, XDP_ABORTED) == XDP_REDIRECT;
#endif
}

/* Hands the packet to the device of a place. Returns the verdict; drops are counted. */
static __always_inline int panel_to_device(ctx_t *ctx, struct weir_stats *stats, __u32 place)
{
	struct weir_chain *chain = panel_chain();
	struct weir_counter *counter;

	if (panel_takes(place)) {
		if (chain && chain->away & WEIR_AWAY_GENERIC) {
			counter = bpf_map_lookup_elem(&weir_handed, &place);
			if (counter) {
				counter->packets += ctx_segments(ctx);
				counter->bytes += chain->len;
			}
		}
		return XDP_REDIRECT;
	}
	stats->reason[WEIR_R_redirect_failed] += ctx_segments(ctx);
	return XDP_DROP;
}

/* Leaves the graph. Returns the verdict; drops are counted. */
static __always_inline int panel_way_out(ctx_t *ctx, struct weir_stats *stats, __u32 vid, __u32 slot)
{
	/* Nobody behind these finishes what a sender left to its device. */
	if (slot == WEIR_SLOT_TX || slot == WEIR_SLOT_DEVICE)
		finish(ctx);
	switch (slot) {
	case WEIR_SLOT_STACK:
		if (weir_metadata)
			panel_hand_over(ctx, stats);
		return XDP_PASS;
	case WEIR_SLOT_DROP:
		stats->reason[WEIR_R_link_drop] += ctx_segments(ctx);
		return XDP_DROP;
	case WEIR_SLOT_TX:
		return panel_transmit(ctx);
	case WEIR_SLOT_DEVICE:
		return panel_to_device(ctx, stats, vid);
	}
	return panel_missed(ctx, stats);
}

static __always_inline int panel_exit(ctx_t *ctx, struct weir_stats *stats, __u32 vid, __u32 slot)
{
	int verdict;

	/*
	 * A veth leaves frames of XDP_TX lying until its far end has a program of its own (drivers/net/veth.c: veth_xdp_flush), and takes
	 * redirected ones at once. What was recirculated is at another device, and is taken home by tc (homecoming.c).
	 */
	if (slot == WEIR_SLOT_TX) {
		struct weir_chain *chain = panel_chain();

		if (chain && chain->away & WEIR_AWAY_VETH) {
			vid = chain->port;
			slot = WEIR_SLOT_DEVICE;
			/* The place of the device, for who asks how the packet left (replays of graphs). */
			chain->vid = vid;
		}
	}
	verdict = panel_way_out(ctx, stats, vid, slot);
	watch_exit(ctx, vid, slot, verdict);
	return verdict;
}

static __always_inline __u32 panel_vid(struct weir_chain *chain)
{
	return weir_vid ? weir_vid : chain->vid;
}

/* Goes on to the program at `slot`. Comes back with a verdict, or not at all. Ways out are beyond the end of the array of programs. */
static __always_inline int panel_step(ctx_t *ctx, struct weir_stats *stats, __u32 vid, __u32 slot)
{
	watch_step(ctx, vid, slot);
	stats->verdict[WEIR_NEXT] += ctx_segments(ctx);
	bpf_tail_call(ctx, &weir_programs, slot);
	stats->verdict[WEIR_NEXT] -= ctx_segments(ctx);
	return panel_exit(ctx, stats, vid, slot);
}

/* Follows output `out` of the instance. */
static __always_inline int panel_follow(ctx_t *ctx, struct weir_stats *stats, struct weir_chain *chain, const __u32 out)
{
	struct weir_hop *hop;
	__u32 at, vid, slot;

	watch_follow(chain, panel_vid(chain), out);
	if (__builtin_constant_p(out) && weir_next_slot[out & (WEIR_OUTS - 1)]) {
		slot = weir_next_slot[out & (WEIR_OUTS - 1)];
		vid = weir_next_vid[out & (WEIR_OUTS - 1)];
		if (slot >= WEIR_PROGRAMS)
			return panel_exit(ctx, stats, vid, slot);
		if (vid)
			chain->vid = vid;
		return panel_step(ctx, stats, vid, slot);
	}
	at = panel_vid(chain);
	asm volatile("" : "+r"(at));	/* keeps this off the way of constants */
	at = chain->base + at * WEIR_OUTS + (out & (WEIR_OUTS - 1));
	hop = bpf_map_lookup_elem(&weir_links, &at);
	if (!hop)
		return panel_missed(ctx, stats);
	chain->vid = hop->vid;
	return panel_step(ctx, stats, hop->vid, hop->slot);
}

#endif

/* Bytes of the frame, without asking the kernel for them in every function of a chain. */
static __always_inline __u32 panel_len(ctx_t *ctx)
{
#ifdef WEIR_PANEL
	struct weir_chain *chain = panel_chain();

	return chain ? chain->len : 0;
#else
	return ctx_len(ctx);
#endif
}

/* To be called by a function that changed the length of the frame. */
static __always_inline void panel_resized(ctx_t *ctx)
{
#ifdef WEIR_PANEL
	struct weir_chain *chain = panel_chain();

	if (chain)
		chain->len = ctx_len(ctx);
#endif
}

/* What a function has in hand of the graph; nothing where it runs by itself. */
struct panel {
	struct weir_chain *chain;
	__u32 len;		/* bytes of the frame when the function began */
};

/* Begins a function's work on a packet: counts it. To be called once, with what is in hand until the end. */
static __always_inline struct panel panel_enter(ctx_t *ctx, struct weir_stats *stats, __u32 packets)
{
	struct panel p = {};

	stats->received += packets;
#ifdef WEIR_PANEL
	p.chain = panel_chain();
	if (p.chain)
		p.len = p.chain->len;
#else
	p.len = ctx_len(ctx);
#endif
	stats->bytes += p.len;
	return p;
}

#ifdef WEIR_PANEL
/*
 * Sends the packet back by the device that it came in by, as an instance decided that has no link for it and has finished its checksum.
 * Returns the verdict.
 */
static __always_inline int panel_back(ctx_t *ctx, struct weir_stats *stats, struct weir_chain *chain, __u32 reason)
{
	int verdict;

	if (!(chain->away & WEIR_AWAY_VETH)) {
		verdict = panel_transmit(ctx);
		watch_end(ctx, chain, panel_vid(chain), verdict, reason);
		goto out;
	}
	watch_says(chain, reason);
	watch_follow(chain, panel_vid(chain), 0);
	chain->vid = chain->port;
	verdict = panel_to_device(ctx, stats, chain->port);
	watch_exit(ctx, chain->port, WEIR_SLOT_DEVICE, verdict);
out:
	return verdict;
}
#endif

/* Ends the packet's way through the graph, whatever the links say. Arguments as of panel_leave_with(). */
static __always_inline int panel_stop(ctx_t *ctx, struct weir_stats *stats, struct panel p, __u32 packets, int verdict, __u32 reason)
{
#ifdef WEIR_PANEL
	if (p.chain && verdict == XDP_TX)
		verdict = panel_back(ctx, stats, p.chain, reason);
	else if (p.chain)
		watch_end(ctx, p.chain, panel_vid(p.chain), verdict, reason);
#endif
	stats->verdict[verdict & 7] += packets;
	return ctx_return(verdict);
}

#ifdef WEIR_PANEL
/*
 * Sends the packet out of a port of the edge, whatever the links say: weir's number of it. Where its device is the one that has the
 * packet, it is transmitted there. Arguments and what comes back are as of panel_leave_with().
 */
static __always_inline int panel_send(ctx_t *ctx, struct weir_stats *stats, struct panel p, __u32 packets, __u32 port, __u32 reason)
{
	int verdict = XDP_DROP;

	if (p.chain) {
		watch_says(p.chain, reason);
		watch_follow(p.chain, panel_vid(p.chain), 0);
		if (p.chain->port == port && !(p.chain->away & (WEIR_AWAY_RECIRCULATED | WEIR_AWAY_VETH))) {
			verdict = panel_exit(ctx, stats, 0, WEIR_SLOT_TX);
		} else {
			/* The place of the device, for who asks how the packet left (replays of graphs). */
			p.chain->vid = port;
			verdict = panel_exit(ctx, stats, port, WEIR_SLOT_DEVICE);
		}
	}
	stats->verdict[verdict & 7] += packets;
	return ctx_return(verdict);
}
#endif

/*
 * Ends a function's work on a packet: `verdict` is what it decided, CTX_PASS goes on by output `out`. What comes back is what
 * the program returns. `packets`: those on the wire that this one stands for. `reason`: of a drop, counted already, for those who watch.
 */
static __always_inline int panel_leave_with(ctx_t *ctx, struct weir_stats *stats, struct panel p, __u32 packets, int verdict,
					    __u32 out, __u32 reason)
{
#ifdef WEIR_PANEL
	if (p.chain && verdict == CTX_PASS) {
		watch_says(p.chain, reason);
		verdict = panel_follow(ctx, stats, p.chain, out);
	} else if (p.chain && verdict == XDP_TX) {
		verdict = panel_back(ctx, stats, p.chain, reason);
	} else if (p.chain) {
		watch_end(ctx, p.chain, panel_vid(p.chain), verdict, reason);
	}
#endif
	stats->verdict[verdict & 7] += packets;
	return ctx_return(verdict);
}

/* The same for functions that do not begin with panel_enter(). */
static __always_inline int panel_leave(ctx_t *ctx, struct weir_stats *stats, __u32 packets, int verdict, __u32 out,
				       __u32 reason)
{
	struct panel p = {};

#ifdef WEIR_PANEL
	p.chain = panel_chain();
#endif
	return panel_leave_with(ctx, stats, p, packets, verdict, out, reason);
}

#endif

#endif
