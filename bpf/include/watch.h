/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Watching: which packets are watched is decided once, where they come in, and
 * every stage of such a packet becomes an event in a ring buffer (docs/watching.md).
 *
 * Only in objects built to be watched (-DWEIR_WATCH): elsewhere all of it is empty, so that what is not watched pays nothing.
 * A packet is watched if `chain->watched` is the low half of its number; what an entry that does not watch leaves there is of an older packet.
 */
#ifndef WEIR_WATCH_H
#define WEIR_WATCH_H

#ifdef WEIR_WATCH

#define WEIR_WATCH_HEAD_ROOM	512	/* power of two: offsets are masked to its half */
#define WEIR_WATCH_RING		(4 << 20)
#define WEIR_RB_NO_WAKEUP	1	/* BPF_RB_NO_WAKEUP of linux/bpf.h */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_watch_want);
} weir_watch_want SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, WEIR_WATCH_RING);
} weir_watch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_watch_count);
} weir_watch_count SEC(".maps");

/* An event being made. The path in it is that of the packet which is watched on this CPU, and lasts as long as that. */
struct weir_watch_desk {
	struct weir_watch_event event;
	__u8 data[WEIR_WATCH_SNAP];
	__u8 head[WEIR_WATCH_HEAD_ROOM];	/* of the packet, for the filter */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_watch_desk);
} weir_watch_desk SEC(".maps");

#define watch_hidden(x)	asm volatile("" : "+r"(x))

static __always_inline int watch_is_on(struct weir_chain *chain)
{
	return chain->watched && chain->watched == (__u32)chain->number;
}

/* Puts an event into the ring, if somebody wants one of its kind. What it says of the stage stands in the desk's event already. */
static __noinline int watch_emit(ctx_t *ctx, struct weir_chain *chain, struct weir_watch_desk *desk, __u32 kind)
{
	__u32 zero = 0, snap, len;
	struct weir_watch_want *want = bpf_map_lookup_elem(&weir_watch_want, &zero);
	struct weir_watch_count *count = bpf_map_lookup_elem(&weir_watch_count, &zero);

	if (!chain || !desk || !want || !count || !(want->emit & kind))
		return 0;
	if (want->vid && want->vid != desk->event.vid && kind != WEIR_W_ENTRY)
		return 0;
	len = ctx_len(ctx);
	snap = want->snap < len ? want->snap : len;
	if (snap > WEIR_WATCH_SNAP)
		snap = WEIR_WATCH_SNAP;
	at_most(snap, WEIR_WATCH_SNAP);
	if (snap && ctx_load_head(ctx, desk->data, snap, WEIR_WATCH_SNAP))
		snap = 0;
	desk->event.time_ns = bpf_ktime_get_ns();
	desk->event.number = chain->number;
	desk->event.generation = chain->generation;
	desk->event.session = want->session;
	desk->event.cpu = bpf_get_smp_processor_id();
	desk->event.kind = kind;
	desk->event.hop = chain->hops;
	desk->event.port = ctx_transmits() ? chain->port | WEIR_WATCH_TRANSMIT : chain->port;
	desk->event.len = len;
	desk->event.snap = snap;
	desk->event.queue = ctx_queue(ctx);
	watch_hidden(snap);
	at_most(snap, WEIR_WATCH_SNAP);
	/* The reader polls: waking it for every event would cost more than the event. */
	if (bpf_ringbuf_output(&weir_watch, desk, sizeof(desk->event) + snap, WEIR_RB_NO_WAKEUP))
		count->lost++;
	else
		count->events++;
	return 0;
}

static __always_inline struct weir_watch_desk *watch_desk(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&weir_watch_desk, &zero);
}

/* 16 bits of the head in host order. */
static __always_inline __u16 watch_be16(struct weir_watch_desk *desk, __u32 at)
{
	watch_hidden(at);
	at &= WEIR_WATCH_HEAD_ROOM / 2 - 1;
	return desk->head[at] << 8 | desk->head[at + 1];
}

/* Whether `words` 32-bit words of the head at `at` differ from what is asked for. */
static __always_inline int watch_differs(struct weir_watch_desk *desk, __u32 at, const __u8 *value, const __u8 *mask,
					 const __u32 words)
{
	__u32 i, differs = 0;

	watch_hidden(at);
	at &= WEIR_WATCH_HEAD_ROOM / 2 - 1;
#pragma unroll
	for (i = 0; i < words; i++) {
		__u32 have = desk->head[at + i * 4] | desk->head[at + i * 4 + 1] << 8 | desk->head[at + i * 4 + 2] << 16 |
			     (__u32)desk->head[at + i * 4 + 3] << 24;

		differs |= (have ^ ((__u32 *)value)[i]) & ((__u32 *)mask)[i];
	}
	return differs != 0;
}

