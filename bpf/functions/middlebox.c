// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * middlebox: matches every packet against all rules of a policy and rewrites
 * or drops it, and keeps connections if the policy has stateful rules. The semantics are those of docs/semantics.md.
 *
 * The control program fills the maps and sets the constants below before load,
 * one copy of the program for each port; copies share their maps.
 *
 * Hooks: xdp, tc, graph on tc, networks.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "abi/meter.h"

/* Load-time constants. Read by value: clang 14 folds a copy of a const volatile object to zeros. */
const volatile __u32 weir_port = 0;		/* weir's number of this port */
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
const volatile __u32 weir_mtu = 0;		/* largest L3 packet, 0: no limit */
const volatile __u32 weir_tables = 1;		/* at least 1: a loop of 0 turns its callback into dead code */
const volatile __u32 weir_cells_mask = 0;	/* cells of the index - 1 */
const volatile __u32 weir_dims = 0;		/* pieces of the key that decide which tables are probed */
const volatile __u8 weir_dim_half[WEIR_DIMS] = {};	/* which 16 bits of the key */
const volatile __u32 weir_dim_row[WEIR_DIMS] = {};	/* first bitmap of each */
const volatile __u32 weir_features = 0;		/* WEIR_F_* */
const volatile __u32 weir_replay = 0;		/* time, randomness, port and queue come from the replay map */
const volatile __u8 weir_slot_of[256] = {};	/* TCP option kind -> slot, WEIR_SLOTS and above: none */

#include "ctx.h"
#include "panel.h"
#include "stats.h"
#include "scratch.h"
#include "csum.h"
#include "finish.h"
#include "parse.h"
#include "plain.h"
#include "classify.h"
#include "flow.h"
#include "meter.h"
#include "count.h"
#include "marks.h"
#include "wall.h"
#include "vlan.h"
#include "rewrite.h"
#include "ttl.h"
#include "dynset.h"
#include "l4_check.h"
#include "open.h"
#include "translate.h"
#include "reject.h"

/* What does not depend on the packet's bytes. Returns PARSED or a reason. */
static __always_inline int begin(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 zero = 0, port, queue;

	/* A plain packet writes the words of its key itself. */
	if (may_be_plain()) {
		s->key[1] = 0;
		s->window = 0;
	} else {
		clear_words(s, 0, WEIR_K_SLOT / 8);
		if (weir_features & WEIR_F_SLOTS)
			clear_words(s, WEIR_K_SLOT / 8, WEIR_K_MAC / 8);
	}
	s->ip_payload = 0;
	s->ip_end = 0;
	s->l4_payload = 0;
	s->l4_payload_end = 0;
	s->opts = 0;
	s->opts_len = 0;
	s->l4_csum = 0;
	s->l4_proto = 0;
	s->pseudo_only = 0;
	*(__u64 *)&s->drop = 0;
	s->accept = 0;
	s->accept_icmp = 0;
	s->overflow = 0;
	s->n_hits = 0;
	s->now_ns = 0;
	s->flow = 0;
	if (weir_features & WEIR_F_STATE) {
		s->kind = 0;
		s->handled = 0;
		s->is_error = 0;
		s->may_open = 0;
		s->n_open = 0;
		s->drop_flow = 0;
		s->of_flow = 0;
		s->reopens = 0;
		s->self = 0;
		s->flow_now = 0;
		s->segment = 0;
		s->scale = 0;
		s->segment_count = 0;
		s->segment_life = 0;
		s->open_timeout = 0;
		s->frag_early = 0;
		s->open_flags = 0;
		s->mapped = 0;
		s->filtered = 0;
		s->by_mapping = 0;
	}
	s->frame_len = ctx_len(w->ctx);
	s->packets = ctx_segments(w->ctx);
	w->stats->received += s->packets;
	w->stats->bytes += s->frame_len;
	if (weir_replay) {
		struct weir_replay *given = bpf_map_lookup_elem(&replay, &zero);

		if (!given)
			return WEIR_R_internal;
		s->now_ns = given->now_ns;
		s->random = given->random;
		port = given->port;
		queue = given->queue;
#if defined(WEIR_PANEL) && defined(WEIR_HOOK_TC)
		port = ctx_port_in(w->ctx);
		key_set_be16(s, WEIR_K_OUT, ctx_port_out(w->ctx));
#endif
	} else {
		port = ctx_port_in(w->ctx);
		queue = ctx_queue(w->ctx);
		key_set_be16(s, WEIR_K_OUT, ctx_port_out(w->ctx));
	}
	if (s->frame_len < WEIR_FRAME_MIN)
		return WEIR_R_frame_short;
	if (s->frame_len > WEIR_FRAME_MAX + ctx_beside(w->ctx))
		return WEIR_R_frame_long;
	key_set_be16(s, WEIR_K_IN, port);
	key_set_be16(s, WEIR_K_QUEUE, queue);
	return PARSED;
}

