// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * router: sends IPv4 and IPv6 packets on, from port to port, by the kernel's tables (bpf_fib_lookup) or by tables of its own, and
 * frames to other stations by their address. docs/router.md says what it does, docs/design/router.md how routes are found.
 *
 * What it does not judge (packets to the host, groups, options, frames that are no IP) goes on by its default output unchanged: the
 * stack knows what to do with it.
 *
 * Hooks: graph.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile __u32 weir_port = 0;
const volatile __u32 weir_csum_mode = WEIR_CSUM_COMPLETE;
const volatile __u32 weir_replay = 0;		/* time comes from the replay map */
const volatile __u32 weir_router_features = 0;	/* WEIR_RF_* */
const volatile __u32 weir_router_never = 0;	/* always 0 */
const volatile __u64 weir_error_interval_ns = 1000000;
const volatile __u64 weir_error_burst_ns = 50000000;

/* has() is asked by what filters share with it (quick_parse.h); this function has features of its own. */
#define has(f)		0
#define does(f)		(weir_router_features & (f))

#include "ctx.h"
#include "csum.h"
#include "finish.h"
#include "panel.h"
#include "stats.h"
#include "spread.h"
#include "quick_parse.h"
#include "clock.h"
#include "near.h"
#include "icmp_error.h"
#include "routes.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_RT_INTERFACES);
	__type(key, __u32);
	__type(value, struct weir_interface);
} interfaces SEC(".maps");

/* The same as ports_by_index, of devices with low indexes: most have one, and a hash costs ten times an array. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_RT_LOW);
	__type(key, __u32);
	__type(value, struct weir_port_at);
} ports_low SEC(".maps");

/* By weir's number of a port: number + 1 of the interface of its untagged packets. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WEIR_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} untagged SEC(".maps");

/* By port << 16 | VLAN: number + 1 of an interface. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tagged SEC(".maps");

struct mac_key {
	__u8 mac[6];
	__u16 vlan;
};

/* Stations whose frames are forwarded by their address: number + 1 of an interface. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct mac_key);
	__type(value, __u32);
} stations SEC(".maps");

/* Packets sent, by interface. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WEIR_RT_INTERFACES);
	__type(key, __u32);
	__type(value, struct weir_counter);
} sent SEC(".maps");

/* When the next ICMP error is due. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} errors_due SEC(".maps");

enum step {
	TO_STACK,	/* goes on by the default output */
	TO_OUT,		/* by `out` */
	TO_NOWHERE,	/* dropped for `reason` */
	TO_SENDER,	/* answered by an error, if that may be; else as TO_NOWHERE */
};

/* No address of it goes to a call, so that all of it can live in registers. */
struct packet {
	struct weir_interface *in, *out;
	__u32 len;		/* of the frame */
	__u32 l3, family;
	__u32 ip_len;
	__u32 in_vlan;		/* tag it came with, 0: none */
	__u32 tagged;
	__u32 out_number;
	__u32 reason;
	__u32 type, code, word;	/* of the error */
	__u8 to[6], from[6];	/* link-layer addresses */
};

static __always_inline struct weir_interface *interface_at(__u32 number)
{
	return bpf_map_lookup_elem(&interfaces, &number);
}

/* The interface a packet came in by; 0: none of the router's. */
static __always_inline struct weir_interface *interface_in(__u32 port, struct packet *p)
{
	__u32 *number, key;

	if (does(WEIR_RF_VLAN) && p->in_vlan) {
		key = port << 16 | p->in_vlan;
		number = bpf_map_lookup_elem(&tagged, &key);
	} else {
		number = bpf_map_lookup_elem(&untagged, &port);
	}
	return number && *number ? interface_at(*number - 1) : 0;
}

static __always_inline int same_mac(__u8 *a, __u8 *b)
{
	return *(__u32 *)a == *(__u32 *)b && *(__u16 *)(a + 4) == *(__u16 *)(b + 4);
}

