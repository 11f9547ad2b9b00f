// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * balancer: spreads the flows to virtual services over servers, and keeps each flow
 * on its server. docs/balancer.md says what keys mean, docs/design/balancer.md why it is done like this.
 *
 * What is not for a service goes on by the default output. A packet that has a server leaves from here: by the
 * device it came in by, another port, or a CPU of this host; or, without a next hop of its own, by the default output, too.
 *
 * In virtual networks there is NAT alone, and every packet goes on by the other interface, to a router that knows the way: the host's tables
 * are none of a tenant's affair.
 *
 * Hooks: xdp, networks.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
const volatile __u32 weir_mtu = 0;
const volatile __u32 weir_replay = 0;		/* time comes from the replay map */
const volatile __u32 weir_lb_features = 0;	/* WEIR_LB_F_* */
const volatile __u32 weir_lb_never = 0;		/* always 0 */
const volatile __u64 weir_error_interval_ns = 1000000;	/* of ICMP errors */
const volatile __u64 weir_error_burst_ns = 50000000;

#define lb_has(f)	(weir_lb_features & (f))

/* All that quick_parse.h may read is asked for. */
#define has(f)		1
#define WEIR_FILTER_LEAN	1
#define WEIR_FIND_FRAGMENTS	1

#include "ctx.h"
#include "csum.h"
#include "finish.h"
#include "panel.h"
#include "stats.h"
#include "quick_parse.h"
#include "services.h"
#include "sticky.h"
#include "encap.h"
#include "nat.h"
#include "clock.h"
#ifndef WEIR_NETWORK
#include "near.h"
#endif
#include "icmp_error.h"

#define IPPROTO_ICMP	1
#define IPPROTO_ICMP6	58
#define ICMP_ECHO	8
#define ICMP_QUENCH	4
#define ICMP_PARAMETER	12
#define ICMP6_ECHO	128
#define ICMP6_REPLY	129
#define ICMP6_PARAMETER	4

/* Beside the codes of quick_parse(). */
#define LB_NEXT		QUICK_OK	/* goes on by the default output */
#define LB_SENT		-3		/* redirected */
#define LB_OUT		-4		/* leaves by port w->out, 0: by that it came in by */

struct ring_chunk {
	__u16 server[WEIR_LB_CHUNK];
};

/* Of all services, one behind the other: numbers of servers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ring_chunk);
} ring SEC(".maps");

/* By number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_lb_server);
} servers SEC(".maps");

/* QUIC: identity of the service << 32 | server id -> number of the server. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} quic_ids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_lb_count);
} service_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_lb_count);
} server_counts SEC(".maps");

/* Who the services are: written and read by user space alone. By number, the identity. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} service_names SEC(".maps");

/* Who does not answer: written and read by user space alone. By number of a server, its identity; 0: it answers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} health SEC(".maps");

#ifndef WEIR_NETWORK
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);	/* struct bpf_cpumap_val: size of the queue, no program */
} cpus SEC(".maps");

/* By number of a server: how to get there, where the configuration does not say. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_near);
} nears SEC(".maps");
#endif

/* When the next ICMP error is due. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} errors_due SEC(".maps");

/* The error that is being made: the stack has no room for it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct icmp_error);
} answers SEC(".maps");

/* No address of it goes to a call, so that it can live in registers. */
struct work {
	ctx_t *ctx;
	struct weir_stats *stats;
	struct panel p;
	struct head h;
	struct weir_lb_service *service;
	struct weir_lb_server *server;
	struct weir_near *near;	/* of the server */
	__u64 hash;		/* of the flow */
	__u32 packets;		/* on the wire */
	__u32 bytes;		/* ... of them */
	__u32 number;		/* of the server */
	__u32 now;		/* units of WEIR_LB_TIME */
	__u32 protocol;
	__u32 opens;		/* TCP SYN */
	__u32 ends;		/* TCP FIN or RST */
	__u32 quote;		/* an ICMP error: where the quoted packet is; remembers nothing */
	__u32 out;
};

/* Names the maps that only user space looks into. No instruction of it is left after loading. */
static __always_inline void keep(void)
{
	__u32 zero = 0;

	if (weir_lb_never) {
		bpf_map_lookup_elem(&service_names, &zero);
		bpf_map_lookup_elem(&health, &zero);
	}
}

/* Whether a server is one of the service and may have the packet. */
static __always_inline int takes(struct work *w, struct weir_lb_server *server, int is_new)
{
	if (server->service != w->service->identity)
		return 0;
	return server->state == WEIR_LB_UP || (server->state == WEIR_LB_DRAIN && !is_new);
}

