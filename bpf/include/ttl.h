/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * TTL and hop limit that rules decrement: docs/semantics.md sections 3 and 4. A packet that came with 1 is dropped
 * before a connection opens or anything is written. It takes the exit of match_overflow: a check and an exit of its
 * own cost policies without it up to 65 % more verified instructions.
 */
#ifndef WEIR_TTL_H
#define WEIR_TTL_H

/* Where the TTL or hop limit of the packet lies, from the start of its IP header. */
#define TTL_AT		8
#define HOP_LIMIT_AT	7

/* Decrements it in the window, unless rewriting left 1 or less. */
static __always_inline void decrement_ttl(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 at, old;

	if (s->key[0] & WEIR_V_IP4) {
		at = s->base[WEIR_B_IP4] + TTL_AT;
		old = hdr_be16(s, at);
		if (old >> 8 < 2)
			return;
		hdr_set_be16(s, at, old - 0x100);
		update_ip4(s, old, old - 0x100);
	} else if (s->key[0] & WEIR_V_IP6) {
		at = s->base[WEIR_B_IP6] + HOP_LIMIT_AT;
		old = *hdr_at(s, at);
		if (old < 2)
			return;
		*hdr_at(s, at) = old - 1;
	} else {
		return;
	}
	s->dirty = 1;
}

/* Tags and the TTL: one case of the switch, and not inlined, for what marks.h says. */
static __noinline void change_other(struct walk *w, struct weir_op *op)
{
	if (weir_features & WEIR_F_TTL && op->kind == WEIR_O_TTL)
		decrement_ttl(w);
	else if (weir_features & WEIR_F_VLAN)
		change_tags(w, op);
}

/* A matching rule decrements the TTL: one that came with 1 ends the packet. Not inlined, for what marks.h says. */
static __noinline void find_expired(struct scratch *s, __u32 index)
{
	__u8 *key = (__u8 *)s->key;
	__u32 left;

	if (index & HIT_LOGS_ONLY || s->overflow)
		return;
	if (s->key[0] & WEIR_V_IP4)
		left = key[WEIR_K_IP4 + TTL_AT];
	else if (s->key[0] & WEIR_V_IP6)
		left = key[WEIR_K_IP6 + HOP_LIMIT_AT];
	else
		return;
	if (left < 2)
		s->overflow = WEIR_R_ttl_expired;
}

#endif
