// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * sink: the receiving side of `weir generate --count-on`. Counts the frames of
 * its run, finds repeated and reordered ones by their numbers, and drops them; frames of others go on to the stack.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "generate.h"

const volatile __u32 weir_run = 0;	/* tag of the run */
const volatile __u32 weir_all = 0;	/* frames have no mark (a capture): all are of the run */

#define ETH_P_IP	0x0800
#define ETH_P_8021Q	0x8100
#define ETH_P_IPV6	0x86dd

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct generate_arrived);
} arrived SEC(".maps");

/* A bit for each number that arrived. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} numbers SEC(".maps");

/* The number of a frame of the run. Returns 0 if it is another's, 2 if the time of sending is in *sent, else 1. */
static __always_inline int number_of(struct xdp_md *ctx, __u32 *number, __u64 *sent)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *l4, *ip = data + 14;
	__u32 proto;
	__u16 type;

	if (data + 18 > end)
		return 0;
	type = *(__be16 *)(data + 12);
	if (type == bpf_htons(ETH_P_8021Q)) {
		type = *(__be16 *)(data + 16);
		ip += VLAN_BYTES;
	}
	if (type == bpf_htons(ETH_P_IP)) {
		if (ip + 20 > end)
			return 0;
		proto = ip[9];
		l4 = ip + (ip[0] & 15) * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (ip + 40 > end)
			return 0;
		proto = ip[6];
		l4 = ip + 40;
	} else {
		return 0;
	}
	if (proto == 6) {
		if (l4 + 12 > end || *(__be32 *)(l4 + 8) != bpf_htonl(weir_run))
			return 0;
		*number = bpf_ntohl(*(__be32 *)(l4 + 4));
		return 1;
	}
	if (proto != 17 && proto != 1 && proto != 58)
		return 0;
	if (l4 + 24 > end || *(__be32 *)(l4 + 8) != bpf_htonl(weir_run))
		return 0;
	*number = bpf_ntohl(*(__be32 *)(l4 + 12));
	*sent = (__u64)bpf_ntohl(*(__be32 *)(l4 + 16)) << 32 | bpf_ntohl(*(__be32 *)(l4 + 20));
	return 2;
}

static __always_inline void note_number(struct generate_arrived *a, __u32 number)
{
	__u32 word = number >> 6;
	__u64 *bits = bpf_map_lookup_elem(&numbers, &word), bit = 1ULL << (number & 63);

	if (!bits)
		a->untracked++;
	else if (__sync_fetch_and_or(bits, bit) & bit) {
		a->repeated++;
		return;
	}
	if (number < a->next)
		a->reordered++;
	else
		a->next = (__u64)number + 1;
}

SEC("xdp.frags")
int sink(struct xdp_md *ctx)
{
	__u32 zero = 0, number = 0, len = bpf_xdp_get_buff_len(ctx);
	struct generate_arrived *a = bpf_map_lookup_elem(&arrived, &zero);
	int verdict = XDP_PASS, found = 1;
	__u64 sent = 0, delay;

	if (!a)
		goto out;
	if (!weir_all)
		found = number_of(ctx, &number, &sent);
	if (!found) {
		a->other++;
		goto out;
	}
	verdict = XDP_DROP;
	a->frames++;
	a->bytes += len;
	if (weir_all)
		goto out;
	note_number(a, number);
	if (found == 2 && !(number & 63)) {
		delay = bpf_ktime_get_ns() - sent;
		a->delays++;
		a->delay_sum += delay;
		if (delay > a->delay_max)
			a->delay_max = delay;
	}
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