/* The server that the ring gives to a flow. Returns QUICK_OK or a reason. */
static __always_inline int ask_ring(struct work *w)
{
	__u32 place, element;
	struct ring_chunk *chunk;

	if (!w->service->ring_size)
		return WEIR_R_no_server;
	place = w->service->ring_first + (__u32)((w->hash >> 32) * w->service->ring_size >> 32);
	element = place / WEIR_LB_CHUNK;
	chunk = bpf_map_lookup_elem(&ring, &element);
	if (!chunk)
		return WEIR_R_internal;
	opaque(place);
	place &= WEIR_LB_CHUNK - 1;
	w->number = chunk->server[place];
	w->server = bpf_map_lookup_elem(&servers, &w->number);
	if (!w->server || !takes(w, w->server, 1))
		return WEIR_R_no_server;
	return QUICK_OK;
}

/* The state of a flow after this packet. */
static __always_inline __u32 moves_to(struct work *w, __u32 state)
{
	if (w->protocol == IPPROTO_UDP)
		return WEIR_LB_UDP;
	if (w->ends)
		return WEIR_LB_CLOSING;
	if (w->opens)
		return state == WEIR_LB_TCP ? WEIR_LB_TCP : WEIR_LB_NEW;
	return state == WEIR_LB_CLOSING ? WEIR_LB_CLOSING : WEIR_LB_TCP;
}

static __always_inline void count(void *map, __u32 number, __u32 packets, __u32 bytes)
{
	struct weir_lb_count *here = bpf_map_lookup_elem(map, &number);

	if (!here)
		return;
	here->packets += packets;
	here->bytes += bytes;
}

static __always_inline void count_flow(void *map, __u32 number)
{
	struct weir_lb_count *here = bpf_map_lookup_elem(map, &number);

	if (here)
		here->flows++;
}

/* What is on the wire: the headers of a packet that is cut later count once for each piece. */
static __always_inline void measure(struct work *w)
{
	__u32 off = w->h.l4, head = 8;
	__u8 *data, *end, *p;

	w->bytes = w->p.len;
	if (w->packets == 1 || !off)
		return;
	data = packet_word(w->ctx, data);
	end = packet_word(w->ctx, data_end);
	opaque(off);
	off &= 511;
	p = data + off;
	if ((w->h.kind & 255) == IPPROTO_TCP && p + 20 <= end)
		head = (p[12] >> 4) * 4;
	head = (w->packets - 1) * (off + head);
	w->bytes += head;
	w->stats->bytes += head;
}

/*
 * QUIC: the server whose id stands in the connection id; 0 if there is none. docs/balancer.md has the layout. Ids that clients chose
 * (packets Initial and 0-RTT) are none.
 */
static __always_inline int by_connection_id(struct work *w)
{
	__u8 *data = packet_word(w->ctx, data), *end = packet_word(w->ctx, data_end), *p, *id;
	__u32 off = w->h.l4, version, type, length = 255, bytes = w->service->id_bytes, value, *number;
	__u64 key;

	opaque(off);
	off &= 511;
	p = data + off + 8;
	if (p + 7 > end)
		return 0;
	id = p + 1;
	if (p[0] & 0x80) {
		version = be32_at(p + 1);
		type = p[0] >> 4 & 3;
		if (version == 0x6b3343cf)	/* version 2 counts types from another one on */
			type = (type + 3) & 3;
		else if (version != 1)
			return 0;
		if (type < 2)
			return 0;
		length = p[5];
		id = p + 6;
	} else if (!(p[0] & 0x40)) {
		return 0;
	}
	if (id + 5 > end || length < 1 + bytes || id[0] >> 5 == 7)
		return 0;
	value = be32_at(id + 1);
	if (bytes < 4)
		value >>= 32 - 8 * (bytes & 3);
	key = (__u64)w->service->identity << 32 | value;
	number = bpf_map_lookup_elem(&quic_ids, &key);
	if (!number)
		return 0;
	w->number = *number;
	w->server = bpf_map_lookup_elem(&servers, &w->number);
	return w->server && takes(w, w->server, 0);
}

/*
 * Asks for the memory in which the flow may be remembered, which lies in no cache where there are many: it is on its way while the service is
 * looked for.
 */
static __always_inline void touch_bucket(struct work *w)
{
	__u32 at = (__u32)sticky_key(w->hash) & weir_lb_flow_mask;
	struct weir_lb_bucket *bucket = bpf_map_lookup_elem(&flows, &at);
	__u64 unused;

	if (bucket)
		asm volatile("%0 = *(u64 *)(%1 + 0)" : "=r"(unused) : "r"(bucket));
}

