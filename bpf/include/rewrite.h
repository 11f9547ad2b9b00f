/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The rewrites of all matching rules, in rule order: words of headers and
 * payload bytes at once, TCP options collected as a list and written last.
 * Headers change in the window in scratch and are written back once, up to hdr_end.
 * Follows docs/semantics.md sections 4 and 5.
 */
#ifndef WEIR_REWRITE_H
#define WEIR_REWRITE_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_op);
} ops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");

/* ---- checksums of the packet at hand ---- */

static __always_inline void update_l4(struct scratch *s, __u32 o, __u32 n, int pseudo)
{
	__u16 old, new;

	if (!s->l4_csum || o == n)
		return;
	if (s->pseudo_only && !pseudo)
		return;
	if (pseudo && s->key[0] & WEIR_V_ICMP)
		return;
	old = hdr_be16(s, s->l4_csum);
	if (s->unfinished) {
		if (!pseudo)
			return;
		new = csum_update_plain(old, o, n);
	} else {
		if (!old && s->key[0] & WEIR_V_UDP)
			return;
		new = csum_update(old, o, n);
		if (!new && (s->l4_proto == IPPROTO_UDP || s->l4_proto == IPPROTO_UDPLITE))
			new = 0xffff;
	}
	hdr_set_be16(s, s->l4_csum, new);
}

static __always_inline void update_ip4(struct scratch *s, __u32 o, __u32 n)
{
	__u32 at = s->base[WEIR_B_IP4] + 10;

	hdr_set_be16(s, at, csum_update(hdr_be16(s, at), o, n));
}

/* Sum of the pseudo-header, folded, of a packet with an IP payload of `len` bytes. */
static __always_inline __u32 pseudo_sum(struct scratch *s, __u32 len)
{
	__u64 sum = s->l4_proto + len;
	__u32 at, i;

	if (s->key[0] & WEIR_V_IP4) {
		at = s->base[WEIR_B_IP4] + 12;
		sum += csum_halves(hdr_be32(s, at));
		sum += csum_halves(hdr_be32(s, at + 4));
		return csum_fold(sum);
	}
	at = s->base[WEIR_B_IP6] + 8;
#pragma unroll
	for (i = 0; i < 8; i++)
		sum += csum_halves(hdr_be32(s, at + i * 4));
	return csum_fold(sum);
}

/* An unfinished packet carries the plain pseudo-header sum; DESIGN: one complete packet in 65,536 looks like it. */
static __always_inline int is_unfinished(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 have;

	if (!ctx_may_be_unfinished(w->ctx) || s->key[0] & WEIR_V_FRAG)
		return 0;
	if (!(s->key[0] & (WEIR_V_TCP | WEIR_V_UDP)))
		return 0;
	have = hdr_be16(s, s->l4_csum);
	if (!have && s->key[0] & WEIR_V_UDP)
		return 0;
	if (s->packets > 1)
		return 1;
	return have == pseudo_sum(s, s->ip_end - s->ip_payload) && ctx_is_unfinished(w->ctx, s->l4_csum);
}

/* ---- words and payloads ---- */

static __always_inline void write_word(struct scratch *s, struct weir_op *op)
{
	__u32 base = op->base, at, old, new, o, n, mask;

	opaque(base);
	at = s->base[base & 7] + op->off;
	old = *(__u32 *)hdr_at(s, at);
	new = (old & ~op->u.word.mask) | op->u.word.value;
	if (old == new)
		return;
	*(__u32 *)hdr_at(s, at) = new;
	s->dirty = 1;
	old = bpf_ntohl(old);
	new = bpf_ntohl(new);
	mask = op->u.word.ip_mask;
	if (mask) {
		o = csum_halves(old & mask);
		n = csum_halves(new & mask);
		update_ip4(s, o, n);
	}
	mask = op->u.word.l4_mask;
	if (!mask)
		return;
	if (op->flags & WEIR_OP_NEXT_HEADER) {
		/* Byte 6 of the IPv6 header is the low byte of its word in the pseudo-header. */
		if (s->key[0] & WEIR_V_EH)
			return;
		o = (old & mask) >> 8;
		n = (new & mask) >> 8;
	} else {
		o = csum_halves(old & mask);
		n = csum_halves(new & mask);
	}
	update_l4(s, o, n, op->flags & WEIR_OP_PSEUDO);
}

