/* tc programs for comparison with the kernel over captures: room for headers, protocols, keys of tunnels, copies and redirects. */
#include "bpf.h"

struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex, ifindex, tc_index;
	u32 cb[5], hash, tc_classid, data, data_end, napi_id;
	u32 family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
	u64 flow_keys __attribute__((aligned(8))), tstamp;
	u32 wire_len, gso_segs;
	u64 sk __attribute__((aligned(8)));
	u32 gso_size;
};

static long (*skb_store_bytes)(void *skb, u32 offset, const void *from, u32 len, u64 flags) = (void *)9;
static long (*clone_redirect)(void *skb, u32 ifindex, u64 flags) = (void *)13;
static long (*skb_vlan_push)(void *skb, u16 proto, u16 tci) = (void *)18;
static long (*skb_vlan_pop)(void *skb) = (void *)19;
static long (*skb_get_tunnel_key)(void *skb, void *key, u32 size, u64 flags) = (void *)20;
static long (*skb_set_tunnel_key)(void *skb, void *key, u32 size, u64 flags) = (void *)21;
static long (*tc_redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*skb_load_bytes)(const void *skb, u32 offset, void *to, u32 len) = (void *)26;
static long (*skb_change_proto)(void *skb, u16 proto, u64 flags) = (void *)31;
static long (*skb_change_type)(void *skb, u32 type) = (void *)32;
static long (*skb_change_tail)(void *skb, u32 len, u64 flags) = (void *)38;
static long (*csum_update)(void *skb, u32 csum) = (void *)40;
static void (*set_hash_invalid)(void *skb) = (void *)41;
static long (*skb_change_head)(void *skb, u32 len, u64 flags) = (void *)43;
static long (*set_hash)(void *skb, u32 hash) = (void *)48;
static long (*skb_adjust_room)(void *skb, s32 more, u32 mode, u64 flags) = (void *)50;
static long (*csum_level)(void *skb, u64 level) = (void *)135;
static long (*redirect_neigh)(u32 ifindex, void *params, int len, u64 flags) = (void *)152;
static long (*redirect_peer)(u32 ifindex, u64 flags) = (void *)155;

#define AT(skb) (*(volatile struct __sk_buff *)(skb))