/* Gives the flow its server: the one it has, or the one of the ring. Returns QUICK_OK or a reason. */
static __always_inline int choose(struct work *w)
{
	__u64 key = sticky_key(w->hash), e, changed;
	__u32 at = (__u32)key & weir_lb_flow_mask, way, number = at;
	struct weir_lb_bucket *bucket;
	int reason;

	if (lb_has(WEIR_LB_F_QUIC) && w->service->flags & WEIR_LB_S_QUIC && !w->quote && by_connection_id(w)) {
		if (lb_has(WEIR_LB_F_NAT) && w->server->mode == WEIR_LB_NAT &&
		    !sticky_follow(w->hash, w->number, w->now, w->h.zero))
			w->stats->reason[WEIR_R_flows_crowded]++;
		return QUICK_OK;
	}
	bucket = bpf_map_lookup_elem(&flows, &at);
	if (!bucket)
		return WEIR_R_internal;
	way = sticky_find(bucket, key, w->h.zero);
	if (way < WEIR_LB_WAYS) {
		opaque(way);
		way &= WEIR_LB_WAYS - 1;
		e = bucket->entry[way];
		w->number = sticky_server(e);
		w->server = bpf_map_lookup_elem(&servers, &w->number);
		if (w->server && takes(w, w->server, w->opens)) {
			changed = sticky_entry(key, moves_to(w, sticky_state(e)), w->number, w->now);
			if (changed != e && !w->quote)
				bucket->entry[way] = changed;
			return QUICK_OK;
		}
		/* Its server is gone: forgotten, and chosen anew. */
		if (!w->quote)
			bucket->entry[way] = 0;
	}
	reason = ask_ring(w);
	if (reason != QUICK_OK || w->quote)
		return reason;
	count_flow(&service_counts, w->service->number);
	count_flow(&server_counts, w->number);
	if (w->ends)
		return QUICK_OK;
	if (!sticky_put(number, sticky_entry(key, WEIR_LB_NEW, w->number, w->now), w->now, 0, w->h.zero))
		w->stats->reason[WEIR_R_flows_crowded]++;
	return QUICK_OK;
}

/* ---- fragments ---- */

/* What tells the fragments of a datagram from others, or 0. */
static __always_inline __u64 fragment_key(struct work *w)
{
	__u8 *data = packet_word(w->ctx, data), *end = packet_word(w->ctx, data_end), *p;
	__u32 off = w->h.family == 4 ? w->h.l3 : w->h.frag, id, proto = 0;

	opaque(off);
	off &= 511;
	p = data + off;
	if (p + 8 > end)
		return 0;
	id = be32_at(p + 4);
	if (w->h.family == 4) {
		id >>= 16;
		/* In IPv6 it is that of the header behind, which differs where extension headers are fragmented, too. */
		proto = w->h.kind & 255;
	}
	return sticky_key(~sticky_hash(w->h.src_high, w->h.src_low, w->h.dst_high, w->h.dst_low, (__u64)proto << 32 | id));
}

/* A first fragment: those behind it follow. */
static __always_inline void remember_fragment(struct work *w, __u32 state, __u32 number)
{
	__u64 key = fragment_key(w);

	if (key)
		sticky_put((__u32)key & weir_lb_fragment_mask, sticky_entry(key, state, number, w->now), w->now, 1, w->h.zero);
}

/* State of the datagram that a later fragment is of, 0: its first fragment was not seen. Its server is known then. */
static __always_inline __u32 recall_fragment(struct work *w)
{
	__u64 key = fragment_key(w), e;
	__u32 at = (__u32)key & weir_lb_fragment_mask, way;
	struct weir_lb_bucket *bucket;

	if (!key)
		return 0;
	bucket = bpf_map_lookup_elem(&fragments, &at);
	if (!bucket)
		return 0;
	way = sticky_find(bucket, key, w->h.zero);
	if (way >= WEIR_LB_WAYS)
		return 0;
	opaque(way);
	way &= WEIR_LB_WAYS - 1;
	e = bucket->entry[way];
	if (((w->now - (__u32)e) & 0xffff) > weir_lb_idle[WEIR_LB_TOWARDS])
		return 0;
	w->number = sticky_server(e);
	w->server = bpf_map_lookup_elem(&servers, &w->number);
	if (!w->server || w->server->state == WEIR_LB_NONE || w->server->state == WEIR_LB_GONE)
		return 0;
	return sticky_state(e);
}

/* ---- away ---- */

#ifdef WEIR_NETWORK

static __always_inline struct weir_near *resolve(struct work *w)
{
	return 0;
}

#else

