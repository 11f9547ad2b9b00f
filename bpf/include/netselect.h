/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Selections of IP packets by protocol, addresses and ports: what passes a
 * chain, what goes to a helper. For programs with quick_parse.h that define has(f) as 1.
 */
#ifndef WEIR_NETSELECT_H
#define WEIR_NETSELECT_H

#define HEADS		128		/* bytes of a frame that headers nearly always fit into */
#define SELECTIONS_MAX	1024

const volatile __u32 net_half_selections = 1;

NET_ARRAY(net_selections, struct weir_net_selection);

/* A packet as selections see it: addresses as in packets. */
struct seen {
	struct weir_net_chain *chain;
	__u64 source[2], target[2];
	__u32 first;		/* of the run of selections */
	__u32 from, to;		/* ports */
	__u32 has_ports;
	__u32 protocol;
	__u32 selected;
};

static __always_inline int within(__u64 *address, __u64 *mask, __u64 *net)
{
	return (address[0] & mask[0]) == net[0] && (address[1] & mask[1]) == net[1];
}

static long compare(__u32 i, void *arg)
{
	struct seen *p = arg;
	struct weir_net_selection *s = net_at(net_selections, p->chain, p->first + i, net_half_selections);

	if (!s)
		return 1;
	if (s->protocol && s->protocol != p->protocol)
		return 0;
	if (!within(p->source, s->source_mask, s->source) || !within(p->target, s->target_mask, s->target))
		return 0;
	if (s->ports && (!p->has_ports || p->from < s->source_low || p->from > s->source_high || p->to < s->target_low ||
			 p->to > s->target_high))
		return 0;
	p->selected = 1;
	return 1;
}

/* The packet whose headers are `h`, which were read without a mistake. */
static __always_inline void net_seen(struct seen *p, struct head *h)
{
	p->protocol = h->kind & 255;
	p->has_ports = h->has_ports && (p->protocol == IPPROTO_TCP || p->protocol == IPPROTO_UDP || p->protocol == IPPROTO_SCTP);
	p->from = h->ports >> 16;
	p->to = h->ports & 0xffff;
	if (h->family == 4) {
		p->source[1] = NET_MAPPED(bpf_htonl((__u32)h->src_low));
		p->target[1] = NET_MAPPED(bpf_htonl((__u32)h->dst_low));
	} else {
		p->source[0] = bpf_cpu_to_be64(h->src_high);
		p->source[1] = bpf_cpu_to_be64(h->src_low);
		p->target[0] = bpf_cpu_to_be64(h->dst_high);
		p->target[1] = bpf_cpu_to_be64(h->dst_low);
	}
}

/* Whether it is of a run of selections; no run: it is. */
static __always_inline __u32 net_seen_in(struct seen *p, struct weir_net_chain *chain, __u32 first, __u32 count)
{
	if (!count)
		return 1;
	p->chain = chain;
	p->first = first;
	bpf_loop(count & (SELECTIONS_MAX - 1), compare, p, 0);
	return p->selected;
}

static __always_inline __u32 net_selected(struct weir_net_chain *chain, struct head *h, __u32 first, __u32 count)
{
	struct seen p = {};

	net_seen(&p, h);
	return net_seen_in(&p, chain, first, count);
}

#endif
