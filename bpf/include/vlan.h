/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * VLAN tags that rules put on and take off: docs/semantics.md section 4. Rules change a list. The frame changes once, when all else
 * is written, so that offsets are those of the packet as received.
 */
#ifndef WEIR_VLAN_H
#define WEIR_VLAN_H

/* Not inlined, for what marks.h says. */
static __noinline void change_tags(struct walk *w, struct weir_op *op)
{
	struct scratch *s = w->s;
	__u32 at;

	if (!s->tags_ready) {
		s->tags_ready = 1;
		s->tags_had = (s->base[WEIR_B_IP4] - MAC_BYTES - 2) / VLAN_BYTES;
		s->tags_off = 0;
		s->tags_on = 0;
	}
	at = s->tags_on;
	if (op->kind == WEIR_O_VLAN_PUSH) {
		if (s->tags_had - s->tags_off + at >= WEIR_VLAN_MAX) {
			note(w, WEIR_R_vlan_no_room);
			return;
		}
		opaque(at);
		at &= WEIR_VLAN_MAX - 1;
		s->tag_on[at] = op->off;
		s->tags_on = at + 1;
	} else if (at) {
		s->tags_on = at - 1;
	} else if (s->tags_off < s->tags_had) {
		s->tags_off++;
	} else {
		note(w, WEIR_R_vlan_absent);
	}
}

#ifdef WEIR_HOOK_TC

/*
 * The kernel keeps the outermost tag beside the packet. Of a tag in the packet whose type it does not know it says that it took it off: the
 * length tells. Returns 0 if all was done.
 */
static __always_inline int write_tags(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 i, want = ctx_len(w->ctx);

#pragma unroll
	for (i = 0; i < WEIR_VLAN_MAX; i++) {
		if (i < s->tags_off) {
			want -= VLAN_BYTES;
			if (bpf_skb_vlan_pop(w->ctx) || ctx_len(w->ctx) != want)
				return -1;
		}
	}
#pragma unroll
	for (i = 0; i < WEIR_VLAN_MAX; i++)
		if (i < s->tags_on && bpf_skb_vlan_push(w->ctx, bpf_htons(ETH_P_8021Q), s->tag_on[i]))
			return -1;
	return 0;
}

#else

/* Addresses and new tags stand in front of what stays. Returns 0 if all was done. */
static __always_inline int write_tags(struct walk *w)
{
	struct scratch *s = w->s;
	__u8 *head = (__u8 *)s->bytes;
	__u32 on = s->tags_on, len, i;
	int more = ((int)on - (int)s->tags_off) * VLAN_BYTES;

	if (more && ctx_grow_head(w->ctx, more))
		return -1;
	*(__u64 *)head = *(__u64 *)s->hdr;
	*(__u32 *)(head + 8) = *(__u32 *)(s->hdr + 8);
#pragma unroll
	for (i = 0; i < WEIR_VLAN_MAX; i++) {
		__u32 from = on - 1 - i;

		opaque(from);
		from &= WEIR_VLAN_MAX - 1;
		*(__be16 *)(head + MAC_BYTES + i * VLAN_BYTES) = bpf_htons(ETH_P_8021Q);
		*(__be16 *)(head + MAC_BYTES + i * VLAN_BYTES + 2) = bpf_htons(s->tag_on[from]);
	}
	len = MAC_BYTES + on * VLAN_BYTES;
	opaque(len);
	if (len > MAC_BYTES + WEIR_VLAN_MAX * VLAN_BYTES)
		return -1;
	return ctx_store(w->ctx, 0, head, len);
}

#endif

/* To be called when everything else is written. */
static __always_inline void finish_tags(struct walk *w)
{
	struct scratch *s = w->s;

	if (!s->tags_ready || (!s->tags_on && !s->tags_off))
		return;
	if (write_tags(w))
		note(w, WEIR_R_no_headroom);
	panel_resized(w->ctx);
}

#endif