/* Asks the kernel for the way to a server. Not inlined: it is seldom asked, and its stack is its own. */
static __noinline int ask_kernel(ctx_t *ctx, struct weir_near *near, struct weir_lb_server *server, __u32 time)
{
	struct weir_fib fib = {};

	fib.family = server->family == 6 ? AF_INET6 : AF_INET;
	__builtin_memcpy(fib.dst, server->address, 16);
	fib.ifindex = ctx_word(ctx, ingress_ifindex);
	return near_ask(ctx, near, &fib, 0, time);
}

/* The way to a server that the configuration does not say, from the kernel's tables; 0: the default output. */
static __always_inline struct weir_near *resolve(struct work *w)
{
	struct weir_near *near = bpf_map_lookup_elem(&nears, &w->number);
	__u32 time = near_time();

	if (!near || weir_replay)
		return 0;
	if (near_holds(near, time))
		return near;
	if (near->until == time)
		return 0;
	return ask_kernel(w->ctx, near, w->server, time) ? 0 : near;
}

#endif

/* The MAC addresses, and which port. `ctx` as it will leave. */
static __always_inline int deliver(struct work *w)
{
	__u8 *data = packet_word(w->ctx, data), *end = packet_word(w->ctx, data_end);
	struct weir_lb_server *server = w->server;
	__u32 low;
	__u16 high;

#ifndef WEIR_NETWORK
	if (lb_has(WEIR_LB_F_CPU) && server->deliver & WEIR_LB_D_CPU) {
		__u32 to = server->cpu;

		finish(w->ctx);
		if (bpf_redirect_map(&cpus, to, XDP_ABORTED) != XDP_REDIRECT)
			return WEIR_R_redirect_failed;
		return LB_SENT;
	}
#endif
	if (data + WEIR_FRAME_MIN > end)
		return WEIR_R_head_split;
	if (!(server->deliver & WEIR_LB_D_MAC)) {
		if (!w->near)
			return LB_NEXT;
		__builtin_memcpy(data, w->near->to, 6);
		__builtin_memcpy(data + 6, w->near->from, 6);
		w->out = w->near->port;
		return LB_OUT;
	}
	low = *(__u32 *)server->from;
	high = *(__u16 *)(server->from + 4);
	if (!(low | high)) {
		low = *(__u32 *)data;
		high = *(__u16 *)(data + 4);
	}
	*(__u16 *)(data + 6) = low;
	*(__u16 *)(data + 8) = low >> 16;
	*(__u16 *)(data + 10) = high;
	*(__u32 *)data = *(__u32 *)server->mac;
	*(__u16 *)(data + 4) = *(__u16 *)(server->mac + 4);
	w->out = server->to;
	return LB_OUT;
}

static __always_inline int encapsulate(struct work *w)
{
	__u8 *data = packet_word(w->ctx, data), *end = packet_word(w->ctx, data_end);
	struct tunnel t = {
		.l3 = w->h.l3,
		.inner = w->h.ip_end - w->h.l3,
		.inner6 = w->h.family == 6,
		.outer6 = w->server->family == 6,
		.mode = w->server->mode,
		.port = w->server->other_port,
		.hash = w->hash,
		.mtu = w->near && w->near->mtu ? w->near->mtu : weir_mtu,
	};
	__u64 macs[2];
	int reason;

	if (data + WEIR_FRAME_MIN > end)
		return WEIR_R_head_split;
	macs[0] = *(__u32 *)data | (__u64)*(__u32 *)(data + 4) << 32;
	macs[1] = *(__u32 *)(data + 8);
	reason = encap(w->ctx, &t, w->server->address);
	if (reason == WEIR_R_path_mtu && t.mtu > t.more)
		w->out = t.mtu - t.more;
	if (reason != QUICK_OK)
		return reason;
#ifdef WEIR_PANEL
	if (w->p.chain)
		w->p.chain->len += t.more;
#endif
	data = packet_word(w->ctx, data);
	end = packet_word(w->ctx, data_end);
	if (data + WEIR_FRAME_MIN > end)
		return WEIR_R_head_split;
	*(__u32 *)data = macs[0];
	*(__u32 *)(data + 4) = macs[0] >> 32;
	*(__u32 *)(data + 8) = macs[1];
	return QUICK_OK;
}