/* Copies the beginning of the frame. Returns 0 if that fails, which no frame makes it do. */
static __always_inline int load_window(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 window = s->frame_len;

	if (window > WEIR_WINDOW)
		window = WEIR_WINDOW;
	opaque(window);
	window &= HDR_BYTES - 1;
	if (!window || ctx_load_head(w->ctx, s->hdr, window, HDR_BYTES))
		return 0;
	s->window = window;
	return 1;
}

/* The same of a packet that has none yet. Not inlined: the verifier would walk what follows twice. Ask has_window() behind it. */
static __noinline int need_window(struct walk *w)
{
	if (w && w->s && may_be_plain() && !w->s->window)
		load_window(w);
	return 0;
}

static __always_inline int has_window(struct scratch *s)
{
	return !may_be_plain() || s->window;
}

/* The header window, and what parse() finds in it. Returns PARSED or a reason. */
static __noinline int parse_window(struct walk *w)
{
	struct scratch *s;

	if (!w || !w->s || !w->stats)
		return WEIR_R_internal;
	s = w->s;

	if (may_be_plain()) {
		s->key[0] = 0;
		clear_words(s, 2, WEIR_K_SLOT / 8);
	}
	return load_window(w) ? parse(w) : WEIR_R_internal;
}

/* What rules do to a packet beside its headers and payload. Not inlined, and one place for all of it, for what marks.h says. */
static __noinline void change_frame(struct walk *w)
{
	if (weir_features & WEIR_F_META && w->s->n_hits)
		store_marks(w);
	if (weir_features & WEIR_F_VLAN && w->s->n_hits)
		finish_tags(w);
}

/* Changes a packet that passes: what its connection asks for, then what rules ask for. Returns PARSED or a reason. */
static __always_inline int edit(struct walk *w)
{
	struct scratch *s = w->s;
	int translates = weir_features & WEIR_F_TRANSLATE && s->flow && s->handled;
	int rewrites = weir_features & WEIR_F_REWRITE && s->n_hits;

	if (!translates && !rewrites)
		return PARSED;
	need_window(w);
	if (!has_window(s))
		return WEIR_R_internal;
	s->unfinished = is_unfinished(w);
	s->dirty = 0;
	if (weir_features & WEIR_F_TRANSLATE && translates)
		translate(w);
	if (weir_features & WEIR_F_REWRITE && rewrites)
		rewrite(w);
	write_back(w);
	if (weir_features & WEIR_F_OPTION_OPS)
		panel_resized(w->ctx);
	return PARSED;
}

#if defined(WEIR_HOLDS) || defined(WEIR_LEAVES)
/* Takes back what was counted of a packet that is judged elsewhere, or as another one. */
static __always_inline void uncount(struct walk *w)
{
	struct scratch *s = w->s;

	w->stats->received -= s->packets;
	w->stats->bytes -= s->wire_len;
	if (s->ip_end && s->ip_end < s->frame_len)
		w->stats->reason[WEIR_R_trailer] -= s->packets;
	if (s->key[0] & WEIR_V_UDP && !(s->key[WEIR_K_L4 / 8] >> 48))
		w->stats->reason[WEIR_R_udp_zero_checksum] -= s->packets;
}
#endif

#ifdef WEIR_HOLDS
#define is_judged_elsewhere(s)	(weir_only_fragments && !((s)->key[0] & WEIR_V_FRAG))
#elif defined(WEIR_LEAVES)
#define is_judged_elsewhere(s)	(weir_leaves_fragments && (s)->key[0] & WEIR_V_FRAG)
#else
#define is_judged_elsewhere(s)	0
#endif