static __always_inline int drop(struct packet *p, __u32 reason)
{
	p->reason = reason;
	return TO_NOWHERE;
}

static __always_inline int answer(struct packet *p, __u32 reason, __u32 type, __u32 code, __u32 word)
{
	p->reason = reason;
	p->type = type;
	p->code = code;
	p->word = word;
	if (does(WEIR_RF_ERRORS))
		return TO_SENDER;
	if (does(WEIR_RF_SILENT))
		return TO_NOWHERE;
	p->reason = WEIR_NO_REASON;
	return TO_STACK;
}

static __always_inline int expired(struct packet *p)
{
	return p->family == 4 ? answer(p, WEIR_R_ttl_expired, ICMP_TIME_EXCEEDED, 0, 0)
			      : answer(p, WEIR_R_ttl_expired, ICMP6_TIME_EXCEED, 0, 0);
}

/* Larger than the way on carries. Only the stack makes fragments. */
static __always_inline int too_big(struct packet *p, __u32 may_fragment, __u32 mtu)
{
	if (may_fragment)
		return TO_STACK;
	return p->family == 4 ? answer(p, WEIR_R_path_mtu, ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED, mtu)
			      : answer(p, WEIR_R_path_mtu, ICMP6_PKT_TOOBIG, 0, mtu);
}

static __always_inline int no_route(struct packet *p)
{
	return p->family == 4 ? answer(p, WEIR_R_no_route, ICMP_DEST_UNREACH, ICMP_NET_UNREACH, 0)
			      : answer(p, WEIR_R_no_route, ICMP6_DEST_UNREACH, ICMP6_NOROUTE, 0);
}

static __always_inline int unreachable(struct packet *p)
{
	return p->family == 4 ? answer(p, WEIR_R_no_route, ICMP_DEST_UNREACH, ICMP_HOST_UNREACH, 0)
			      : answer(p, WEIR_R_no_route, ICMP6_DEST_UNREACH, ICMP6_NOROUTE, 0);
}

static __always_inline int prohibited(struct packet *p)
{
	return p->family == 4 ? answer(p, WEIR_R_no_route, ICMP_DEST_UNREACH, ICMP_PKT_FILTERED, 0)
			      : answer(p, WEIR_R_no_route, ICMP6_DEST_UNREACH, ICMP6_ADM_PROHIBITED, 0);
}

/* What becomes of a packet for which the kernel gave this code and no way. */
static __always_inline int refused(struct packet *p, struct weir_fib *fib, long code, __u32 ttl, __u32 may_fragment)
{
	switch (code) {
	case BPF_FIB_LKUP_RET_BLACKHOLE:
		return drop(p, WEIR_R_no_route);
	case BPF_FIB_LKUP_RET_UNREACHABLE:
		return unreachable(p);
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return prohibited(p);
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return ttl <= 1 ? expired(p) : too_big(p, may_fragment, fib->tot_len);
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		if (ttl <= 1)
			return expired(p);
		p->reason = WEIR_R_unresolved;
		return TO_STACK;
	}
	/* To the host itself, no route, forwarding off, a route with a tunnel of its own: the stack knows. */
	return TO_STACK;
}