/* Adds one written payload byte to the sums, unless it is part of the checksum itself. */
static long sum_byte(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at = s->byte_at + i, shift, k = i;

	/* Bytes behind the UDP length are in no checksum. */
	if (at == s->l4_csum || at == s->l4_csum + 1 || at >= s->l4_payload_end)
		return 0;
	shift = (at - s->base[WEIR_B_L4]) & 1 ? 0 : 8;
	opaque(k);
	k &= WEIR_VALUE_MAX - 1;
	s->sum_old += (__u32)((__u8 *)s->bytes)[k] << shift;
	s->sum_new += (__u32)((__u8 *)s->bytes_new)[k] << shift;
	return 0;
}

/*
 * Writes payload bytes straight into the packet. An IP payload begins with the
 * L4 header, which lies in the window too: the window is written back first and
 * read again after.
 */
static __always_inline void write_payload(struct walk *w, struct weir_op *op)
{
	struct scratch *s = w->s;
	__u32 start, end, len = op->len, window = s->hdr_end, i;
	__u64 *value = (__u64 *)op->u.bytes;

	if (op->kind == WEIR_O_IP_PAYLOAD) {
		start = s->ip_payload;
		end = s->ip_end;
	} else {
		start = s->l4_payload;
		end = s->l4_payload_end;
	}
	start += op->off;
	if (start + len > end || start > CTX_REACH) {
		note(w, WEIR_R_payload_short);
		return;
	}
	opaque(len);
	if (len < 1 || len > WEIR_VALUE_MAX)
		return;
	opaque(window);
	window &= HDR_BYTES - 1;
	if (!window)
		return;
	if (s->dirty && ctx_store_head(w->ctx, s->hdr, window)) {
		note(w, WEIR_R_internal);
		return;
	}
	if (ctx_load(w->ctx, start, s->bytes, len)) {
		note(w, WEIR_R_internal);
		return;
	}
#pragma unroll
	for (i = 0; i < 8; i++)
		s->bytes_new[i] = value[i];
	if (ctx_store(w->ctx, start, s->bytes_new, len) || ctx_load_head(w->ctx, s->hdr, window, HDR_BYTES)) {
		note(w, WEIR_R_internal);
		return;
	}
	if (!s->l4_csum)
		return;
	s->sum_old = 0;
	s->sum_new = 0;
	s->byte_at = start;
	bpf_loop(len, sum_byte, w, 0);
	if (s->sum_old != s->sum_new) {
		update_l4(s, s->sum_old, s->sum_new, 0);
		s->dirty = 1;
	}
}

/* ---- TCP options ---- */

static __always_inline void copy_value(struct option *to, __u64 *from, __u32 len)
{
	__u32 i;

#pragma unroll
	for (i = 0; i < 5; i++)
		to->value[i] = from[i] & first_bytes(len - i * 8);
}

/*
 * Steps through opts_old, whose lengths parse() has checked: the offset of the option at walk (below 40), 40 after a NOP,
 * 41 at the end.
 */
static __always_inline __u32 received_option(struct scratch *s)
{
	__u8 *old = (__u8 *)s->opts_old;
	__u32 at = s->walk;

	if (at >= s->opts_len)
		return 41;
	opaque(at);
	at &= 63;
	if (at >= 40 || old[at] == 0)
		return 41;
	if (old[at] == 1) {
		s->walk++;
		return 40;
	}
	return at;
}

/* One option of opts_old to the list. */
static long list_option(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u8 *old = (__u8 *)s->opts_old;
	__u32 at = received_option(s), kind, len, n = s->n_options;
	struct option *option;

	if (at >= 40 || n >= WEIR_OPTS)
		return at != 40;
	kind = old[at];
	len = old[at + 1];
	if (len < 2)
		return 1;
	opaque(n);
	n &= 31;
	option = &s->options[n];
	option->kind = kind;
	option->len = len - 2;
	option->at = at;
	/* 40 bytes from an offset up to 42: opts_new follows opts_old, so this stays inside scratch. */
	copy_value(option, (__u64 *)(old + at + 2), len - 2);
	s->n_options = n + 1;
	s->options_used += len;
	s->walk += len;
	return 0;
}

