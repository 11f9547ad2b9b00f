/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Mark and priority of a packet: `mark`, `priority`. They are the socket buffer's, so only tc has them; a replay has both in its
 * map, on either hook. A graph hands marks of its functions over in the chain: until then the chain's counts.
 * Only policies that name them have any of this (WEIR_F_META). Not inlined: among the code of others it would change how the
 * verifier walks that, by half and more.
 */
#ifndef WEIR_MARKS_H
#define WEIR_MARKS_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_replay);
} replay SEC(".maps");

static __noinline void load_marks(struct walk *w)
{
	struct scratch *s = w->s;
	__u8 *key = (__u8 *)s->key;

	s->marks[WEIR_META_MARK] = 0;
	s->marks[WEIR_META_PRIORITY] = 0;
#if defined(WEIR_HOOK_TC) && defined(WEIR_PANEL)
	struct weir_chain *chain = panel_chain();

	s->marks[WEIR_META_MARK] = chain && chain->mark ? chain->mark : ctx_word(w->ctx, mark);
	s->marks[WEIR_META_PRIORITY] = ctx_word(w->ctx, priority);
#else
	if (weir_replay) {
		__u32 zero = 0;
		struct weir_replay *given = bpf_map_lookup_elem(&replay, &zero);

		if (given) {
			s->marks[WEIR_META_MARK] = given->mark;
			s->marks[WEIR_META_PRIORITY] = given->priority;
		}
	} else {
#ifdef WEIR_HOOK_TC
		s->marks[WEIR_META_MARK] = ctx_word(w->ctx, mark);
		s->marks[WEIR_META_PRIORITY] = ctx_word(w->ctx, priority);
#endif
	}
#endif
	*(__be32 *)(key + WEIR_K_MARK) = bpf_htonl(s->marks[WEIR_META_MARK]);
	*(__be32 *)(key + WEIR_K_PRIORITY) = bpf_htonl(s->marks[WEIR_META_PRIORITY]);
}

static __always_inline void write_mark(struct scratch *s, struct weir_op *op)
{
	__u32 at = op->base, mask = op->u.word.mask;

	opaque(at);
	at &= 1;
	s->marks[at] = (s->marks[at] & ~mask) | op->u.word.value;
}

/* What rules made of them goes back to where it was. */
static __always_inline void store_marks(struct walk *w)
{
	struct scratch *s = w->s;

#if defined(WEIR_HOOK_TC) && defined(WEIR_PANEL)
	struct weir_chain *chain = panel_chain();

	if (chain)
		chain->mark = s->marks[WEIR_META_MARK];
	w->ctx->mark = s->marks[WEIR_META_MARK];
	w->ctx->priority = s->marks[WEIR_META_PRIORITY];
#else
	if (weir_replay) {
		__u32 zero = 0;
		struct weir_replay *given = bpf_map_lookup_elem(&replay, &zero);

		if (given) {
			given->mark = s->marks[WEIR_META_MARK];
			given->priority = s->marks[WEIR_META_PRIORITY];
		}
	} else {
#ifdef WEIR_HOOK_TC
		w->ctx->mark = s->marks[WEIR_META_MARK];
		w->ctx->priority = s->marks[WEIR_META_PRIORITY];
#endif
	}
#endif
}

#endif