/* By the kernel's tables. `fib` describes the packet. */
static __always_inline int by_kernel(ctx_t *ctx, struct packet *p, struct weir_fib *fib, __u32 ttl, __u32 may_fragment)
{
	struct weir_port_at *at;
	__u32 index, source;
	long code;

	fib->tot_len = p->ip_len;
	fib->ifindex = p->in->ifindex;
	if (does(WEIR_RF_STRICT | WEIR_RF_LOOSE)) {
		struct weir_fib back = {};

		back.family = fib->family;
		back.ifindex = fib->ifindex;
		__builtin_memcpy(back.dst, fib->src, 16);
		__builtin_memcpy(back.src, fib->dst, 16);
		code = bpf_fib_lookup(ctx, (void *)&back, sizeof(back), 0);
		if (code != BPF_FIB_LKUP_RET_SUCCESS && code != BPF_FIB_LKUP_RET_NO_NEIGH)
			return drop(p, WEIR_R_rpf_failed);
		source = back.ifindex;
		if (does(WEIR_RF_STRICT) && source != p->in->ifindex)
			return drop(p, WEIR_R_rpf_failed);
	}
	code = bpf_fib_lookup(ctx, (void *)fib, sizeof(*fib), 0);
	if (code)
		return refused(p, fib, code, ttl, may_fragment);
	index = fib->ifindex;
	at = bpf_map_lookup_elem(&ports_low, &index);
	if (!at)
		at = bpf_map_lookup_elem(&ports_by_index, &index);
	if (!at || !at->interface)
		return TO_STACK;
	if (ttl <= 1)
		return expired(p);
	p->out_number = at->interface - 1;
	p->out = interface_at(p->out_number);
	if (!p->out)
		return TO_STACK;
	__builtin_memcpy(p->to, fib->dmac, 6);
	__builtin_memcpy(p->from, fib->smac, 6);
	return TO_OUT;
}

/* The word of the router's own tables for an address; the route is counted if `packet` is one that takes it. */
static __always_inline __u32 find_route(__u32 family, __u32 *to, struct packet *packet)
{
	__u32 word = family == AF_INET ? find_route4(bpf_ntohl(to[0])) : find_route6(to), number;
	struct weir_counter *counter;

	if (!does(WEIR_RF_COUNT_ROUTES) || !word)
		return word;
	number = word & WEIR_RT_NUMBER;
	if (packet) {
		counter = bpf_map_lookup_elem(&route_counts, &number);
		if (counter) {
			counter->packets++;
			counter->bytes += packet->len;
		}
	}
	return words_at(&targets, number / WEIR_RT_CHUNK, number);
}

/* Whether packets from `source` may come in where this one did. */
static __always_inline int comes_right(struct packet *p, __u32 family, __u32 *source)
{
	__u32 word = find_route(family, source, 0), number = word & WEIR_RT_NUMBER, i;
	struct weir_next_hop *hop;
	struct weir_group *group;

	if (!word)
		return 0;
	if (word & WEIR_RT_GROUP) {
		if (does(WEIR_RF_LOOSE))
			return 1;
		group = bpf_map_lookup_elem(&groups, &number);
		if (!group)
			return 0;
		/* Members lie in many buckets each: these few are tried. */
		for (i = 0; i < 16; i++) {
			number = group->hop[i * (WEIR_RT_BUCKETS / 16)];
			hop = bpf_map_lookup_elem(&next_hops, &number);
			if (hop && interface_at(hop->interface) == p->in)
				return 1;
		}
		return 0;
	}
	hop = bpf_map_lookup_elem(&next_hops, &number);
	if (!hop || (hop->kind != WEIR_NH_GATEWAY && hop->kind != WEIR_NH_LINK))
		return 0;
	return does(WEIR_RF_LOOSE) || interface_at(hop->interface) == p->in;
}

static __always_inline int differ(__u32 *a, __u8 *address)
{
	__u32 *b = (__u32 *)address;

	return (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]);
}

/* Where packets to a next hop go; 0 if that is not known. `fib`: of the packet. */
static __always_inline struct weir_near *reach(ctx_t *ctx, struct weir_next_hop *hop, __u32 number, struct packet *p,
					       struct weir_fib *fib)
{
	struct weir_near *near = bpf_map_lookup_elem(&nears, &number);
	__u32 time, of_link;