/* Whether the options must keep their room, because bytes follow that may not move. */
static __always_inline int options_stay(struct scratch *s)
{
	return (s->unfinished || !CTX_HEAD_MOVES) && s->frame_len > s->l4_payload;
}

static __always_inline void list_options(struct walk *w)
{
	struct scratch *s = w->s;

	if (s->options_ready)
		return;
	s->options_ready = 1;
	s->n_options = 0;
	s->options_used = 0;
	s->walk = 0;
	bpf_loop(40, list_option, w, 0);
	s->options_room = 40;
	if (options_stay(s))
		s->options_room = s->opts_len;
}

/* Keeps option i unless its kind is in op_kinds; walk_n is where the next kept one goes. */
static long strip_option(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 to = s->walk_n, from = i, kind;

	if (i >= s->n_options)
		return 1;
	opaque(from);
	from &= 31;
	kind = s->options[from].kind;
	if (s->op_kinds[(kind >> 6) & 3] >> (kind & 63) & 1) {
		s->options_used -= s->options[from].len + 2;
		return 0;
	}
	opaque(to);
	to &= 31;
	if (to != from)
		s->options[to] = s->options[from];
	s->walk_n = to + 1;
	return 0;
}

/* Counts the options of op_kind and their length. */
static long measure_option(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at = i;

	if (i >= s->n_options)
		return 1;
	opaque(at);
	at &= 31;
	if (s->options[at].kind == s->op_kind) {
		s->op_count++;
		s->op_len += s->options[at].len;
	}
	return 0;
}

/* Gives the options of op_kind the value in bytes. */
static long set_option(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	struct option *option;
	__u32 at = i;

	if (i >= s->n_options)
		return 1;
	opaque(at);
	at &= 31;
	option = &s->options[at];
	if (option->kind == s->op_kind) {
		option->len = s->op_len;
		copy_value(option, s->bytes, s->op_len);
	}
	return 0;
}

static __always_inline void change_options(struct walk *w, struct weir_op *op)
{
	struct scratch *s = w->s;
	__u64 *value = (__u64 *)op->u.bytes;
	__u32 used, n, len = op->len, i;

	if (!s->opts)
		return;
	list_options(w);
	switch (op->kind) {
	case WEIR_O_STRIP:
#pragma unroll
		for (i = 0; i < 4; i++)
			s->op_kinds[i] = op->u.kinds[i];
		s->walk_n = 0;
		bpf_loop(WEIR_OPTS, strip_option, w, 0);
		s->n_options = s->walk_n;
		break;
	case WEIR_O_SET_OPTION:
		s->op_kind = op->option;
		s->op_count = 0;
		s->op_len = 0;
		bpf_loop(WEIR_OPTS, measure_option, w, 0);
		used = s->options_used - s->op_len + s->op_count * len;
		if (used > s->options_room && used > s->options_used) {
			note(w, WEIR_R_no_room);
			return;
		}
		s->options_used = used;
		s->op_len = len;
#pragma unroll
		for (i = 0; i < 5; i++)
			s->bytes[i] = value[i];
		bpf_loop(WEIR_OPTS, set_option, w, 0);
		break;
	case WEIR_O_ADD_OPTION:
		n = s->n_options;
		used = s->options_used + 2 + len;
		if (used > s->options_room || n >= WEIR_OPTS) {
			note(w, WEIR_R_no_room);
			return;
		}
		opaque(n);
		n &= 31;
		s->options[n].kind = op->option;
		s->options[n].len = len;
		copy_value(&s->options[n], value, len);
		s->n_options = n + 1;
		s->options_used = used;
		break;
	}
}

