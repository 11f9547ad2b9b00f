/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Port security: what a workload may say of itself, and which messages only
 * those may send whom the document lets. The reference has the same
 * (crates/weir-network/src/reference/guard.rs).
 *
 * ARP (RFC 826, 5227), neighbour discovery (RFC 4861, 4862, 6980), router advertisements (RFC 1256, 6105, 7113), DHCP (RFC 2131, 8415), MLD
 * (RFC 2710, 3810). Whatever may hide one of them is dropped: a second tag, headers that do not fit the frame (RFC 7112).
 */
#ifndef WEIR_NETGUARD_H
#define WEIR_NETGUARD_H

#define GUARD_HEADERS	8	/* extension headers of IPv6 that are walked */
#define GUARD_OPTIONS	16	/* options of a message of neighbour discovery that are read */

#define IPPROTO_ICMP	1
#define IPPROTO_IGMP	2
#define IPPROTO_ICMPV6	58
#define DHCP_CLIENT4	68	/* only servers send to clients' ports */
#define DHCP_CLIENT6	546

#define ICMP4_REDIRECT	5
#define ICMP4_RA	9
#define ICMP6_RS	133
#define ICMP6_RA	134
#define ICMP6_NS	135
#define ICMP6_NA	136
#define ICMP6_REDIRECT	137
#define MLD_QUERY	130

#define GUARD_ANY	(WEIR_VF_ANY_MAC | WEIR_VF_ANY_ADDRESS)
#define GUARD_MAY_ALL	(WEIR_VF_ANY_ADDRESS | WEIR_VF_MAY_RA | WEIR_VF_MAY_DHCP)

/* What is behind the headers of IPv6. */
struct upper {
	ctx_t *ctx;
	__u32 protocol;
	__u32 at;		/* offset in the data */
	__u32 fragment;		/* the packet is a first fragment */
	__u32 elsewhere;	/* ... a later one: it is in another packet */
	__u32 reason;		/* why the headers cannot be walked */
};

/* Options of a message of neighbour discovery. */
struct options {
	ctx_t *ctx;
	__u32 at, end;
	__u32 wanted;		/* type of the one whose link-layer address counts, 0: none */
	__u32 forbidden;	/* ... and must not be there */
	__u32 any_mac;		/* ... or may name any station */
	__u32 reason;
	__u8 mac[8];		/* ... or this one only; two bytes are nobody's */
};

/* Bytes at an offset in the data, where a tag may be missing. */
static __always_inline long guard_load(ctx_t *ctx, __u32 off, void *to, const __u32 len)
{
	return ctx_load(ctx, off + ctx_beside(ctx), to, len);
}

static __always_inline int same_mac(__u8 *a, __u8 *b)
{
	return *(__u32 *)a == *(__u32 *)b && *(__u16 *)(a + 4) == *(__u16 *)(b + 4);
}