	if (!near)
		return 0;
	time = near_time();
	if (hop->kind == WEIR_NH_GATEWAY && near_holds(near, time))
		return near;
	if (*(__u32 *)hop->mac | *(__u16 *)(hop->mac + 4)) {
		__builtin_memcpy(near->to, hop->mac, 6);
		__builtin_memcpy(near->from, p->out->mac, 6);
		near->port = p->out->port;
		near->until = time;
		return near;
	}
	/* The kernel does not look for the way to an address of one link, but tells it as the gateway of its own route to the destination. */
	of_link = hop->kind == WEIR_NH_GATEWAY && hop->address[0] == 0xfe && hop->family == 6;
	if (hop->kind == WEIR_NH_GATEWAY && !of_link) {
		fib->family = hop->family == 4 ? AF_INET : AF_INET6;
		__builtin_memcpy(fib->dst, hop->address, 16);
	}
	fib->tot_len = 0;
	fib->ifindex = p->out->ifindex;
	if (near_ask(ctx, near, fib, BPF_FIB_LOOKUP_OUTPUT, time))
		return 0;
	if (of_link && differ(fib->dst, hop->address)) {
		near->port = 0;
		return 0;
	}
	return near;
}

/* By tables of the router's own. */
static __always_inline int by_own(ctx_t *ctx, struct packet *p, struct weir_fib *fib, __u32 ttl, __u32 may_fragment)
{
	struct weir_counter *counter;
	struct weir_next_hop *hop;
	struct weir_group *group;
	struct weir_near *near;
	__u32 word, number, mtu;

	if (does(WEIR_RF_STRICT | WEIR_RF_LOOSE) && !comes_right(p, fib->family, fib->src))
		return drop(p, WEIR_R_rpf_failed);
	word = find_route(fib->family, fib->dst, p);
	if (!word)
		return no_route(p);
	number = word & WEIR_RT_NUMBER;
	if (word & WEIR_RT_GROUP) {
		group = bpf_map_lookup_elem(&groups, &number);
		if (!group)
			return drop(p, WEIR_R_internal);
		number = group->hop[spread_hash(ctx) % WEIR_RT_BUCKETS];
	}
	hop = bpf_map_lookup_elem(&next_hops, &number);
	if (!hop)
		return drop(p, WEIR_R_internal);
	switch (hop->kind) {
	case WEIR_NH_GATEWAY:
	case WEIR_NH_LINK:
		break;
	case WEIR_NH_LOCAL:
		return TO_STACK;
	case WEIR_NH_BLACKHOLE:
		return drop(p, WEIR_R_no_route);
	case WEIR_NH_UNREACHABLE:
		return unreachable(p);
	case WEIR_NH_PROHIBIT:
		return prohibited(p);
	default:
		return no_route(p);
	}
	if (ttl <= 1)
		return expired(p);
	p->out_number = hop->interface;
	p->out = interface_at(hop->interface);
	if (!p->out)
		return drop(p, WEIR_R_internal);
	mtu = p->out->mtu;
	if (hop->mtu && (!mtu || hop->mtu < mtu))
		mtu = hop->mtu;
	if (mtu && p->ip_len > mtu)
		return too_big(p, may_fragment, mtu);
	near = reach(ctx, hop, number, p, fib);
	if (!near) {
		p->reason = WEIR_R_unresolved;
		return TO_STACK;
	}
	counter = bpf_map_lookup_elem(&hop_counts, &number);
	if (counter) {
		counter->packets++;
		counter->bytes += p->len;
	}
	__builtin_memcpy(p->to, near->to, 6);
	__builtin_memcpy(p->from, near->from, 6);
	return TO_OUT;
}

static __always_inline int route(ctx_t *ctx, struct packet *p, struct weir_fib *fib, __u32 ttl, __u32 may_fragment)
{
	if (does(WEIR_RF_OWN))
		return by_own(ctx, p, fib, ttl, may_fragment);
	return by_kernel(ctx, p, fib, ttl, may_fragment);
}

/* Names the map that only user space looks into. No instruction of it is left after loading. */
static __always_inline void keep(void)
{
	__u32 zero = 0;

	if (weir_router_never)
		bpf_map_lookup_elem(&routes, &zero);
}

