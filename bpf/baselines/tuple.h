/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the baselines know of a packet: the five-tuple of untagged IPv4 TCP and
 * UDP without IPv4 options, which is all that their benchmarks send.
 */
#ifndef WEIR_BASELINE_TUPLE_H
#define WEIR_BASELINE_TUPLE_H

#define IP_AT		14
#define TCP_FLAGS_AT	(IP_AT + 20 + 13)

/* In network order. */
struct tuple {
	__be32 source;
	__be32 destination;
	__be16 sport;
	__be16 dport;
	__u8 protocol;
	__u8 pad[3];
};

/* Returns 0, or -1 for everything else. */
static __always_inline int read_tuple(struct xdp_md *ctx, struct tuple *t)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 *ip = data + IP_AT;

	if (data + IP_AT + 24 > end || data[12] != 0x08 || data[13] || ip[0] != 0x45)
		return -1;
	if (ip[9] != 6 && ip[9] != 17)
		return -1;
	t->source = *(__be32 *)(ip + 12);
	t->destination = *(__be32 *)(ip + 16);
	t->sport = *(__be16 *)(ip + 20);
	t->dport = *(__be16 *)(ip + 22);
	t->protocol = ip[9];
	t->pad[0] = t->pad[1] = t->pad[2] = 0;
	return 0;
}

/* The flags of what read_tuple() found to be TCP, else 0. */
static __always_inline __u32 tcp_flags(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + TCP_FLAGS_AT + 1 > end || data[IP_AT + 9] != 6)
		return 0;
	return data[TCP_FLAGS_AT];
}

#endif