/*
 * Whether the filter may let the packet by. A plain no is right for every packet that parses (docs/semantics.md section 1)
 * and for no other: the reader decides exactly.
 */
static __noinline int watch_may_match(ctx_t *ctx, struct weir_chain *chain, struct weir_watch_desk *desk, struct weir_watch_want *want)
{
	__u32 at = 12, len, end, i, proto, checks;
	__u16 type;

	if (!chain || !desk || !want)
		return 1;
	checks = want->checks;
	len = chain->len;
	if (len < WEIR_FRAME_MIN)
		return 1;
	end = len < WEIR_WATCH_HEAD ? len : WEIR_WATCH_HEAD;
	at_most(end, WEIR_WATCH_HEAD);
	if (ctx_load_head(ctx, desk->head, end, WEIR_WATCH_HEAD))
		return 1;
	type = watch_be16(desk, at);
#pragma unroll
	for (i = 0; i < WEIR_VLAN_MAX; i++) {
		if (type != 0x8100 && type != 0x88a8 && type != 0x9100)
			break;
		at += 4;
		if (at + 2 > end)
			return 1;
		type = watch_be16(desk, at);
	}
	at += 2;
	if (checks & WEIR_WQ_IP4) {
		if (type != 0x0800)
			return type == 0x8100 || type == 0x88a8 || type == 0x9100;
		if (at + 20 > end)
			return 1;
	} else if (checks & WEIR_WQ_IP6) {
		if (type != 0x86dd)
			return type == 0x8100 || type == 0x88a8 || type == 0x9100;
		if (at + 40 > end)
			return 1;
	}
	if (type == 0x0800) {
		if (at + 20 > end)
			return 1;
		proto = watch_be16(desk, at + 8) & 0xff;
		if (checks & WEIR_WQ_PROTO && proto != want->proto_v4)
			return 0;
		if (checks & WEIR_WQ_SADDR && watch_differs(desk, at + 12, want->saddr, want->saddr_mask, 1))
			return 0;
		if (checks & WEIR_WQ_DADDR && watch_differs(desk, at + 16, want->daddr, want->daddr_mask, 1))
			return 0;
		at += (watch_be16(desk, at) >> 8 & 15) * 4;
	} else if (type == 0x86dd) {
		if (at + 40 > end)
			return 1;
		proto = watch_be16(desk, at + 6) >> 8;
		if (checks & WEIR_WQ_SADDR && watch_differs(desk, at + 8, want->saddr, want->saddr_mask, 4))
			return 0;
		if (checks & WEIR_WQ_DADDR && watch_differs(desk, at + 24, want->daddr, want->daddr_mask, 4))
			return 0;
		/* Extension headers are the reader's affair: only what cannot be one is looked at. */
		if (proto != 1 && proto != 6 && proto != 17 && proto != 58)
			return 1;
		if (checks & WEIR_WQ_PROTO && proto != want->proto_v6)
			return 0;
		at += 40;
	} else {
		/* No IP: then none of these is there. */
		return !(checks & ~(WEIR_WQ_IP4 | WEIR_WQ_IP6)) || type == 0x8100 || type == 0x88a8 || type == 0x9100;
	}
	if (!(checks & (WEIR_WQ_SPORT | WEIR_WQ_DPORT)))
		return 1;
	if (at + 4 > end)
		return 1;
	if (checks & WEIR_WQ_SPORT) {
		__u16 port = watch_be16(desk, at);

		if (port < want->sport[0] || port > want->sport[1])
			return 0;
	}
	if (checks & WEIR_WQ_DPORT) {
		__u16 port = watch_be16(desk, at + 2);

		if (port < want->dport[0] || port > want->dport[1])
			return 0;
	}
	return 1;
}

/* Decides about a packet that comes in (vid 0), or that comes back to an instance. */
static __always_inline void watch_begin(ctx_t *ctx, struct weir_chain *chain, __u32 vid)
{
	__u32 zero = 0;
	struct weir_watch_want *want = bpf_map_lookup_elem(&weir_watch_want, &zero);
	struct weir_watch_count *count = bpf_map_lookup_elem(&weir_watch_count, &zero);
	struct weir_watch_desk *desk = watch_desk();

	chain->watched = 0;
	chain->hops = 0;
	if (!want || !count || !desk || !want->session)
		return;
	if (bpf_ktime_get_coarse_ns() > want->until_ns)
		return;
	count->packets++;
	if (!(want->ports[(chain->port >> 6) & 3] >> (chain->port & 63) & 1))
		return;
	if (want->checks && !watch_may_match(ctx, chain, desk, want))
		return;
	if (want->sample > 1) {
		if (++count->turn < want->sample)
			return;
		count->turn = 0;
	}
	count->asked++;
	chain->watched = chain->number;
	desk->event.vid = vid;
	desk->event.out = 0;
	desk->event.verdict = XDP_PASS;
	desk->event.next_vid = 0;
	desk->event.next_slot = 0;
	desk->event.reason = WEIR_NO_REASON;
	watch_emit(ctx, chain, desk, WEIR_W_ENTRY);
}

