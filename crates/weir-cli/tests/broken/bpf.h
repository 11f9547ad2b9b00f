/* What the broken programs need of the kernel's headers; written here so that none have to be installed. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u16 __be16;
typedef u32 __be32;

#define SEC(name) __attribute__((section(name), used))
#define __noinline __attribute__((noinline))
#define __always_inline inline __attribute__((always_inline))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define bpf_htons(x) ((__be16)__builtin_bswap16(x))
#define ETH_P_IP 0x0800
#define ETH_P_8021Q 0x8100
#define ETH_P_IPV6 0x86dd
#define IPPROTO_UDP 17

enum { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_RINGBUF = 27 };

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
};

struct bpf_spin_lock {
	u32 val;
};

struct ethhdr {
	u8 h_dest[6], h_source[6];
	__be16 h_proto;
} __attribute__((packed));

struct iphdr {
	u8 ihl : 4, version : 4;
	u8 tos;
	__be16 tot_len, id, frag_off;
	u8 ttl, protocol;
	u16 check;
	__be32 saddr, daddr;
};

struct ipv6hdr {
	__be32 version_class_flow;
	__be16 payload_len;
	u8 nexthdr, hop_limit, saddr[16], daddr[16];
};

struct vlan_hdr {
	__be16 tci, encapsulated_proto;
};

struct udphdr {
	__be16 source, dest, len;
	u16 check;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_skb_store_bytes)(void *ctx, u32 offset, const void *from, u32 len, u64 flags) = (void *)9;
static long (*bpf_xdp_adjust_head)(struct xdp_md *ctx, int delta) = (void *)44;
static long (*bpf_xdp_adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;
static long (*bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static long (*bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
static void *(*bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, u64 flags) = (void *)132;
static void (*bpf_ringbuf_discard)(void *data, u64 flags) = (void *)133;
static long (*bpf_loop)(u32 count, void *callback, void *ctx, u64 flags) = (void *)181;
static long (*bpf_xdp_load_bytes)(struct xdp_md *ctx, u32 offset, void *buf, u32 len) = (void *)189;

char _license[] SEC("license") = "Dual BSD/GPL";