/* What answers a packet that does not fit into its tunnel, in the name of the service: what fits is `mtu`. Returns 1 if it is to be answered. */
static __noinline int prepare_too_big(ctx_t *ctx, __u32 l3, __u32 family, __u32 ip_len, __u32 mtu)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip;
	struct icmp_error *e;
	__u32 zero = 0;
	__u64 *due;

	e = bpf_map_lookup_elem(&answers, &zero);
	if (!e)
		return 0;
	e->family = family;
	e->l3 = l3;
	e->ip_len = ip_len;
	e->word = mtu;
	opaque(l3);
	l3 &= 31;
	ip = data + l3;
	if (family == 4) {
		if (ip + 20 > end || !icmp_answerable4(ip, 0))
			return 0;
		e->type = ICMP_DEST_UNREACH;
		e->code = ICMP_FRAG_NEEDED;
		e->from[0] = *(__u32 *)(ip + 16);
	} else {
		if (ip + 40 > end || !icmp_answerable6(ip, 0))
			return 0;
		e->type = ICMP6_PKT_TOOBIG;
		e->code = 0;
		__builtin_memcpy(e->from, ip + 24, 16);
	}
	due = bpf_map_lookup_elem(&errors_due, &zero);
	if (!due || !icmp_error_due(due, clock_ns(), weir_error_interval_ns, weir_error_burst_ns))
		return 0;
	return 1;
}

static __always_inline int answer_too_big(struct work *w)
{
	struct icmp_error *e;
	__u32 zero = 0;

	if (!prepare_too_big(w->ctx, w->h.l3, w->h.family, w->h.ip_end - w->h.l3, w->out))
		return 0;
	e = bpf_map_lookup_elem(&answers, &zero);
	return e && icmp_error(w->ctx, e);
}

/* What its mode does to a packet that has a server, and away with it. */
static __always_inline int forward(struct work *w)
{
	int reason;

	count(&service_counts, w->server->service_number, w->packets, w->bytes);
	count(&server_counts, w->number, w->packets, w->bytes);
	if (!(w->server->deliver & (WEIR_LB_D_MAC | WEIR_LB_D_CPU)))
		w->near = resolve(w);
	if (lb_has(WEIR_LB_F_ENCAP) && w->server->mode <= WEIR_LB_GUE0) {
		finish(w->ctx);
		reason = encapsulate(w);
		if (reason == WEIR_R_path_mtu && w->out && answer_too_big(w)) {
			panel_resized(w->ctx);
			w->stats->reason[WEIR_R_answered]++;
			w->out = 0;
			return LB_OUT;
		}
		if (reason != QUICK_OK)
			return reason;
	} else if (lb_has(WEIR_LB_F_NAT) && w->server->mode == WEIR_LB_NAT) {
		finish(w->ctx);
		if (w->quote)
			reason = nat_quote(w->ctx, &w->h, NAT_DST, w->quote, 0, w->server->address, w->server->port);
		else
			reason = nat(w->ctx, &w->h, NAT_DST, w->server->address, w->server->port);
		if (reason != QUICK_OK)
			return reason;
	}
	return deliver(w);
}

/* ---- and back ---- */

#ifdef WEIR_NETWORK

static __always_inline int is_for_host(struct work *w)
{
	return 0;
}

#else

/* Not inlined: it is seldom asked, and its stack is its own. */
static __noinline int leads_nowhere(ctx_t *ctx, __u32 family, __u64 high, __u64 low)
{
	struct weir_fib fib = {};

	fib.family = family == 6 ? AF_INET6 : AF_INET;
	fib.ifindex = ctx_word(ctx, ingress_ifindex);
	if (family == 6) {
		fib.dst[0] = bpf_htonl(high >> 32);
		fib.dst[1] = bpf_htonl((__u32)high);
		fib.dst[2] = bpf_htonl(low >> 32);
		fib.dst[3] = bpf_htonl((__u32)low);
	} else {
		fib.dst[0] = bpf_htonl((__u32)low);
	}
	return bpf_fib_lookup(ctx, (void *)&fib, sizeof(fib), 0) == BPF_FIB_LKUP_RET_NOT_FWDED;
}

/* Whether the packet stays on this host, as far as the kernel's tables know. */
static __always_inline int is_for_host(struct work *w)
{
	return !weir_replay && leads_nowhere(w->ctx, w->h.family, w->h.dst_high, w->h.dst_low);
}

#endif

/*
 * Whether the ring of a service gives a flow to this server. `rest`: family << 24 | protocol << 16 | port. Global, so that the verifier walks
 * it by itself.
 */