/* Returns the verdict; `why` of a drop is its reason. */
static __always_inline int process(struct walk *w, __u32 *why)
{
	struct scratch *s = w->s;
	int reason = begin(w);

	if (reason == PARSED && !(may_be_plain() && plain(w)))
		reason = parse_window(w);
	if (reason != PARSED)
		goto drop;
	s->wire_len = s->frame_len + (s->packets - 1) * s->hdr_end;
	w->stats->bytes += s->wire_len - s->frame_len;
#ifdef WEIR_HOLDS
	if (can_hold() && s->key[0] & WEIR_V_FRAG_FIRST && becomes_held(w)) {
		uncount(w);
		return CTX_AGAIN;
	}
#endif
	find_live(s);
	if (weir_features & WEIR_F_STATE) {
		/* A function of one value, which is forgotten: a branch of its own would double what the verifier walks. */
		reason = forget(s, is_judged_elsewhere(s) ? JUDGED_ELSEWHERE : check_l4(w));
		if (reason == PARSED)
			reason = forget(s, find_connection(w));
#ifdef WEIR_HOLDS
		if (reason == WEIR_R_frag_before_first && s->frag_early && can_hold())
			reason = forget(s, hold_fragment(w));
#endif
		if (reason != PARSED)
			goto drop;
	}
	/* One branch for most policies: what is behind it costs them nothing else. */
	if (weir_features & (WEIR_F_MAC | WEIR_F_L4PROTO | WEIR_F_CT | WEIR_F_SETS | WEIR_F_META |
			     WEIR_F_CLOCK)) {
		extend_key(s);
		if (weir_features & WEIR_F_CT && weir_features & WEIR_F_STATE)
			key_set_be16(s, WEIR_K_CT, forget(s, ct_state(s)));
		if (weir_features & WEIR_F_META)
			load_marks(w);
		if (weir_features & WEIR_F_CLOCK)
			load_clock(w);
		if (weir_features & WEIR_F_SETS && weir_set_bits)
			look_up_sets(w);
	}
	classify(w);
	if (weir_features & WEIR_F_STATE && s->flow)
		match_flow_rules(w);
	else if (weir_features & (WEIR_F_MAPPING | WEIR_F_EXPECT) && lets_in(s))
		match_mapping_rules(w);
	if (s->overflow) {
		reason = s->overflow;
		goto drop;
	}
	if (weir_features & WEIR_F_STATE && s->n_open && (s->accept || !s->drop))
		reason = weir_features & WEIR_F_EXPECT && was_used(s) ? WEIR_R_flow_busy : open_connection(w);
	if (reason == PARSED && (s->drop || (weir_features & WEIR_F_STATE && s->drop_flow)) && !s->accept)
		reason = WEIR_R_rule_drop;
	if (weir_features & WEIR_F_STATE && reason == PARSED && !s->accept_icmp && needs_acceptance(s))
		reason = WEIR_R_icmp_not_accepted;
	if (weir_features & (WEIR_F_LOG | WEIR_F_EXPECT | WEIR_F_SETS)) {
		if (weir_features & WEIR_F_SETS && s->n_hits)
			change_sets(w);
		if (weir_features & WEIR_F_EXPECT && reason == PARSED && forget(s, is_request(w)))
			reason = forget(s, expect(w));
		s->verdict = reason == PARSED ? CTX_PASS : CTX_DROP;
		if (weir_features & WEIR_F_LOG && s->n_hits)
			log_hits(w);
	}
	if (reason != PARSED)
		goto drop;
	if (weir_features & WEIR_F_STATE)
		keep_state(w);
	/* Policies that change no packet return here, so that the verifier walks less. */
	if (!(weir_features & (WEIR_F_TRANSLATE | WEIR_F_REWRITE)))
		return CTX_PASS;
	reason = edit(w);
	if (reason == PARSED) {
		/* Here, and not where rules are carried out: there the verifier would walk a sixth more for policies without it. */
		if (weir_features & (WEIR_F_META | WEIR_F_VLAN))
			change_frame(w);
		return CTX_PASS;
	}
drop:
#if defined(WEIR_HOLDS) || defined(WEIR_LEAVES)
	if (reason == JUDGED_ELSEWHERE) {
		uncount(w);
		return CTX_UNJUDGED;
	}
#endif
	/* Unlikely, so that it lies out of the way of policies that have none of it. */
	if (__builtin_expect(weir_features & WEIR_F_REJECT && reason == WEIR_R_rule_drop && s->answers, 0)) {
		need_window(w);
		if (has_window(s) && reject(w) == XDP_TX)
			return XDP_TX;
	}
	note(w, reason);
	*why = reason;
	return CTX_DROP;
}

SEC(CTX_SECTION)
int middlebox(ctx_t *ctx)
{
	struct walk w = { .ctx = ctx };
	__u32 zero = 0, seen, level, *levels = bpf_map_lookup_elem(&depth, &zero);
	__u32 packets = ctx_segments(ctx), reason = WEIR_NO_REASON;
	int verdict = CTX_DROP;

#ifdef WEIR_HOLDS
	if (weir_only_fragments && is_surely_whole(ctx))
		return ctx_return(XDP_PASS);
#endif
	w.stats = bpf_map_lookup_elem(&stats, &zero);
	if (!w.stats || !levels)
		goto out;
	seen = *levels;
	level = seen & WEIR_DEPTH_MASK;
	w.s = bpf_map_lookup_elem(&scratch, &level);
	if (!w.s) {
		w.stats->received += packets;
		w.stats->bytes += ctx_len(ctx);
		w.stats->reason[WEIR_R_scratch_depth] += packets;
		reason = WEIR_R_scratch_depth;
		goto count;
	}
	w.s->level = level;
	*levels = seen + 1;
	verdict = process(&w, &reason);
	*levels = level ? seen : seen + WEIR_DEPTH_LEFT;
#if defined(WEIR_HOLDS) || defined(WEIR_LEAVES)
	if (verdict == CTX_UNJUDGED)
		return ctx_return(XDP_PASS);
#endif
#ifdef WEIR_HOLDS
	if (verdict == CTX_AGAIN)
		return bpf_redirect(ctx_word(ctx, ifindex), BPF_F_INGRESS);
#endif
count:
#if defined(WEIR_HOOK_TC) && !defined(WEIR_PANEL) && !defined(WEIR_NETWORK)
	if (weir_features & WEIR_F_REJECT && verdict == XDP_TX) {
		w.stats->verdict[XDP_TX] += packets;
		bpf_redirect(ctx_word(ctx, ifindex), 0);
		return TC_ACT_REDIRECT;
	}
#endif
	verdict = panel_leave(ctx, w.stats, packets, verdict, 0, reason);
	goto end;
out:
	verdict = ctx_return(verdict);
end:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
