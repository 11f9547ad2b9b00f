/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The few kernel types and constants the data plane needs. Packet headers and
 * the eBPF user ABI do not move between kernels, so no CO-RE is needed; a
 * builder needs neither kernel headers nor BTF.
 */
#ifndef WEIR_VMLINUX_MIN_H
#define WEIR_VMLINUX_MIN_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef __u16 __sum16;

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_DEVMAP = 14,
	BPF_MAP_TYPE_CPUMAP = 16,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_MAP_TYPE_DEVMAP_HASH = 25,
	BPF_MAP_TYPE_RINGBUF = 27,
};

#define BPF_ANY			0
#define BPF_F_NO_PREALLOC	(1U << 0)
#define BPF_F_MMAPABLE		(1U << 10)
#define BPF_F_BROADCAST		(1ULL << 3)	/* of bpf_redirect_map */

enum xdp_action {
	XDP_ABORTED = 0,
	XDP_DROP,
	XDP_PASS,
	XDP_TX,
	XDP_REDIRECT,
};

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

/* struct bpf_fib_lookup. Addresses and ports as in packets. */
struct weir_fib {
	__u8 family;		/* AF_INET, AF_INET6 */
	__u8 l4_protocol;
	__be16 sport, dport;
	__u16 tot_len;		/* in: of the packet, 0: no test; out: the MTU */
	__u32 ifindex;		/* in: that it came in by, or leaves by; out: leaves by */
	__u32 tos;		/* IPv4 in: one byte; IPv6 in: flow label and class; out: metric */
	__u32 src[4];
	__u32 dst[4];		/* out: the next hop */
	__u32 vlan;
	__u8 smac[6];
	__u8 dmac[6];
};

#define AF_INET			2
#define AF_INET6		10
#define BPF_FIB_LOOKUP_OUTPUT	2
#define BPF_FIB_LKUP_RET_SUCCESS	0
#define BPF_FIB_LKUP_RET_BLACKHOLE	1
#define BPF_FIB_LKUP_RET_UNREACHABLE	2
#define BPF_FIB_LKUP_RET_PROHIBIT	3
#define BPF_FIB_LKUP_RET_NOT_FWDED	4
#define BPF_FIB_LKUP_RET_NO_NEIGH	7
#define BPF_FIB_LKUP_RET_FRAG_NEEDED	8

#define MAC_BYTES		12	/* both addresses of an Ethernet header */
#define VLAN_BYTES		4
#define TC_ACT_UNSPEC		(-1)	/* the next program decides, the last one passes */
#define BPF_F_INGRESS		1	/* of bpf_redirect(): into the receive path of the device */
#define BPF_HDR_START_NET	1	/* of bpf_skb_load_bytes_relative() */
#define TC_ACT_SHOT		2
#define TC_ACT_REDIRECT		7
#define BPF_F_RECOMPUTE_CSUM	(1U << 0)

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;	/* be16 */
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	__u64 flow_keys;
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	__u64 sk;
	__u32 gso_size;
};

#endif