__noinline __u32 ring_gives(__u64 high, __u64 low, __u32 rest, __u64 hash, __u32 server)
{
	struct weir_lb_key key = { .high = high, .low = low, .port = rest, .protocol = rest >> 16, .family = rest >> 24 };
	struct weir_lb_service *service = service_find(&key);
	struct ring_chunk *chunk;
	__u32 place, element;

	if (!service || !service->ring_size)
		return 0;
	/* Its packets say themselves which server they are for. */
	if (service->flags & WEIR_LB_S_QUIC)
		return 1;
	place = service->ring_first + (__u32)((hash >> 32) * service->ring_size >> 32);
	element = place / WEIR_LB_CHUNK;
	chunk = bpf_map_lookup_elem(&ring, &element);
	if (!chunk)
		return 0;
	opaque(place);
	place &= WEIR_LB_CHUNK - 1;
	return chunk->server[place] == server;
}

/*
 * Whether a packet to a client is an answer of `from`'s service. `ports`: the client's << 16 | that of the server. The flow table says so; what else
 * comes from the server's port belongs to who asked it by its own address: this host, or somebody on the servers' side.
 * docs/design/balancer.md says why the ring may answer for a full bucket.
 */
static __always_inline int is_answer(struct work *w, struct weir_lb_back *from, __u32 ports)
{
	__u32 found, port = from->port ? bpf_ntohs(from->port) : ports & 0xffff;
	__u64 hash, high = 0, low;

	if (w->h.family == 6) {
		high = be64_at(from->address);
		low = be64_at(from->address + 8);
	} else {
		low = be32_at(from->address);
	}
	/* One way for the verifier. */
	port += w->h.zero;
	high += w->h.zero;
	low += w->h.zero;
	hash = sticky_hash(w->h.dst_high, w->h.dst_low, high, low, (__u64)w->protocol << 32 | (ports & 0xffff0000) | port);
	found = sticky_answers(hash, from->server, w->now, w->h.zero);
	if (found == STICKY_KNOWN)
		return 1;
	if (!lb_has(WEIR_LB_F_UNKNOWN) &&
	    (found != STICKY_FULL || !ring_gives(high, low, w->h.family << 24 | w->protocol << 16 | port, hash, from->server)))
		return 0;
	return !is_for_host(w);
}

/* A packet of a server goes back to its client as one of the service. `port`: that it comes from. */
static __always_inline int back(struct work *w, __u32 port)
{
	struct weir_lb_key key = {
		.high = w->h.src_high,
		.low = w->h.src_low,
		.port = port,
		.protocol = w->h.kind,
		.family = w->h.family,
	};
	struct weir_lb_back *from = service_back(&key);
	int reason;

	if (!from)
		return LB_NEXT;
	/* A later fragment is what the first one was. */
	if (w->h.l4 && !is_answer(w, from, w->h.ports << 16 | port))
		return LB_NEXT;
	if (w->h.kind & WEIR_KIND_FRAGMENT && w->h.l4)
		remember_fragment(w, WEIR_LB_FROM, from->server);
	finish(w->ctx);
	reason = nat(w->ctx, &w->h, NAT_SRC, from->address, from->port);
	return reason == QUICK_OK ? LB_NEXT : reason;
}

/* ---- ICMP ---- */

/* The service's address answers an echo request. `p`: the ICMP header. */
static __always_inline int answer_echo(struct work *w, __u8 *data, __u8 *end, __u32 off)
{
	__u32 l3 = w->h.l3, low, ttl, i, was;
	__u8 *ip, *p;
	__u16 high;

	opaque(l3);
	l3 &= 31;
	ip = data + l3;
	p = data + off;
	if (p + 8 > end)
		return WEIR_R_head_split;
	was = be16_at(p);
	if (w->h.family == 4) {
		if (ip + 20 > end)
			return WEIR_R_head_split;
		low = *(__u32 *)(ip + 12);
		*(__u32 *)(ip + 12) = *(__u32 *)(ip + 16);
		*(__u32 *)(ip + 16) = low;
		ttl = be16_at(ip + 8);
		put16(ip + 8, TUNNEL_HOPS << 8 | (ttl & 255));
		put16(ip + 10, csum_update(be16_at(ip + 10), ttl, TUNNEL_HOPS << 8 | (ttl & 255)));
		p[0] = 0;
	} else {
		if (ip + 40 > end)
			return WEIR_R_head_split;
#pragma unroll
		for (i = 0; i < 4; i++) {
			low = *(__u32 *)(ip + 8 + i * 4);
			*(__u32 *)(ip + 8 + i * 4) = *(__u32 *)(ip + 24 + i * 4);
			*(__u32 *)(ip + 24 + i * 4) = low;
		}
		nat_written(w->ctx, ip[7], TUNNEL_HOPS);
		ip[7] = TUNNEL_HOPS;
		p[0] = ICMP6_REPLY;
	}
	put16(p + 2, csum_update(be16_at(p + 2), was, be16_at(p)));
	if (data + WEIR_FRAME_MIN > end)
		return WEIR_R_head_split;
	low = *(__u32 *)data;
	high = *(__u16 *)(data + 4);
	*(__u32 *)data = *(__u32 *)(data + 6);
	*(__u16 *)(data + 4) = *(__u16 *)(data + 10);
	*(__u16 *)(data + 6) = low;
	*(__u16 *)(data + 8) = low >> 16;
	*(__u16 *)(data + 10) = high;
	w->out = 0;
	return LB_OUT;
}

