// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * bypass: keeps packets of flows that the sensor has decided away from it, and
 * counts them. One decision, two places: a filter of the capture socket, which
 * changes nothing for the host, and XDP, which drops, for ports with a copy of
 * traffic. What is not surely of such a flow goes on: fragments, options,
 * extension headers, and SYN, FIN and RST, with which flows begin and end.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "bypass.h"
#include "shed.h"

#define ETH_HLEN	14
#define ETH_P_IP	0x0800
#define ETH_P_8021Q	0x8100
#define ETH_P_8021AD	0x88a8
#define ETH_P_QINQ1	0x9100
#define ETH_P_QINQ2	0x9200
#define ETH_P_IPV6	0x86dd
#define TCP_CONTROL	0x07	/* FIN, SYN, RST */

#define TCP_SYN		0x02
#define TCP_ACK		0x10

const volatile __u32 bypass_vlans = 1;	/* tags tell flows apart */
const volatile __u32 shed_mask;		/* slots less one; 0: no flow is left out */
const volatile __u32 shed_ring;		/* whose socket this filter is of */

/* By key: twice the flow's slot, and 1 for the way of its server. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2);
	__type(key, struct bypass_key);
	__type(value, __u32);
} bypass_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bypass_slot);
} bypass_slots SEC(".maps");

/* All of it, by CPU: what flows have must sum to this. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bypass_count);
} bypass_total SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shed_slot);
} shed_slots SEC(".maps");

/* By ring: flows that began at this tick or later are left out; 0: none is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} shed_since SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shed_count);
} shed_total SEC(".maps");

/* A packet at one of the two places. */
struct bypass_packet {
	void *ctx;
	__u32 len;
	__u32 is_xdp;
};

static __always_inline int load(const struct bypass_packet *p, __u32 at, void *to, __u32 len)
{
	if (p->is_xdp)
		return bpf_xdp_load_bytes(p->ctx, at, to, len);
	return bpf_skb_load_bytes(p->ctx, at, to, len);
}

static __always_inline int is_tag(__u16 type)
{
	return type == ETH_P_8021Q || type == ETH_P_8021AD || type == ETH_P_QINQ1 || type == ETH_P_QINQ2;
}

/* Reads the tags in the packet. Returns the type behind them, or -1 if there are too many. */
static __always_inline int tags(const struct bypass_packet *p, struct bypass_key *key, __u32 *at)
{
	__be16 word[2];
	__u16 type;

	if (load(p, 12, word, 2))
		return -1;
	type = bpf_ntohs(word[0]);
	*at = ETH_HLEN;
#pragma unroll
	for (int n = 0; n < BYPASS_VLANS; n++) {
		if (!is_tag(type))
			break;
		if (load(p, *at, word, 4) || key->vlans >= BYPASS_VLANS)
			return -1;
		if (key->vlans)
			key->vlan[1] = bpf_ntohs(word[0]) & 0xfff;
		else
			key->vlan[0] = bpf_ntohs(word[0]) & 0xfff;
		key->vlans++;
		type = bpf_ntohs(word[1]);
		*at += 4;
	}
	return is_tag(type) ? -1 : type;
}

/* Reads the addresses. Returns the bytes that follow the header by its own word, or -1. */
static __always_inline int addresses(const struct bypass_packet *p, struct bypass_key *key, int type, __u32 *at)
{
	__u8 ip[40];
	int left;

	if (type == ETH_P_IP) {
		if (load(p, *at, ip, 20))
			return -1;
		/* Neither options nor a fragment: DF at most. */
		if (ip[0] != 0x45 || ((ip[6] << 8 | ip[7]) & 0x3fff))
			return -1;
		key->version = 4;
		key->protocol = ip[9];
		__builtin_memcpy(key->source, ip + 12, 4);
		__builtin_memcpy(key->destination, ip + 16, 4);
		*at += 20;
		left = (ip[2] << 8 | ip[3]) - 20;
	} else if (type == ETH_P_IPV6) {
		if (load(p, *at, ip, 40) || ip[0] >> 4 != 6)
			return -1;
		key->version = 6;
		key->protocol = ip[6];
		__builtin_memcpy(key->source, ip + 8, 16);
		__builtin_memcpy(key->destination, ip + 24, 16);
		*at += 40;
		left = ip[4] << 8 | ip[5];
	} else {
		return -1;
	}
	return left > 0 && *at + left <= p->len ? left : -1;
}

/* Reads the ports. Returns 0 if the packet is one of the middle of a flow. */
static __always_inline int ports(const struct bypass_packet *p, struct bypass_key *key, __u32 at, int left)
{
	__u8 l4[14];
	int len;

	if (key->protocol == 6) {
		if (left < 20 || load(p, at, l4, 14) || l4[13] & TCP_CONTROL)
			return -1;
		len = (l4[12] >> 4) * 4;
		if (len < 20 || len > left)
			return -1;
	} else if (key->protocol == 17) {
		if (left < 8 || load(p, at, l4, 8))
			return -1;
		len = l4[4] << 8 | l4[5];
		if (len < 8 || len > left)
			return -1;
	} else {
		return -1;
	}
	__builtin_memcpy(&key->source_port, l4, 2);
	__builtin_memcpy(&key->destination_port, l4 + 2, 2);
	return 0;
}

