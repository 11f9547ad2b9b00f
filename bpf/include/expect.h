/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Connections that helpers expect: docs/semantics.md section 7, "Expectations"; docs/design/connection-helpers.md. An expectation is a
 * record of the table of connections whose tuple has no source port. open.h writes it; here is what it is read from, and who meets it.
 */
#ifndef WEIR_EXPECT_H
#define WEIR_EXPECT_H

#define TFTP_READ	1	/* opcodes of RFC 1350 section 5 and RFC 2347 */
#define TFTP_WRITE	2
#define TFTP_DATA	3
#define TFTP_OACK	6
#define TFTP_REQUEST_MIN 9	/* bytes of a request: opcode, one character, `mail`, two zeros */
#define TFTP_REQUEST_MAX 512
#define TFTP_ANSWER_MIN	4

/* The opcode of a UDP packet with a payload of `least` bytes or more, else 0. */
static __always_inline __u32 tftp_opcode(struct scratch *s, __u32 least)
{
	__u32 at = s->l4_payload;

	if (!(s->key[0] & WEIR_V_UDP) || at + least > s->l4_payload_end || at + TFTP_ANSWER_MIN > s->window)
		return 0;
	return hdr_be16(s, at);
}

/* Whether the packet at hand is a request that its connection's helper reads. */
static __always_inline int is_request(struct walk *w)
{
	struct scratch *s = w->s;
	__u32 opcode, end = s->l4_payload_end;
	__u8 *last = (__u8 *)s->bytes;

	if (!s->flow || !s->handled || s->is_error || !(s->f.what & WEIR_FLOW_HELPER_TFTP) || s->kind & 1 || s->key[0] & WEIR_V_FRAG)
		return 0;
	opcode = tftp_opcode(s, TFTP_REQUEST_MIN);
	if ((opcode != TFTP_READ && opcode != TFTP_WRITE) || end - s->l4_payload > TFTP_REQUEST_MAX)
		return 0;
	/* The last string is complete. */
	return !ctx_load(w->ctx, end - 1, last, 1) && !*last;
}

/* The expectation that the packet, which belongs to no connection, meets; leaves `want` as it is. */
__noinline int find_expectation(__u32 level)
{
	struct scratch *s = scratch_of(level);
	struct weir_flow *flow;
	__u32 at, i, opcode;
	__u64 life;

	if (!s)
		return 0;
	opcode = tftp_opcode(s, TFTP_ANSWER_MIN);
	if (opcode < TFTP_DATA || opcode > TFTP_OACK)
		return 0;
	s->open_tuple = s->want;
	s->want.sport = 0;
	s->want.what = WEIR_TUPLE_EXPECTED;
	locate(s);
	s->found = 0;
	if (!search_orig(s->level) || s->found_kind != WEIR_ORIG_DIRECT)
		goto out;
	at = s->found - 1;
	flow = bpf_map_lookup_elem(&flows, &at);
	if (!flow)
		goto out;
	life = life_of(flow);
	barrier();
	s->outer[0] = flow->trans.src[0];
	s->outer[1] = flow->trans.src[1];
	s->inner[0] = flow->trans.dst[0];
	s->inner[1] = flow->trans.dst[1];
	s->inner_port = flow->trans.dport;
	s->f.what = flow->what;
	s->f.rule = flow->rule;
#pragma unroll
	for (i = 0; i < WEIR_FLOW_RULES - 1; i++)
		s->f.more[i] = flow->more[i];
	barrier();
	if ((life & WEIR_LIFE_MASK) != WEIR_LIFE_LIVE || !SAME_LIFE(life, life_of(flow)) || !has_rules(s))
		goto out;
	s->expected = at + 1;
	s->by_mapping = BY_EXPECTATION;
	s->expected_life = life;
	/* Its rules are those of the expectation, and no others. */
	s->may_open = 0;
out:
	s->want = s->open_tuple;
	return 0;
}

/* Of a packet that belongs to no connection: the expectation or mapping that lets it in. */
static __always_inline void find_record(struct scratch *s)
{
	if (weir_features & WEIR_F_EXPECT)
		find_expectation(s->level);
	if (weir_features & WEIR_F_MAPPING && s->may_open && !ctx_transmits())
		find_mapping(s->level);
}

/* The expectation that the packet meets is used up. Returns 1 if another CPU did that before: the next packet is of that connection. */
static __always_inline int was_used(struct scratch *s)
{
	__u32 at = s->expected - 1;
	struct weir_flow *flow;
	__u64 life = s->expected_life;

	if (s->by_mapping != BY_EXPECTATION)
		return 0;
	flow = bpf_map_lookup_elem(&flows, &at);
	return !flow || __sync_val_compare_and_swap(&flow->life, life, (life & ~(__u64)WEIR_LIFE_MASK) | WEIR_LIFE_FREE) != life;
}

#endif