/*
 * ICMP to the address of a service: echo requests are answered; an error goes to the server of the flow that it quotes, which is described in
 * `key`, w->hash and w->protocol then. Or, with `is_back`, ICMP to somebody else: an error about a packet from there, whose destination is described
 * in `key`, w->protocol and w->h.ports. Returns 1 for such an error, or what becomes of the packet.
 */
static __always_inline int read_icmp(struct work *w, struct weir_lb_key *key, __u32 is_back)
{
	__u8 *data = packet_word(w->ctx, data), *end = packet_word(w->ctx, data_end), *p, *q;
	__u32 off = w->h.l4, type, ihl, ports;
	__u64 src_high = 0, src_low, dst_high = 0, dst_low;

	if (!off || w->h.kind & WEIR_KIND_FRAGMENT)
		return LB_NEXT;
	if (off + 8 > w->h.ip_end)
		return WEIR_R_icmp_truncated;
	opaque(off);
	off &= 511;
	p = data + off;
	if (p + 8 > end)
		return WEIR_R_head_split;
	type = p[0];
	q = p + 8;
	if (w->h.family == 4) {
		if (type == ICMP_ECHO)
			return is_back ? LB_NEXT : answer_echo(w, data, end, off);
		if (type != ICMP_DEST_UNREACH && type != ICMP_QUENCH && type != ICMP_TIME_EXCEEDED && type != ICMP_PARAMETER)
			return LB_NEXT;
		if (q + 20 > end)
			return LB_NEXT;
		ihl = (q[0] & 15) * 4;
		if (ihl < 20 || be16_at(q + 6) & 0x1fff)
			return LB_NEXT;
		key->protocol = q[9];
		src_low = be32_at(q + 12);
		dst_low = be32_at(q + 16);
	} else {
		if (type == ICMP6_ECHO)
			return is_back ? LB_NEXT : answer_echo(w, data, end, off);
		if (type < 1 || type > ICMP6_PARAMETER || q + 40 > end)
			return LB_NEXT;
		ihl = 40;
		key->protocol = q[6];
		src_high = be64_at(q + 8);
		src_low = be64_at(q + 16);
		dst_high = be64_at(q + 24);
		dst_low = be64_at(q + 32);
	}
	w->quote = off + 8;
	ihl += w->quote;
	opaque(ihl);
	ihl &= 1023;
	p = data + ihl;
	if (p + 8 > end || ihl + 8 > w->h.ip_end || (key->protocol != IPPROTO_TCP && key->protocol != IPPROTO_UDP))
		return LB_NEXT;
	ports = be32_at(p);
	if (is_back) {
		/* It goes to who sent what it quotes, or it is none of ours. */
		if (src_high != w->h.dst_high || src_low != w->h.dst_low)
			return LB_NEXT;
		key->high = dst_high;
		key->low = dst_low;
		key->port = ports;
		w->protocol = key->protocol;
		w->h.ports = ports;
		return 1;
	}
	key->high = src_high;
	key->low = src_low;
	key->port = ports >> 16;
	w->protocol = key->protocol;
	w->hash = sticky_hash(dst_high, dst_low, src_high, src_low, (__u64)w->protocol << 32 | ports << 16 | ports >> 16);
	return 1;
}

/* An ICMP error that a server, or a station in front of it, sends to a client of a NAT service: it goes on as one of the service. */
static __always_inline int error_back(struct work *w, struct weir_lb_key *key)
{
	struct weir_lb_back *from = service_back(key);
	int reason;

	if (!from || !is_answer(w, from, w->h.ports))
		return LB_NEXT;
	finish(w->ctx);
	reason = nat_quote(w->ctx, &w->h, NAT_SRC, w->quote, key->high != w->h.src_high || key->low != w->h.src_low, from->address, from->port);
	return reason == QUICK_OK ? LB_NEXT : reason;
}

/* ---- all together ---- */