/* Ports of TCP and UDP, for tables that choose by them. */
static __always_inline void see_ports(struct weir_fib *fib, __u8 *l4, __u8 *end)
{
	if ((fib->l4_protocol == IPPROTO_TCP || fib->l4_protocol == IPPROTO_UDP) && l4 + 4 <= end) {
		fib->sport = *(__be16 *)l4;
		fib->dport = *(__be16 *)(l4 + 2);
	}
}

/* Addresses that are not forwarded whatever the tables say: "this", loopback, groups, broadcast. The stack judges them. */
static __always_inline int odd4(__u32 address)
{
	__u32 first = address & 0xff;

	return first == 0 || first == 127 || (first >= 224 && first < 240) || address == 0xffffffff;
}

static __always_inline int route4(ctx_t *ctx, struct packet *p, __u8 *ip, __u8 *end)
{
	struct weir_fib fib = { .family = AF_INET };
	__u32 total, check, frag, ttl;
	__u64 sum = 0;
	__u32 i;
	int step;

	if (ip + 20 > end)
		return drop(p, p->len < p->l3 + 20 ? WEIR_R_ip4_truncated : WEIR_R_head_split);
	if (ip[0] >> 4 != 4)
		return drop(p, WEIR_R_ip4_bad_version);
	if ((ip[0] & 15) < 5)
		return drop(p, WEIR_R_ip4_bad_ihl);
	total = be16_at(ip + 2);
	if (total < 20)
		return drop(p, WEIR_R_ip4_bad_len);
	if (p->l3 + total > p->len)
		return drop(p, WEIR_R_ip4_len_over);
	if ((ip[0] & 15) > 5)
		return TO_STACK;
#pragma unroll
	for (i = 0; i < 5; i++)
		sum += *(__u32 *)(ip + i * 4);
	if (csum_fold(sum) != 0xffff)
		return drop(p, WEIR_R_ip4_bad_checksum);
	fib.src[0] = *(__u32 *)(ip + 12);
	fib.dst[0] = *(__u32 *)(ip + 16);
	if (odd4(fib.src[0]) || odd4(fib.dst[0]))
		return TO_STACK;
	fib.tos = ip[1];
	fib.l4_protocol = ip[9];
	frag = be16_at(ip + 6);
	ttl = ip[8];
	p->ip_len = total;
	if (!(frag & 0x3fff))
		see_ports(&fib, ip + 20, end);
	step = route(ctx, p, &fib, ttl, !(frag & 0x4000));
	if (step != TO_OUT)
		return step;
	/* As Linux counts down (include/net/ip.h): the sum of a header is never 0xffff. */
	check = *(__u16 *)(ip + 10);
	check += bpf_htons(0x0100);
	*(__u16 *)(ip + 10) = check + (check >= 0xffff);
	ip[8] = ttl - 1;
	return TO_OUT;
}

/* Unspecified, loopback, groups, addresses of one link. */
static __always_inline int odd6(__u32 *address)
{
	__u8 *byte = (__u8 *)address;

	if (byte[0] == 0xff || (byte[0] == 0xfe && (byte[1] & 0xc0) == 0x80))
		return 1;
	return !(address[0] | address[1] | address[2]) && bpf_ntohl(address[3]) <= 1;
}

