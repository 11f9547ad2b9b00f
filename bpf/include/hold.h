/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Later fragments that come before their first one, on the receive side of tc: held in a map until the first one passes, then
 * received again behind it. A program cannot send a packet of its own making, so a copy of the first fragment carries each held
 * one: it is sent to the device's receive path, and takes on the held bytes when it comes by. docs/design/fragments.md
 *
 * XDP cannot send copies. There a copy of the program on tc judges all fragments of the port, and nothing else: the two agree on what a
 * fragment is, whatever the rules say, so that each packet is judged once.
 */
#ifndef WEIR_HOLD_H
#define WEIR_HOLD_H

const volatile __u32 weir_hold_buckets = 0;	/* of WEIR_HELD_WAYS; 0: nothing is held */

#if !defined(WEIR_NETWORK) && !defined(WEIR_PANEL)
#ifdef WEIR_HOOK_TC
const volatile __u32 weir_only_fragments = 0;	/* all other packets were judged on XDP */
#else
#define WEIR_LEAVES
const volatile __u32 weir_leaves_fragments = 0;	/* a copy on tc judges them */
#endif
#endif

#define JUDGED_ELSEWHERE	-2		/* beside PARSED: the copy of the program on the other hook judges the packet */
#define CTX_UNJUDGED		(XDP_REDIRECT + 1)	/* the verdict about it: none of those that packets have */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_held);
} held SEC(".maps");

#if defined(WEIR_HOOK_TC) && !defined(WEIR_NETWORK) && !defined(WEIR_PANEL)
#define WEIR_HOLDS

#define CTX_AGAIN	(XDP_REDIRECT + 2)	/* the packet enters the device once more, as another one */

#define ETH_P_ARP	0x0806

/* Packets that are surely no fragments, without their headers being walked. Of IPv6, only those without extension headers. */
static __always_inline int is_surely_whole(ctx_t *ctx)
{
	__u32 proto = ctx_word(ctx, protocol);
	__be16 frag;
	__u8 next;

	if (proto == bpf_htons(ETH_P_ARP))
		return 1;
	if (proto == bpf_htons(ETH_P_IP))
		return !bpf_skb_load_bytes_relative(ctx, 6, &frag, sizeof(frag), BPF_HDR_START_NET) && !(frag & bpf_htons(0x3fff));
	return proto == bpf_htons(ETH_P_IPV6) && !bpf_skb_load_bytes_relative(ctx, 6, &next, sizeof(next), BPF_HDR_START_NET) &&
	       (next == IPPROTO_TCP || next == IPPROTO_UDP || next == IPPROTO_ICMPV6);
}

static __always_inline int can_hold(void)
{
	return weir_features & WEIR_F_STATE && weir_hold_buckets && !weir_replay && !ctx_transmits();
}

/* The k-th place for fragments of the packet's datagram, whose key is in scratch. */
static __always_inline struct weir_held *held_at(struct scratch *s, __u32 k)
{
	__u32 at = spread(s->frag_hash, weir_hold_buckets) * WEIR_HELD_WAYS + k;

	return bpf_map_lookup_elem(&held, &at);
}

static __always_inline int held_changes(struct weir_held *h, __u32 from, __u32 to)
{
	return __sync_val_compare_and_swap(&h->state, from, to) == from;
}

/*
 * A fragment waits. The first one may have been remembered since it was looked for, by another CPU that found nothing to call:
 * then the packet is taken back, and goes on. Each side writes, passes a full barrier and looks at what the other writes, so that
 * one of them sees the other.
 */
static __always_inline int waits(struct walk *w, struct weir_held *h)
{
	int reason;

	if (!held_changes(h, WEIR_HELD_WRITING, WEIR_HELD_WAITS))
		return WEIR_R_internal;
	reason = recall_fragment(w->s->level);
	if (reason == WEIR_R_frag_before_first)
		return WEIR_R_frag_held;
	return held_changes(h, WEIR_HELD_WAITS, WEIR_HELD_FREE) ? reason : WEIR_R_frag_held;
}

/* Keeps a later fragment. Returns the reason why it ends here, or PARSED. */
static __noinline int hold_fragment(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 len = ctx_word(w->ctx, len), k, state;
	struct weir_held *h;

	if (!len || len > WEIR_HELD_BYTES)
		return WEIR_R_frag_before_first;
	for (k = 0; k < WEIR_HELD_WAYS; k++) {
		h = held_at(s, k);
		if (!h)
			return WEIR_R_internal;
		state = *(volatile __u32 *)&h->state;
		if (state == WEIR_HELD_WRITING || (state != WEIR_HELD_FREE && !older_than(s, h->key.at_ns, weir_timeout[FRAGMENT])))
			continue;
		if (!held_changes(h, state, WEIR_HELD_WRITING))
			continue;
		h->key = s->frag;
		h->key.at_ns = flow_now(s);
		at_most(len, WEIR_HELD_BYTES);
		at_least_one(len);
		h->len = len;
		if (!bpf_skb_load_bytes(w->ctx, 0, h->data, len))
			return waits(w, h);
		held_changes(h, WEIR_HELD_WRITING, WEIR_HELD_FREE);
		return WEIR_R_frag_before_first;
	}
	return WEIR_R_frag_before_first;
}

/* A first fragment passes: sends a copy of it to the device for each fragment that waits for it. */
static __noinline int release_fragments(struct walk *w)
{
	struct scratch *s = w->s;
	struct weir_held *h;
	__u32 k;

	for (k = 0; k < WEIR_HELD_WAYS; k++) {
		h = held_at(s, k);
		if (!h)
			return 0;
		if (*(volatile __u32 *)&h->state != WEIR_HELD_WAITS || !same_fragment(&h->key, &s->frag) ||
		    older_than(s, h->key.at_ns, weir_timeout[FRAGMENT]))
			continue;
		if (held_changes(h, WEIR_HELD_WAITS, WEIR_HELD_CALLED))
			bpf_clone_redirect(w->ctx, ctx_word(w->ctx, ifindex), BPF_F_INGRESS);
	}
	return 0;
}

/* Whether the packet is such a copy: then it is the held fragment from here on. */
static __noinline int becomes_held(struct walk *w)
{
	struct scratch *s = w->s;
	struct weir_held *h;
	__u32 k, len;
	int done;

	fragment_key(s);
	for (k = 0; k < WEIR_HELD_WAYS; k++) {
		h = held_at(s, k);
		if (!h)
			return 0;
		if (*(volatile __u32 *)&h->state != WEIR_HELD_CALLED || !same_fragment(&h->key, &s->frag) ||
		    !held_changes(h, WEIR_HELD_CALLED, WEIR_HELD_WRITING))
			continue;
		len = h->len;
		at_most(len, WEIR_HELD_BYTES);
		at_least_one(len);
		done = !bpf_skb_change_tail(w->ctx, len, 0) &&
		       !bpf_skb_store_bytes(w->ctx, 0, h->data, len, BPF_F_RECOMPUTE_CSUM);
		barrier();
		*(volatile __u32 *)&h->state = WEIR_HELD_FREE;
		return done;
	}
	return 0;
}

#endif
#endif