/* Whether the packet is kept away; then it is counted. `bytes`: those that the sensor would have seen. */
static __always_inline int is_bypassed(const struct bypass_packet *p, struct bypass_key *key, __u32 bytes)
{
	__u32 at = 0, cpu = bpf_get_smp_processor_id(), number, *found;
	struct bypass_count *total, *count;
	struct bypass_slot *slot;
	int type, left;

	type = tags(p, key, &at);
	if (type < 0)
		return 0;
	left = addresses(p, key, type, &at);
	if (left < 0 || ports(p, key, at, left))
		return 0;
	if (!bypass_vlans) {
		key->vlan[0] = 0;
		key->vlan[1] = 0;
		key->vlans = 0;
	}
	found = bpf_map_lookup_elem(&bypass_flows, key);
	total = bpf_map_lookup_elem(&bypass_total, &cpu);
	if (!found || !total)
		return 0;
	number = *found >> 1;
	slot = bpf_map_lookup_elem(&bypass_slots, &number);
	if (!slot)
		return 0;
	count = *found & 1 ? &slot->way[1] : &slot->way[0];
	__sync_fetch_and_add(&count->packets, 1);
	__sync_fetch_and_add(&count->bytes, bytes);
	count->last_ns = bpf_ktime_get_ns();
	__sync_fetch_and_add(&total->packets, 1);
	__sync_fetch_and_add(&total->bytes, bytes);
	return 1;
}

static __always_inline __u64 stir(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

/* A hash of the flow of a packet, the same for both directions; 0 if it has none that could be left out. Whether it begins a session. */
static __always_inline __u64 shed_hash(const struct bypass_packet *p, int type, __u32 at, int *begins)
{
	__u64 from = 0, to = 0, word[4];
	__u8 protocol, l4[14], ip[40];

	if (type == ETH_P_IP) {
		if (load(p, at, ip, 20) || (ip[0] & 15) < 5)
			return 0;
		/* Fragments are few, and the first of a datagram alone has its ports. */
		if ((ip[6] << 8 | ip[7]) & 0x3fff)
			return 0;
		protocol = ip[9];
		__builtin_memset(word, 0, sizeof(word));
		__builtin_memcpy(&word[0], ip + 12, 4);
		__builtin_memcpy(&word[2], ip + 16, 4);
		at += (ip[0] & 15) * 4;
	} else if (type == ETH_P_IPV6) {
		if (load(p, at, ip, 40))
			return 0;
		protocol = ip[6];
		__builtin_memcpy(word, ip + 8, 32);
		at += 40;
	} else {
		return 0;
	}
	if (protocol == 6) {
		if (load(p, at, l4, 14))
			return 0;
		*begins = (l4[13] & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	} else if (protocol != 17 || load(p, at, l4, 4)) {
		return 0;
	}
	from = stir(stir(stir(0, word[0]), word[1]), l4[0] << 8 | l4[1]);
	to = stir(stir(stir(0, word[2]), word[3]), l4[2] << 8 | l4[3]);
	return stir(stir(from + to, from ^ to), protocol) | 1;
}

static __always_inline int leave_out(__u32 bytes, __u32 is_new)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct shed_count *total = bpf_map_lookup_elem(&shed_total, &cpu);

	if (!total)
		return 0;
	__sync_fetch_and_add(&total->packets, 1);
	__sync_fetch_and_add(&total->bytes, bytes);
	__sync_fetch_and_add(&total->flows, is_new);
	return 1;
}

/* Whether the flow of the packet is left out; then it is counted. */
static __always_inline int is_shed(const struct bypass_packet *p, __u32 bytes)
{
	__u32 ring = shed_ring, now, place, tag, quiet, at = 0;
	struct bypass_key key = {};
	struct shed_slot *slot;
	int type, begins = 0;
	__u64 *since, hash;

	if (!shed_mask)
		return 0;
	type = tags(p, &key, &at);
	if (type < 0)
		return 0;
	hash = shed_hash(p, type, at, &begins);
	since = bpf_map_lookup_elem(&shed_since, &ring);
	place = hash & shed_mask;
	slot = bpf_map_lookup_elem(&shed_slots, &place);
	if (!hash || !since || !slot)
		return 0;
	now = bpf_ktime_get_ns() >> SHED_TICK;
	tag = hash >> 32;
	quiet = now - slot->last;
	if (slot->last && quiet < (slot->out ? SHED_OUT : SHED_KEPT)) {
		if (slot->tag != tag)
			return *since && begins ? leave_out(bytes, 1) : 0;
		if (slot->out && !(begins && !*since)) {
			slot->last = now;
			return leave_out(bytes, 0);
		}
		if (!slot->out && !(*since && (__s32)(slot->first - (__u32)*since) >= 0)) {
			if (slot->last != now)
				slot->last = now;
			return 0;
		}
		if (!slot->out) {
			slot->last = now;
			slot->out = 1;
			return leave_out(bytes, 1);
		}
	}
	/* It begins, for all that is known. */
	slot->tag = tag;
	slot->first = now;
	slot->last = now;
	slot->out = *since != 0;
	return slot->out ? leave_out(bytes, 1) : 0;
}

SEC("socket")
int bypass_socket(struct __sk_buff *skb)
{
	struct bypass_packet p = { .ctx = skb, .len = skb->len, .is_xdp = 0 };
	struct bypass_key key = {};
	__u32 bytes = skb->len;

	if (skb->vlan_present) {
		/* The device took the outermost tag out, and the sensor puts it back. */
		key.vlan[0] = skb->vlan_tci & 0xfff;
		key.vlans = 1;
		bytes += 4;
	}
	/* All of the packet, or nothing. */
	return is_bypassed(&p, &key, bytes) || is_shed(&p, bytes) ? 0 : 0x7fffffff;
}

SEC("xdp.frags")
int bypass_xdp(struct xdp_md *ctx)
{
	struct bypass_packet p = { .ctx = ctx, .len = bpf_xdp_get_buff_len(ctx), .is_xdp = 1 };
	struct bypass_key key = {};

	return is_bypassed(&p, &key, p.len) ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