static __always_inline int route6(ctx_t *ctx, struct packet *p, __u8 *ip, __u8 *end)
{
	struct weir_fib fib = { .family = AF_INET6 };
	__u32 hop_limit, i;
	int step;

	if (ip + 40 > end)
		return drop(p, p->len < p->l3 + 40 ? WEIR_R_ip6_truncated : WEIR_R_head_split);
	if (ip[0] >> 4 != 6)
		return drop(p, WEIR_R_ip6_bad_version);
	p->ip_len = 40 + be16_at(ip + 4);
	if (p->l3 + p->ip_len > p->len)
		return drop(p, WEIR_R_ip6_len_over);
	/* Hop-by-hop options are for every router on the way. */
	if (ip[6] == 0)
		return TO_STACK;
#pragma unroll
	for (i = 0; i < 4; i++) {
		fib.src[i] = *(__u32 *)(ip + 8 + i * 4);
		fib.dst[i] = *(__u32 *)(ip + 24 + i * 4);
	}
	if (odd6(fib.src) || odd6(fib.dst))
		return TO_STACK;
	fib.tos = *(__u32 *)ip & bpf_htonl(0x0fffffff);
	fib.l4_protocol = ip[6];
	hop_limit = ip[7];
	see_ports(&fib, ip + 40, end);
	step = route(ctx, p, &fib, hop_limit, 0);
	if (step == TO_OUT)
		ip[7] = hop_limit - 1;
	return step;
}

/* A frame to another station: by the table of stations, if there is one. */
static __always_inline int bridge(ctx_t *ctx, struct packet *p, __u8 *data)
{
	struct mac_key key = {};
	__u32 *number;

	if (!does(WEIR_RF_MACS))
		return TO_STACK;
	__builtin_memcpy(key.mac, data, 6);
	key.vlan = p->in_vlan;
	number = bpf_map_lookup_elem(&stations, &key);
	if (!number || !*number)
		return TO_STACK;
	p->out_number = *number - 1;
	p->out = interface_at(p->out_number);
	if (!p->out)
		return TO_STACK;
	if (p->out->mtu && p->len > p->l3 + p->out->mtu)
		return drop(p, WEIR_R_path_mtu);
	__builtin_memcpy(p->to, data, 6);
	__builtin_memcpy(p->from, data + 6, 6);
	return TO_OUT;
}

static __always_inline int decide(ctx_t *ctx, struct packet *p, __u32 port)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end);
	static const __u8 any[6];
	__u32 type;

	if (data + 14 > end)
		return TO_STACK;
	type = be16_at(data + 12);
	p->l3 = 14;
	if (type == ETH_P_8021Q) {
		if (data + 18 > end)
			return drop(p, WEIR_R_vlan_truncated);
		p->tagged = 1;
		p->in_vlan = be16_at(data + 14) & 0xfff;
		type = be16_at(data + 16);
		p->l3 = 18;
		/* A tag without a VLAN says no more than none; all others are of nobody's here. */
		if (p->in_vlan && !does(WEIR_RF_VLAN))
			return TO_STACK;
	}
	p->in = interface_in(port, p);
	if (!p->in)
		return TO_STACK;
	if (data[0] & 1)
		return TO_STACK;
	if (!same_mac(data, p->in->mac) && !same_mac(p->in->mac, (__u8 *)any))
		return bridge(ctx, p, data);
	if (type == ETH_P_IP) {
		p->family = 4;
		return p->l3 == 14 ? route4(ctx, p, data + 14, end) : route4(ctx, p, data + 18, end);
	}
	if (type == ETH_P_IPV6) {
		p->family = 6;
		return p->l3 == 14 ? route6(ctx, p, data + 14, end) : route6(ctx, p, data + 18, end);
	}
	return TO_STACK;
}

/* Link-layer addresses and the tag of the way out. Returns 0, or the reason to drop. */
static __always_inline __u32 address(ctx_t *ctx, struct packet *p)
{
	__u8 *data, *end;
	__u32 vlan = does(WEIR_RF_VLAN) ? p->out->vlan : 0, end_at = p->l3 + p->ip_len;

	/* What senders put behind a packet must not make it too long for the way out. */
	if (p->ip_len && p->len > end_at && p->len > p->l3 + p->out->mtu) {
		if (bpf_xdp_adjust_tail(ctx, (int)(end_at - p->len)))
			return WEIR_R_internal;
		panel_resized(ctx);
	}
	if (p->tagged && !vlan) {
		if (bpf_xdp_adjust_head(ctx, VLAN_BYTES))
			return WEIR_R_internal;
	} else if (!p->tagged && vlan) {
		if (bpf_xdp_adjust_head(ctx, -VLAN_BYTES))
			return WEIR_R_head_room;
	}
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	if (data + 18 > end)
		return WEIR_R_internal;
	__builtin_memcpy(data, p->to, 6);
	__builtin_memcpy(data + 6, p->from, 6);
	if (vlan) {
		*(__u16 *)(data + 12) = bpf_htons(ETH_P_8021Q);
		if (p->tagged)
			vlan |= be16_at(data + 14) & 0xf000;
		*(__u16 *)(data + 14) = bpf_htons(vlan);
	}
	if (p->tagged != !!vlan)
		panel_resized(ctx);
	return 0;
}