/* Compares option i of the list with the next one of opts_old. */
static long compare_option(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u8 *old = (__u8 *)s->opts_old;
	__u32 at = received_option(s), n = s->walk_n, kind, len, k;
	__u64 *have;

	if (at >= 40)
		return at != 40;
	kind = old[at];
	len = old[at + 1];
	if (n >= s->n_options || len < 2)
		goto differs;
	opaque(n);
	n &= 31;
	if (s->options[n].kind != kind || s->options[n].len != len - 2)
		goto differs;
	have = (__u64 *)(old + at + 2);
#pragma unroll
	for (k = 0; k < 5; k++)
		if ((have[k] & first_bytes(len - 2 - k * 8)) != s->options[n].value[k])
			s->value_differs = 1;
	s->options[n].at = at;
	s->walk_n = n + 1;
	s->walk += len;
	return 0;
differs:
	s->shape_differs = 1;
	return 1;
}

/* Writes option i to opts_new, at its old place or behind the one before. */
static long emit_option(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	struct option *option;
	__u32 from = i, at, k;
	__u64 *to, mask;

	if (i >= s->n_options)
		return 1;
	opaque(from);
	from &= 31;
	option = &s->options[from];
	at = s->shape_differs ? s->walk : option->at;
	opaque(at);
	at &= 63;
	if (at > 40)
		return 1;
	if (s->shape_differs) {
		s->opts_new[at] = option->kind;
		s->opts_new[at + 1] = option->len + 2;
	}
	to = (__u64 *)(s->opts_new + at + 2);
#pragma unroll
	for (k = 0; k < 5; k++) {
		mask = first_bytes(option->len - k * 8);
		to[k] = (to[k] & ~mask) | option->value[k];
	}
	s->walk = at + 2 + option->len;
	return 0;
}

/* Sum of the 40 option bytes in memory as 16-bit words; bytes behind the options are zero. */
static __always_inline __u32 options_sum(__u8 *at)
{
	__u32 i, sum = 0;

#pragma unroll
	for (i = 0; i < 10; i++)
		sum += csum_halves(bpf_ntohl(*(__u32 *)(at + i * 4)));
	return sum;
}

/* The length field of the IP header after the packet grew by `more`; with its checksum. */
static __always_inline void set_ip_len(struct scratch *s, int more)
{
	__u32 at, len, old;

	if (s->key[0] & WEIR_V_IP4) {
		at = s->base[WEIR_B_IP4] + 2;
		len = s->ip_end - s->base[WEIR_B_IP4] + more;
		old = hdr_be16(s, at);
		hdr_set_be16(s, at, len);
		update_ip4(s, old, len);
		return;
	}
	at = s->base[WEIR_B_IP6] + 4;
	hdr_set_be16(s, at, s->ip_end - s->base[WEIR_B_IP6] - 40 + more);
}