static __always_inline int balance(struct work *w)
{
	struct weir_lb_key key = {};
	int reason = quick_parse(w->ctx, &w->h);
	__u32 port, state;
	__u8 *data, *end;

	if (reason == QUICK_OTHER)
		return LB_NEXT;
	if (reason != QUICK_OK)
		return reason;
	data = packet_word(w->ctx, data);
	end = packet_word(w->ctx, data_end);
	if (data + WEIR_FRAME_MIN > end)
		return WEIR_R_head_split;
	w->h.zero = blur(data);
	/* One way for the verifier from here on, whatever the packet looked like. */
	w->h.l3 += w->h.zero;
	w->h.l4 += w->h.zero;
	w->h.frag += w->h.zero;
	w->h.kind += w->h.zero;
	w->h.ports += w->h.zero;
	w->h.has_ports += w->h.zero;
	w->h.family += w->h.zero;
	w->h.tcp_flags += w->h.zero;
	w->h.ip_end += w->h.zero;
	w->h.src_high += w->h.zero;
	w->h.dst_high += w->h.zero;
	w->quote = w->h.zero;
	w->protocol = w->h.kind & 255;
	w->now = clock_ns() >> WEIR_LB_TIME;
	measure(w);
	key.high = w->h.dst_high;
	key.low = w->h.dst_low;
	key.family = w->h.family;
	key.protocol = w->protocol;
	if (w->h.kind & WEIR_KIND_FRAGMENT && !w->h.l4) {
		state = recall_fragment(w);
		if (state == WEIR_LB_TOWARDS) {
			w->hash = sticky_hash(w->h.src_high, w->h.src_low, w->h.dst_high, w->h.dst_low, w->protocol);
			goto away;
		}
		if (lb_has(WEIR_LB_F_NAT) && state == WEIR_LB_FROM) {
			port = w->server->other_port;
			goto from_server;
		}
		key.protocol = w->h.family == 4 ? IPPROTO_ICMP : IPPROTO_ICMP6;
		return service_find(&key) ? WEIR_R_frag_before_first : LB_NEXT;
	}
	if (w->h.has_ports && (w->protocol == IPPROTO_TCP || w->protocol == IPPROTO_UDP)) {
		key.port = w->h.ports;
		w->opens = w->protocol == IPPROTO_TCP && (w->h.tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
		w->ends = w->protocol == IPPROTO_TCP && w->h.tcp_flags & (TCP_FIN | TCP_RST);
		w->hash = sticky_hash(w->h.src_high, w->h.src_low, w->h.dst_high, w->h.dst_low,
				      (__u64)w->protocol << 32 | w->h.ports);
	} else if (w->protocol != (w->h.family == 4 ? IPPROTO_ICMP : IPPROTO_ICMP6)) {
		return LB_NEXT;
	}
	touch_bucket(w);
	w->service = service_find(&key);
	if (!w->service && !lb_has(WEIR_LB_F_NAT))
		return LB_NEXT;
	if (!w->service && w->h.has_ports) {
		port = w->h.ports >> 16;
		goto from_server;
	}
	if (!w->service || w->service->number == WEIR_LB_ECHO) {
		reason = read_icmp(w, &key, !w->service);
		if (reason != 1)
			return reason;
		if (lb_has(WEIR_LB_F_NAT) && !w->service)
			return error_back(w, &key);
		w->service = service_find(&key);
		if (!w->service)
			return LB_NEXT;
	}
	reason = choose(w);
	if (reason != QUICK_OK)
		return reason;
	if (w->h.kind & WEIR_KIND_FRAGMENT)
		remember_fragment(w, WEIR_LB_TOWARDS, w->number);
away:
	return forward(w);
from_server:
	return back(w, port);
}

SEC(CTX_SECTION)
int balancer(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();
	struct work w = { .ctx = ctx, .packets = ctx_segments(ctx) };
	int verdict = ctx_return(XDP_ABORTED), outcome;
	__u32 reason = WEIR_NO_REASON;

	keep();
	if (!stats)
		goto out;
	w.stats = stats;
	w.p = panel_enter(ctx, stats, w.packets);
	w.h.len = w.p.len - ctx_beside(ctx);
	outcome = balance(&w);
	if (outcome == LB_OUT) {
#ifdef WEIR_PANEL
		if (w.p.chain && !w.out)
			w.out = w.p.chain->port;
		verdict = panel_send(ctx, stats, w.p, w.packets, w.out, reason);
		goto out;
#else
		finish(ctx);
		verdict = XDP_TX;
#endif
	} else if (outcome >= 0) {
		reason = outcome;
		stats->reason[reason & (WEIR_REASONS - 1)] += w.packets;
		verdict = CTX_DROP;
	} else if (outcome == LB_SENT) {
		verdict = XDP_REDIRECT;
	} else {
		verdict = CTX_PASS;
	}
	verdict = panel_leave_with(ctx, stats, w.p, w.packets, verdict, 0, reason);
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