/* Makes the packet the error that answers it. Returns 0: it stays unanswered; -1: the stack must look whether it may be answered. */
static __always_inline int reply(ctx_t *ctx, struct packet *p)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip = data + 14;
	struct icmp_error e = { .family = p->family, .l3 = p->l3, .ip_len = p->ip_len, .type = p->type, .code = p->code,
				.word = p->word };
	__u32 zero = 0;
	__u64 *due;

	if (p->l3 == 18)
		ip = data + 18;
	if (p->family == 4) {
		if (!p->in->address4 || ip + 20 > end || !icmp_answerable4(ip, ip + 21 <= end && p->ip_len > 20 ? ip + 20 : 0))
			return 0;
		e.from[0] = p->in->address4;
	} else {
		__builtin_memcpy(e.from, p->in->address6, 16);
		if (!(e.from[0] | e.from[1] | e.from[2] | e.from[3]))
			return 0;
		if (ip + 40 > end)
			return 0;
		if (icmp_is_hidden6(ip))
			return -1;
		if (!icmp_answerable6(ip, ip + 41 <= end && p->ip_len > 40 ? ip + 40 : 0))
			return 0;
	}
	due = bpf_map_lookup_elem(&errors_due, &zero);
	if (!due || !icmp_error_due(due, clock_ns(), weir_error_interval_ns, weir_error_burst_ns))
		return 0;
	if (!icmp_error(ctx, &e))
		return 0;
	panel_resized(ctx);
	return 1;
}

SEC(CTX_SECTION)
int router(ctx_t *ctx)
{
	struct weir_stats *stats = stats_here();
	struct packet p = { .reason = WEIR_NO_REASON };
	struct weir_counter *counter;
	int verdict = XDP_DROP, step;
	__u32 reason, port, number;
	struct panel panel;

	keep();
	if (!stats)
		goto out;
	panel = panel_enter(ctx, stats, 1);
	p.len = panel.len;
	port = ctx_port_in(ctx);
	step = decide(ctx, &p, port);
	if (step == TO_OUT) {
		reason = address(ctx, &p);
		if (reason) {
			step = drop(&p, reason);
		} else {
			number = p.out_number;
			counter = bpf_map_lookup_elem(&sent, &number);
			if (counter) {
				counter->packets++;
				counter->bytes += p.len;
			}
			verdict = panel_send(ctx, stats, panel, 1, p.out->port, WEIR_NO_REASON);
			goto out;
		}
	}
	if (step == TO_SENDER) {
		step = reply(ctx, &p);
		if (step > 0) {
			stats->reason[WEIR_R_answered]++;
			verdict = panel_send(ctx, stats, panel, 1, port, WEIR_R_answered);
			goto out;
		}
		if (step < 0)
			p.reason = WEIR_NO_REASON;
		step = step < 0 ? TO_STACK : TO_NOWHERE;
	}
	if (p.reason != WEIR_NO_REASON)
		stats->reason[p.reason & (WEIR_REASONS - 1)]++;
	verdict = panel_leave_with(ctx, stats, panel, 1, step == TO_STACK ? CTX_PASS : XDP_DROP, 0, p.reason);
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
