// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The least router: IPv4 and IPv6 by bpf_fib_lookup, one hop less, out of the
 * device that the kernel's table names. What it does not understand goes to
 * the stack. No VLAN, no errors, no counters.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET		2
#define AF_INET6	10

/* struct bpf_fib_lookup of include/uapi/linux/bpf.h */
struct question {
	__u8 family;
	__u8 l4_protocol;
	__u16 sport;
	__u16 dport;
	__u16 tot_len;
	__u32 ifindex;
	__u32 flowinfo;	/* IPv4: the TOS in the first byte */
	__u32 source[4];
	__u32 destination[4];
	__u32 vlan;
	__u8 smac[6];
	__u8 dmac[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 256);
	__type(key, __u32);	/* interface index */
	__type(value, __u32);
} devices SEC(".maps");

SEC("xdp")
int xdp_fib(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *ip = data + 14;
	struct question fib = {};
	int verdict = XDP_PASS;

	if (ip + 40 > end)
		goto out;
	fib.ifindex = ctx->ingress_ifindex;
	if (data[12] == 0x08 && data[13] == 0x00) {
		if (ip[0] != 0x45 || ip[8] <= 1)
			goto out;
		fib.family = AF_INET;
		*(__u8 *)&fib.flowinfo = ip[1];
		fib.l4_protocol = ip[9];
		fib.tot_len = bpf_ntohs(*(__u16 *)(ip + 2));
		fib.source[0] = *(__u32 *)(ip + 12);
		fib.destination[0] = *(__u32 *)(ip + 16);
	} else if (data[12] == 0x86 && data[13] == 0xdd) {
		if (ip[7] <= 1)
			goto out;
		fib.family = AF_INET6;
		fib.flowinfo = *(__u32 *)ip & bpf_htonl(0x0fffffff);
		fib.l4_protocol = ip[6];
		fib.tot_len = bpf_ntohs(*(__u16 *)(ip + 4)) + 40;
		__builtin_memcpy(fib.source, ip + 8, 16);
		__builtin_memcpy(fib.destination, ip + 24, 16);
	} else {
		goto out;
	}
	if (bpf_fib_lookup(ctx, (void *)&fib, sizeof(fib), 0))
		goto out;
	if (fib.family == AF_INET) {
		__u32 sum = *(__u16 *)(ip + 10);

		/* RFC 1624 for a word that became less by 0x0100 */
		sum += bpf_htons(0x0100);
		*(__u16 *)(ip + 10) = sum + (sum >= 0xffff);
		ip[8]--;
	} else {
		ip[7]--;
	}
	__builtin_memcpy(data, fib.dmac, 6);
	__builtin_memcpy(data + 6, fib.smac, 6);
	verdict = bpf_redirect_map(&devices, fib.ifindex, 0);
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