/* The next of a sequence of numbers that follows from the packet. */
static inline __attribute__((always_inline)) u32 next(u32 *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* What is done, and what came of it: the last value of each kind, and all of them in one sum. */
static inline __attribute__((always_inline)) void told(u64 *sum, u32 kind, long value)
{
	*sum = *sum * 31 + kind * 7 + value;
	result(kind, value);
}

static inline __attribute__((always_inline)) void step(struct __sk_buff *skb, u32 *state, u64 *sum)
{
	u32 what = next(state) % 16, a = next(state), b = next(state);
	u64 flags;

	switch (what) {
	case 0: case 1: case 2: case 3:
		/* A header that fits its flags. */
		flags = (a & 1 ? 4 : 2) | (a & 2 ? 8 : 16) | 64 | (u64)(14 + (b & 7)) << 56 | (a & 4 ? 1 : 0);
		told(sum, 0, skb_adjust_room(skb, 36 + b % 40, 1, flags));
		break;
	case 4:
		flags = (u64)(b & 0xff) << 56 | (a & 0x1ff);
		told(sum, 1, skb_adjust_room(skb, b % 70, a >> 10 & 1, flags));
		break;
	case 5: case 6:
		told(sum, 2, skb_adjust_room(skb, -(s32)(b % 60), 1, a & 1 ? (a & 2 ? 128 : 256) : a & 1));
		break;
	case 7:
		told(sum, 3, skb_adjust_room(skb, -(s32)(b % 5000), a % 3, a >> 8 & 0x3ff));
		break;
	case 8:
		told(sum, 4, skb_change_proto(skb, a & 1 ? 0x0008 : 0xdd86, a % 5 == 0));
		break;
	case 9:
		told(sum, 5, skb_change_tail(skb, 10 + b % 300, a % 9 == 0));
		break;
	case 10:
		told(sum, 6, skb_change_head(skb, b % 60, a % 9 == 0));
		break;
	case 11:
		/* skb->protocol by the bytes. */
		told(sum, 7, skb_vlan_push(skb, 0x0081, 5));
		told(sum, 7, skb_vlan_push(skb, 0x0081, 6));
		told(sum, 8, skb_vlan_pop(skb));
		told(sum, 8, skb_vlan_pop(skb));
		break;
	case 12: {
		u16 type = a & 1 ? 0x0008 : a & 2 ? 0xdd86 : 0x0608;

		told(sum, 9, skb_store_bytes(skb, 12, &type, 2, 0));
		break;
	}
	case 13:
		told(sum, 10, csum_level(skb, a % 6));
		told(sum, 10, csum_update(skb, b));
		break;
	case 14:
		told(sum, 11, skb_change_type(skb, a % 6));
		break;
	default:
		if (a & 1)
			told(sum, 12, set_hash(skb, b));
		else
			set_hash_invalid(skb);
		told(sum, 13, AT(skb).hash);
	}
	told(sum, 14, AT(skb).len);
	told(sum, 15, AT(skb).protocol);
	told(sum, 16, AT(skb).vlan_present);
}

SEC("tc")
int room(struct __sk_buff *skb)
{
	u32 state = AT(skb).len, more = 0, i;
	u64 sum = 0;

	skb_load_bytes(skb, 10, &more, 4);
	state ^= more;
#pragma unroll
	for (i = 0; i < 5; i++)
		step(skb, &state, &sum);
	result(20, sum);
	return -1;
}

static u32 sizes[] = { 44, 28, 24, 22, 8, 20, 12, 43 };

SEC("tc")
int keys(struct __sk_buff *skb)
{
	u32 state = AT(skb).len, i, kind;
	u64 flags, sum = 0;
	u8 key[44];

#pragma unroll
	for (i = 0; i < 11; i++)
		((u32 *)key)[i] = next(&state);
	if (state & 0x100)
		*(u16 *)(key + 22) = 0;
	if (state & 0x200)
		*(u32 *)(key + 24) = 0;
	flags = next(&state) & 0x3f & (state & 0x8000000 ? 0x1f : 0x3f);
	switch (next(&state) % 5) {
	case 0: told(&sum, 0, skb_set_tunnel_key(skb, key, 28, flags)); break;
	case 1: told(&sum, 0, skb_set_tunnel_key(skb, key, 8, flags)); break;
	case 2: told(&sum, 0, skb_set_tunnel_key(skb, key, 12, flags)); break;
	default: told(&sum, 0, skb_set_tunnel_key(skb, key, 44, flags));
	}
	flags = next(&state) % 3 ? flags & 1 : next(&state) & 3;
	switch (next(&state) % 6) {
	case 0: told(&sum, 1, skb_get_tunnel_key(skb, key, 28, flags)); break;
	case 1: told(&sum, 1, skb_get_tunnel_key(skb, key, 8, flags)); break;
	case 2: told(&sum, 1, skb_get_tunnel_key(skb, key, 22, flags)); break;
	case 3: told(&sum, 1, skb_get_tunnel_key(skb, key, 43, flags)); break;
	default: told(&sum, 1, skb_get_tunnel_key(skb, key, 44, flags));
	}
#pragma unroll
	for (i = 0; i < 11; i++)
		told(&sum, 2 + i, ((u32 *)key)[i]);
	result(20, sum);
	return 0;
}

/* To the loopback device, which is 1 in every namespace, and to none. */
SEC("tc")
int copies(struct __sk_buff *skb)
{
	u32 n = AT(skb).len;
	u8 hop[20] = { 2 };

	AT(skb).cb[0] = n;
	result(0, clone_redirect(skb, n & 1, 0));
	result(1, clone_redirect(skb, n & 1, 1));
	result(2, clone_redirect(skb, 1, n & 3));
	result(3, AT(skb).len);
	switch (n % 8) {
	case 0: return tc_redirect(1, 0);
	case 1: return tc_redirect(1, 1);
	case 2: return tc_redirect(1, 2);
	case 3: return redirect_peer(1, n & 8);
	case 4: return redirect_neigh(1, 0, 0, n & 8);
	case 5: return redirect_neigh(1, hop, 20, n & 8);
	case 6: return redirect_neigh(1, hop, 19, 0);
	}
	return 0;
}