/* Writes the option list into the packet, if it changed. */
static __always_inline void finish_options(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 new_len, old_len = s->opts_len, sum_old, sum_new, plen, i, at;
	__u64 *from, *to;
	int more, in_place;

	if (!s->options_ready)
		return;
	s->shape_differs = 0;
	s->value_differs = 0;
	s->walk = 0;
	s->walk_n = 0;
	bpf_loop(40, compare_option, w, 0);
	if (s->walk_n != s->n_options)
		s->shape_differs = 1;
	if (!s->shape_differs && !s->value_differs)
		return;
	if (s->shape_differs && s->key[0] & WEIR_V_FRAG) {
		note(w, WEIR_R_frag_resize);
		return;
	}

	/* In place the bytes between options stay as they are by now; written anew they are zero. */
	to = (__u64 *)s->opts_new;
	from = (__u64 *)hdr_at(s, s->opts);
#pragma unroll
	for (i = 0; i < 5; i++)
		to[i] = from[i] & first_bytes(old_len - i * 8);
	sum_old = options_sum(s->opts_new);
	if (s->shape_differs) {
#pragma unroll
		for (i = 0; i < 6; i++)
			to[i] = 0;
	}
	s->walk = 0;
	bpf_loop(WEIR_OPTS, emit_option, w, 0);
	new_len = old_len;
	in_place = options_stay(s);
	if (s->shape_differs && !in_place)
		new_len = (s->options_used + 3) & ~3U;
	if (new_len > 40)
		return;
	more = (int)new_len - (int)old_len;
	plen = s->ip_end - s->ip_payload;
	if (more > 0) {
		__u32 l3 = s->ip_end - s->base[WEIR_B_IP4] + more;
		__u32 counted = s->key[0] & WEIR_V_IP6 ? l3 - 40 : l3;

		if ((weir_mtu && l3 > weir_mtu) || counted > 65535) {
			note(w, WEIR_R_too_big);
			return;
		}
	}
	if (more) {
		long failed;

		if (s->unfinished || !CTX_HEAD_MOVES)
			failed = ctx_grow_tail(w->ctx, more);
		else
			failed = ctx_grow_head(w->ctx, more);
		if (failed) {
			note(w, WEIR_R_no_headroom);
			return;
		}
	}

	/* Data offset, lengths and checksum follow. */
	at = s->base[WEIR_B_L4] + 12;
	sum_new = options_sum(s->opts_new);
	if (more) {
		__u32 word = hdr_be16(s, at), pseudo_old = plen, pseudo_new = plen + more;

		sum_old += word;
		word = (word & 0x0fff) | ((20 + new_len) / 4) << 12;
		hdr_set_be16(s, at, word);
		sum_new += word;
		if (s->unfinished) {
			update_l4(s, pseudo_old, pseudo_new, 1);
		} else {
			sum_old += pseudo_old;
			sum_new += pseudo_new;
		}
		set_ip_len(s, more);
	}
	update_l4(s, sum_old, sum_new, 0);
	from = (__u64 *)s->opts_new;
	to = (__u64 *)hdr_at(s, s->opts);
#pragma unroll
	for (i = 0; i < 5; i++)
		to[i] = from[i];
	s->hdr_end += more;
	s->dirty = 1;
}

/* ---- all rules ---- */

static __always_inline void choose(struct walk *w, struct weir_op *op);
static void change_other(struct walk *w, struct weir_op *op);

/* GCRA, as above_rate(), of a line of a log. Not inlined: it stands in a callback that all policies have. */
static __noinline int is_logged_enough(struct walk *w, struct weir_op *op)
{
	struct scratch *s = w->s;
	__u32 at = op->u.log.slot, i;
	__u64 *tat = bpf_map_lookup_elem(&rates, &at), t = now(s), old, base;

	if (!tat)
		return 1;
#pragma unroll
	for (i = 0; i < 4; i++) {
		old = *(volatile __u64 *)tat;
		base = old > t ? old : t;
		if (base - t > op->u.log.limit_ns)
			break;
		if (__sync_val_compare_and_swap(tat, old, base + op->u.log.period_ns) == old)
			return 0;
	}
	note(w, WEIR_R_log_limited);
	return 1;
}

static __always_inline void log_packet(struct walk *w, struct weir_op *op, __u32 rule)
{
	struct scratch *s = w->s;
	struct weir_event *event = &s->event;
	__u64 *from = (__u64 *)op->u.log.prefix, *to = (__u64 *)event->prefix;
	__u32 snap = s->frame_len, i;

	if (snap > WEIR_SNAP)
		snap = WEIR_SNAP;
	opaque(snap);
	if (snap < 1 || snap > WEIR_SNAP)
		return;
#pragma unroll
	for (i = 0; i < WEIR_SNAP / 8; i++)
		((__u64 *)event->data)[i] = 0;
	if (ctx_load_head(w->ctx, event->data, snap, WEIR_SNAP))
		return;
	event->now_ns = now(s);
	event->rule = rule;
	event->port = bpf_ntohs(*(__be16 *)((__u8 *)s->key + WEIR_K_IN));
	event->len = s->frame_len;
	event->verdict = s->verdict;
	event->snap = snap;
	event->pad = 0;
#pragma unroll
	for (i = 0; i < WEIR_PREFIX_MAX / 8; i++)
		to[i] = from[i];
	if (bpf_ringbuf_output(&events, event, sizeof(*event), 0))
		note(w, WEIR_R_log_lost);
}