/* What a function says beside that it lets the packet go on. */
static __always_inline void watch_says(struct weir_chain *chain, __u32 reason)
{
	struct weir_watch_desk *desk;

	if (!watch_is_on(chain))
		return;
	desk = watch_desk();
	if (desk)
		desk->event.reason = reason;
}

/* Instance `vid` lets the packet go on by output `out`. */
static __always_inline void watch_follow(struct weir_chain *chain, __u32 vid, __u32 out)
{
	struct weir_watch_desk *desk;

	if (!watch_is_on(chain))
		return;
	desk = watch_desk();
	if (!desk)
		return;
	desk->event.vid = vid;
	desk->event.out = out & (WEIR_OUTS - 1);
}

#ifndef WEIR_NETWORK
/* Before a packet goes to the program at `slot`. The entry has said its part already. */
static __always_inline void watch_step(ctx_t *ctx, __u32 vid, __u32 slot)
{
	struct weir_chain *chain = panel_chain();
	struct weir_watch_desk *desk;
	__u32 at;

	if (!chain || !watch_is_on(chain) || slot >= WEIR_SLOT_STACK)
		return;
	desk = watch_desk();
	if (!desk || !desk->event.vid)
		return;
	desk->event.verdict = WEIR_NEXT;
	desk->event.next_vid = vid;
	desk->event.next_slot = slot;
	watch_emit(ctx, chain, desk, WEIR_W_ON);
	at = chain->hops;
	if (at < WEIR_WATCH_PATH)
		desk->event.path[at] = desk->event.vid | desk->event.out << 11;
	chain->hops = at + 1;
}

#endif

static __always_inline void watch_over(ctx_t *ctx, struct weir_chain *chain, struct weir_watch_desk *desk, int verdict)
{
	__u32 kind = WEIR_W_END;

	if (verdict == XDP_DROP || verdict == XDP_ABORTED)
		kind |= WEIR_W_DROP;
	desk->event.verdict = verdict;
	watch_emit(ctx, chain, desk, kind);
}

#ifndef WEIR_NETWORK
/* After a packet left by a link, or found no program at `slot`: then it was said to go on, which is taken back. */
static __always_inline void watch_exit(ctx_t *ctx, __u32 vid, __u32 slot, int verdict)
{
	struct weir_chain *chain = panel_chain();
	struct weir_watch_desk *desk;

	if (!chain || !watch_is_on(chain))
		return;
	desk = watch_desk();
	if (!desk)
		return;
	if (desk->event.vid && slot < WEIR_SLOT_STACK && chain->hops)
		chain->hops--;
	desk->event.next_vid = vid;
	desk->event.next_slot = slot;
	if (verdict == XDP_DROP)
		desk->event.reason = slot == WEIR_SLOT_DROP ? WEIR_R_link_drop :
				     slot == WEIR_SLOT_DEVICE ? WEIR_R_redirect_failed : WEIR_R_missed_call;
	watch_over(ctx, chain, desk, verdict);
}

#endif

/* After instance `vid` ended the packet's way. */
static __always_inline void watch_end(ctx_t *ctx, struct weir_chain *chain, __u32 vid, int verdict, __u32 reason)
{
	struct weir_watch_desk *desk;

	if (!watch_is_on(chain))
		return;
	desk = watch_desk();
	if (!desk)
		return;
	desk->event.vid = vid;
	desk->event.out = 0;
	desk->event.next_vid = 0;
	desk->event.next_slot = 0;
	desk->event.reason = reason;
	watch_over(ctx, chain, desk, verdict);
}

#else

#define watch_begin(ctx, chain, vid)				do { } while (0)
#define watch_says(chain, reason)				((void)(reason))
#define watch_follow(chain, vid, out)				do { } while (0)
#define watch_step(ctx, vid, slot)				do { } while (0)
#define watch_exit(ctx, vid, slot, verdict)			do { } while (0)
#define watch_end(ctx, chain, vid, verdict, reason)		((void)(reason))

#endif

/* What somebody's object returned, as a function's reason. */
static __always_inline __u32 watch_code(__u32 code)
{
	return WEIR_WATCH_CODE | code;
}

#endif
