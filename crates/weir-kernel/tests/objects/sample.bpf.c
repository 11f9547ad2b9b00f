// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The programs that the kernel engine's tests load: one that counts, reports
 * and marks, two that resize the frame, one that the verifier refuses.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

const volatile __u32 verdict = XDP_PASS;
const volatile __u64 marker = 0;
/* A constant of an odd size, so that offsets are not all aligned. */
const volatile __u8 touch_last = 0;
const volatile __u32 shrink_by = 0;

enum { HIT_ALL, HIT_IPV4, HITS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HITS);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

enum { SEEN_LENGTH, SEEN_LINEAR, SEEN_CLOCK, SEEN_MARKER, SEEN_IFINDEX, SEENS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEENS);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} clock SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u32);
} table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} panel SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&hits, &which);

	if (n)
		*n += 1;
}

static __always_inline void note(__u32 which, __u64 value)
{
	bpf_map_update_elem(&seen, &which, &value, BPF_ANY);
}

SEC("xdp.frags")
int sample(struct xdp_md *ctx)
{
	__u64 length = bpf_xdp_get_buff_len(ctx);
	__u16 proto = 0;
	__u32 first = 0;
	__u64 *now;
	__u8 mark = 0xa5;

	count(HIT_ALL);
	if (!bpf_xdp_load_bytes(ctx, 12, &proto, sizeof(proto)) &&
	    proto == bpf_htons(0x0800))
		count(HIT_IPV4);
	note(SEEN_LENGTH, length);
	note(SEEN_LINEAR, ctx->data_end - ctx->data);
	note(SEEN_MARKER, marker);
	note(SEEN_IFINDEX, ctx->ingress_ifindex);
	now = bpf_map_lookup_elem(&clock, &first);
	if (now)
		note(SEEN_CLOCK, *now);
	if (touch_last && length)
		bpf_xdp_store_bytes(ctx, length - 1, &mark, 1);
	bpf_ringbuf_output(&events, &length, sizeof(length), 0);
	return verdict;
}

SEC("xdp.frags")
int grow(struct xdp_md *ctx)
{
	__u8 mark = 0x5a;

	if (bpf_xdp_adjust_head(ctx, -64))
		return XDP_ABORTED;
	if (bpf_xdp_adjust_tail(ctx, 64))
		return XDP_ABORTED;
	if (bpf_xdp_store_bytes(ctx, 0, &mark, 1))
		return XDP_ABORTED;
	return XDP_TX;
}

SEC("xdp.frags")
int shrink(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_tail(ctx, -(int)shrink_by) ? XDP_ABORTED : XDP_TX;
}

SEC("xdp.frags")
int unchecked(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;

	return data[20];
}

char _license[] SEC("license") = "Dual BSD/GPL";