static long apply_op(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at = s->op_first + i;
	struct weir_op *op = bpf_map_lookup_elem(&ops, &at);

	if (!op)
		return 1;
	if (s->mode == HITS_LOG) {
		if (op->kind == WEIR_O_LOG && !(weir_features & WEIR_F_LOG_LIMIT && op->flags & WEIR_OP_LIMITED && is_logged_enough(w, op)))
			log_packet(w, op, s->hit_last >> 32);
		return 0;
	}
	if (weir_features & WEIR_F_TRANSLATE && s->mode == HITS_CHOOSE) {
		if (op->kind == WEIR_O_MAP || op->kind == WEIR_O_SHUFFLE)
			choose(w, op);
		return 0;
	}
	switch (op->kind) {
	case WEIR_O_WORD:
		write_word(s, op);
		break;
	case WEIR_O_IP_PAYLOAD:
	case WEIR_O_L4_PAYLOAD:
		if (weir_features & WEIR_F_PAYLOAD_OPS)
			write_payload(w, op);
		break;
	case WEIR_O_VLAN_PUSH:
	case WEIR_O_VLAN_POP:
	case WEIR_O_TTL:
		if (weir_features & (WEIR_F_VLAN | WEIR_F_TTL))
			change_other(w, op);
		break;
	case WEIR_O_META:
		if (weir_features & WEIR_F_META)
			write_mark(s, op);
		break;
	case WEIR_O_STRIP:
	case WEIR_O_SET_OPTION:
	case WEIR_O_ADD_OPTION:
		if (weir_features & WEIR_F_OPTION_OPS)
			change_options(w, op);
		break;
	}
	return 0;
}

/* Keeps the lowest hit behind hit_last in hit_next. */
static long lowest_hit(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	__u32 at = i;

	opaque(at);
	at &= WEIR_HITS - 1;
	if (s->hits[at] > s->hit_last && s->hits[at] < s->hit_next)
		s->hit_next = s->hits[at];
	return 0;
}

static long apply_hit(__u32 i, void *arg)
{
	struct walk *w = arg;
	struct scratch *s = w->s;
	struct weir_rule *rule;
	__u32 at;

	s->hit_next = ~0ULL;
	bpf_loop(s->n_hits, lowest_hit, w, 0);
	s->hit_last = s->hit_next;
	at = s->hit_last;
	if (at & HIT_LOGS_ONLY && s->mode != HITS_LOG)
		return 0;
	at &= ~HIT_LOGS_ONLY;
	rule = bpf_map_lookup_elem(&rules, &at);
	if (!rule)
		return 1;
	s->op_first = rule->op_first;
	bpf_loop(rule->op_count, apply_op, w, 0);
	return 0;
}

/*
 * All hits in rule order. Not inlined: with two users clang would load the
 * callback's address ahead of the load-time branches around them, and the kernel refuses a program
 * whose callback is named but never called.
 */
static __noinline void apply_hits(struct walk *w)
{
	w->s->hit_last = 0;
	bpf_loop(w->s->n_hits, apply_hit, w, 0);
}

/* Log lines of all hits, on the packet as received. */
static __always_inline void log_hits(struct walk *w)
{
	w->s->mode = HITS_LOG;
	apply_hits(w);
}

/* Rewrites of all hits, in the window. */
static __always_inline void rewrite(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 i;

	s->options_ready = 0;
	s->tags_ready = 0;
	if (weir_features & WEIR_F_OPTION_OPS && s->opts) {
		__u64 *from = (__u64 *)hdr_at(s, s->opts);

#pragma unroll
		for (i = 0; i < 5; i++)
			s->opts_old[i] = from[i] & first_bytes(s->opts_len - i * 8);
	}
	s->mode = HITS_REWRITE;
	apply_hits(w);
	if (weir_features & WEIR_F_OPTION_OPS)
		finish_options(w);
}

/* The window goes back into the packet up to hdr_end, if anything in it changed. */
static __always_inline void write_back(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 window = s->hdr_end;

	if (!s->dirty)
		return;
	opaque(window);
	window &= HDR_BYTES - 1;
	if (!window || ctx_store_head(w->ctx, s->hdr, window))
		note(w, WEIR_R_internal);
}

#endif