/* The same of memory that is aligned by two: on the stack a wider read must be aligned. */
static __always_inline int same_halves(__u8 *a, __u8 *b)
{
	__u16 *x = (void *)a, *y = (void *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

/* Whether the workload may use an address that is not the one in its record. */
static __always_inline int may_use(struct net *n, __u64 high, __u64 low)
{
	__u32 scope = exact_scope(WEIR_EX_ADDRESS, n->chain->vid, 0);

	if (!(n->in->flags & WEIR_VF_MORE_ADDRESSES))
		return 0;
	return net_find(n->chain, scope, high, low) != 0;
}

static __always_inline int may_use4(struct net *n, __u32 address)
{
	return address && (address == n->in->address4 || may_use(n, 0, NET_MAPPED(address)));
}

static __always_inline int is_link_local6(__u32 *a)
{
	return (a[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

static __always_inline int is_unspecified6(__u32 *a)
{
	return !(a[0] | a[1] | a[2] | a[3]);
}

/* Declared addresses, and the link-local one that is made of the MAC address that the frame comes from (RFC 4291, appendix A). */
static __always_inline int may_use6(struct net *n, __u32 *a, __u8 *mac)
{
	__u32 *own = n->in->address6;

	/* Keys of IPv4 look like these. */
	if (is_unspecified6(a) || (!(a[0] | a[1]) && a[2] == bpf_htonl(0xffff)))
		return 0;
	if (a[0] == own[0] && a[1] == own[1] && a[2] == own[2] && a[3] == own[3])
		return 1;
	if (a[0] == bpf_htonl(0xfe800000) && !a[1] && a[2] == bpf_htonl((mac[0] ^ 2) << 24 | mac[1] << 16 | mac[2] << 8 | 0xff) &&
	    a[3] == bpf_htonl(0xfeU << 24 | mac[3] << 16 | mac[4] << 8 | mac[5]))
		return 1;
	return may_use(n, (__u64)a[1] << 32 | a[0], (__u64)a[3] << 32 | a[2]);
}

static __always_inline __u32 guard_arp(ctx_t *ctx, struct net *n)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *p = data + 14;
	__u32 flags = n->in->flags, sender, target;

	if ((flags & GUARD_ANY) == GUARD_ANY)
		return WEIR_NO_REASON;
	if (p + 28 > end)
		return WEIR_R_neighbour_bad;
	/* Ethernet, IPv4, 6, 4, a request or an answer. */
	if (*(__u32 *)p != bpf_htonl(0x00010800) || (*(__u32 *)(p + 4) != bpf_htonl(0x06040001) && *(__u32 *)(p + 4) != bpf_htonl(0x06040002)))
		return WEIR_R_neighbour_bad;
	if (!(flags & WEIR_VF_ANY_MAC) && !same_mac(p + 8, n->in->mac))
		return WEIR_R_neighbour_spoofed;
	if (flags & WEIR_VF_ANY_ADDRESS)
		return WEIR_NO_REASON;
	sender = *(__u32 *)(p + 14);
	target = *(__u32 *)(p + 24);
	if (sender)
		return may_use4(n, sender) ? WEIR_NO_REASON : WEIR_R_neighbour_spoofed;
	/* A probe for a duplicate. */
	if (p[7] != 1)
		return WEIR_R_neighbour_spoofed;
	if (!may_use4(n, target))
		n->chain->place |= WEIR_CW_PROBE;
	return WEIR_NO_REASON;
}

static __always_inline __u32 guard4(ctx_t *ctx, struct net *n)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip = data + 14;
	__u32 source, size, protocol, own;
	__u8 head[4];

	if (ip + 20 > end)
		return WEIR_R_ip4_truncated;
	source = *(__u32 *)(ip + 12);
	protocol = ip[9];
	own = n->in->flags & WEIR_VF_ANY_ADDRESS;
	/* 0.0.0.0: a host that asks for its address, and nothing else. */
	if (!own)
		own = source ? may_use4(n, source) : net_is_dhcp(data, end);
	if (!own)
		return protocol == IPPROTO_IGMP ? WEIR_R_group_spoofed : WEIR_R_spoofed;
	if ((protocol != IPPROTO_UDP && protocol != IPPROTO_ICMP) || *(__be16 *)(ip + 6) & bpf_htons(0x1fff))
		return WEIR_NO_REASON;
	size = (ip[0] & 15) * 4;
	if (size < 20 || guard_load(ctx, 14 + size, head, 4))
		return WEIR_NO_REASON;
	if (protocol == IPPROTO_ICMP) {
		if ((head[0] != ICMP4_REDIRECT && head[0] != ICMP4_RA) || n->in->flags & WEIR_VF_MAY_RA)
			return WEIR_NO_REASON;
		return WEIR_R_ra_guard;
	}
	if ((head[2] << 8 | head[3]) != DHCP_CLIENT4 || n->in->flags & WEIR_VF_MAY_DHCP)
		return WEIR_NO_REASON;
	return WEIR_R_dhcp_guard;
}

static __always_inline int is_header6(__u32 protocol)
{
	switch (protocol) {
	case 0: case 43: case 44: case 51: case 60: case 135: case 139: case 140:
		return 1;
	}
	return 0;
}

/* One header. Loops are bpf_loop(): the verifier would walk every way through eight of them. */
static long guard_header(__u32 i, void *arg)
{
	struct upper *u = arg;
	__u32 at = u->at;
	__u8 head[8];

	if (!is_header6(u->protocol))
		return 1;
	u->reason = WEIR_R_ip6_eh_truncated;
	if (i == GUARD_HEADERS)
		u->reason = WEIR_R_ip6_eh_deep;
	if (i == GUARD_HEADERS || at > CTX_REACH - 16 || guard_load(u->ctx, at, head, 8))
		return 1;
	u->reason = WEIR_NO_REASON;
	if (u->protocol == 44) {
		if ((head[2] << 8 | head[3]) & 0xfff8) {
			u->elsewhere = 1;
			return 1;
		}
		u->fragment = 1;
		u->at = at + 8;
	} else if (u->protocol == 51) {
		u->at = at + (head[1] + 2) * 4;
	} else {
		u->at = at + (head[1] + 1) * 8;
	}
	u->protocol = head[0];
	return 0;
}

static long guard_option(__u32 i, void *arg)
{
	__u8 option[8] __attribute__((aligned(8)));
	struct options *o = arg;
	__u32 at = o->at, len;

	if (at >= o->end)
		return 1;
	o->reason = WEIR_R_neighbour_bad;
	/* One more than are read is too many. */
	if (i == GUARD_OPTIONS || at > CTX_REACH - 16 || guard_load(o->ctx, at, option, 8))
		return 1;
	len = option[1] * 8;
	if (!len || at + len > o->end)
		return 1;
	if (option[0] == o->wanted) {
		if (o->forbidden)
			return 1;
		o->reason = WEIR_R_neighbour_spoofed;
		if (!o->any_mac && (len != 8 || !same_halves(option + 2, o->mac)))
			return 1;
	}
	o->reason = WEIR_NO_REASON;
	o->at = at + len;
	return 0;
}

/* A message of neighbour discovery, whose first four bytes are `icmp` (RFC 4861, 6.1 and 7.1): whose addresses it speaks of. */
static __always_inline __u32 guard_discovery(ctx_t *ctx, struct net *n, struct upper *u, __u8 *icmp, __u8 *mac, __u32 *source, __u32 own)
{
	__u32 flags = n->in->flags, nobody = is_unspecified6(source), kind = icmp[0], fixed, end, len;
	struct options o = { .reason = WEIR_NO_REASON };
	__u32 target[4];
	__u8 ip[4];

	/* Payload length, next header, hop limit. */
	if (guard_load(ctx, 14 + 4, ip, 4))
		return WEIR_R_ip6_truncated;
	len = ip[0] << 8 | ip[1];
	end = 14 + 40 + len;
	fixed = kind == ICMP6_RS ? 8 : kind == ICMP6_RA ? 16 : kind == ICMP6_REDIRECT ? 40 : 24;
	/* RFC 6980: never in fragments. */
	if (u->fragment || ip[3] != 255 || icmp[1])
		return WEIR_R_neighbour_bad;
	if (!len || end > ctx_len(ctx) - ctx_beside(ctx) || u->at + fixed > end)
		return WEIR_R_neighbour_bad;
	if (!own && !(nobody && (kind == ICMP6_RS || kind == ICMP6_NS)))
		return WEIR_R_neighbour_spoofed;
	/* The link-layer address of the sender, or of the target of an advertisement. */
	o.wanted = kind == ICMP6_NA ? 2 : kind == ICMP6_REDIRECT ? 0 : 1;
	o.at = u->at + fixed;
	o.end = end;
	o.forbidden = nobody;
	o.any_mac = flags & WEIR_VF_ANY_MAC;
	o.ctx = ctx;
	__builtin_memcpy(o.mac, mac, 6);
	bpf_loop(GUARD_OPTIONS + 1, guard_option, &o, 0);
	if (o.reason != WEIR_NO_REASON)
		return o.reason;
	if (flags & WEIR_VF_ANY_ADDRESS)
		return WEIR_NO_REASON;
	if (kind != ICMP6_NA && !(kind == ICMP6_NS && nobody))
		return WEIR_NO_REASON;
	if (guard_load(ctx, u->at + 8, target, 16))
		return WEIR_R_neighbour_bad;
	if (may_use6(n, target, mac))
		return WEIR_NO_REASON;
	if (kind == ICMP6_NA)
		return WEIR_R_neighbour_spoofed;
	/* Duplicate address detection for an address of somebody else. */
	n->chain->place |= WEIR_CW_PROBE;
	return WEIR_NO_REASON;
}

static __always_inline __u32 guard6(ctx_t *ctx, struct net *n)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end), *ip = data + 14, mac[6] __attribute__((aligned(8))), head[4];
	__u32 flags = n->in->flags, own, source[4];
	struct upper u = { .ctx = ctx, .at = 14 + 40, .reason = WEIR_NO_REASON };

	if (ip + 40 > end)
		return WEIR_R_ip6_truncated;
	__builtin_memcpy(mac, data + 6, 6);
	__builtin_memcpy(source, ip + 8, 16);
	u.protocol = ip[6];
	own = flags & WEIR_VF_ANY_ADDRESS || may_use6(n, source, mac);
	if (is_header6(u.protocol))
		bpf_loop(GUARD_HEADERS + 1, guard_header, &u, 0);
	if (u.reason != WEIR_NO_REASON)
		return u.reason;
	if (u.elsewhere || (u.protocol != IPPROTO_UDP && u.protocol != IPPROTO_ICMPV6))
		return own ? WEIR_NO_REASON : WEIR_R_spoofed;
	if (u.at > CTX_REACH - 64 || guard_load(ctx, u.at, head, 4))
		return WEIR_R_ip6_eh_truncated;
	if (u.protocol == IPPROTO_UDP) {
		if (!own)
			return WEIR_R_spoofed;
		if ((head[2] << 8 | head[3]) != DHCP_CLIENT6 || flags & WEIR_VF_MAY_DHCP)
			return WEIR_NO_REASON;
		return WEIR_R_dhcp_guard;
	}
	switch (head[0]) {
	case ICMP6_RA: case ICMP6_REDIRECT:
		if (!(flags & WEIR_VF_MAY_RA))
			return WEIR_R_ra_guard;
		return guard_discovery(ctx, n, &u, head, mac, source, own);
	case ICMP6_RS: case ICMP6_NS: case ICMP6_NA:
		return guard_discovery(ctx, n, &u, head, mac, source, own);
	case MLD_QUERY: case 131: case 132: case 143:
		if (flags & WEIR_VF_ANY_ADDRESS || (own && is_link_local6(source)))
			return WEIR_NO_REASON;
		return head[0] != MLD_QUERY && is_unspecified6(source) ? WEIR_NO_REASON : WEIR_R_group_spoofed;
	}
	return own ? WEIR_NO_REASON : WEIR_R_spoofed;
}

/* Whether the frame, without a tag that lies beside it, may enter: a reason if not. Of what lies in the data 54 bytes are readable. */
static __always_inline __u32 net_guard(ctx_t *ctx, struct net *n)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end);
	__u32 flags = n->in->flags;
	__be16 type;

	if (data + 14 > end || data[6] & 1)
		return WEIR_R_spoofed_mac;
	if (!(flags & WEIR_VF_ANY_MAC) && !same_mac(data + 6, n->in->mac))
		return WEIR_R_spoofed_mac;
	type = *(__be16 *)(data + 12);
	if (type == bpf_htons(ETH_P_IP))
		return guard4(ctx, n);
	if (type == bpf_htons(ETH_P_IPV6))
		return guard6(ctx, n);
	if (type == bpf_htons(ETH_P_ARP))
		return guard_arp(ctx, n);
	/* It would hide what may be sent by some only. What is neither IP nor ARP speaks for nobody. */
	if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD))
		return (flags & GUARD_MAY_ALL) == GUARD_MAY_ALL ? WEIR_NO_REASON : WEIR_R_vlan_not_allowed;
	return WEIR_NO_REASON;
}

#endif
