// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * generator: the sending side of `weir generate`, for test runs with live
 * frames. Every run writes its whole frame (the kernel recycles frames without
 * resetting them), makes the flow's addresses, ports and checksums of it, and marks it with its number and the time.
 *
 * Paced by the clock: a run that comes too early looks at the clock a few times and gives its frame back, so that the kernel can do other
 * work between batches; frames that are late are sent at once, so that the mean holds. Runs after the end give their frames back at once.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "generate.h"

#define IDLE_LOOKS	16	/* at the clock by a run that is too early */
#define MOST_AT_ONCE	64	/* frames without another look: a batch of the kernel */

const volatile __u32 weir_templates = 1;
const volatile __u32 weir_flows = 1;
const volatile __u32 weir_longest = 60;	/* bytes of the frames that the test run hands out */
const volatile __u32 weir_run = 0;	/* tag of this run */
const volatile __u32 weir_in_turn = 0;	/* templates in turn instead of at random: a capture */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct generate_template);
} templates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct generate_flow);
} flows SEC(".maps");

/* Not for each CPU: the thread that runs this may move, and it is one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct generate_state);
} state SEC(".maps");

static __always_inline int end(struct generate_state *s, __u64 now)
{
	s->over = 1;
	s->end = now;
	return 0;
}

/* Whether a frame is due. */
static __always_inline int is_due(struct generate_state *s)
{
	__u64 now, due, late;
	int i;

	if (s->over)
		return 0;
	if (s->frames && s->sent >= s->frames)
		return end(s, bpf_ktime_get_ns());
	if (s->credit) {
		s->credit--;
		return 1;
	}
	now = bpf_ktime_get_ns();
	if (!s->start)
		s->start = now;
	if (s->lasting && now - s->start >= s->lasting)
		return end(s, now);
	late = MOST_AT_ONCE;
	if (s->rate) {
		due = (now - s->start) / 1000 * s->rate / 1000000 + 1;
		if (due <= s->sent) {
#pragma unroll
			for (i = 0; i < IDLE_LOOKS; i++)
				bpf_ktime_get_ns();
			return 0;
		}
		late = due - s->sent;
	}
	s->credit = (late < MOST_AT_ONCE ? late : MOST_AT_ONCE) - 1;
	return 1;
}

static __always_inline __u32 halves(__u32 w)
{
	return (w >> 16) + (w & 0xffff);
}

/* As it stands in the packet, of a sum of words. */
static __always_inline __u16 checksum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return bpf_htons(~sum);
}

/* Makes the frame one of the flow, and marks it. l4 points behind the IP header; 24 bytes from there are inside the frame. */
static __always_inline void mark(__u8 *l4, const struct generate_template *t, const struct generate_flow *f, __u32 number)
{
	__u64 sum = t->l4_sum + halves(weir_run) + halves(number), now;
	__u16 csum;

	if (!(t->flags & GENERATE_ICMP4))
		sum += f->addresses_sum;
	if (t->flags & GENERATE_TCP) {
		*(__be16 *)l4 = f->sport;
		*(__be16 *)(l4 + 2) = f->dport;
		*(__be32 *)(l4 + 4) = bpf_htonl(number);
		*(__be32 *)(l4 + 8) = bpf_htonl(weir_run);
		sum += bpf_ntohs(f->sport) + bpf_ntohs(f->dport);
		*(__be16 *)(l4 + 16) = checksum(sum);
		return;
	}
	now = bpf_ktime_get_ns();
	*(__be32 *)(l4 + 8) = bpf_htonl(weir_run);
	*(__be32 *)(l4 + 12) = bpf_htonl(number);
	*(__be32 *)(l4 + 16) = bpf_htonl(now >> 32);
	*(__be32 *)(l4 + 20) = bpf_htonl(now);
	sum += halves(now >> 32) + halves(now);
	sum += bpf_ntohs(f->sport);
	if (t->flags & GENERATE_ECHO) {
		*(__be16 *)(l4 + 4) = f->sport;
		*(__be16 *)(l4 + 2) = checksum(sum);
		return;
	}
	*(__be16 *)l4 = f->sport;
	*(__be16 *)(l4 + 2) = f->dport;
	sum += bpf_ntohs(f->dport);
	csum = checksum(sum);
	*(__be16 *)(l4 + 6) = csum ? csum : 0xffff;
}

static __always_inline int write_frame(struct xdp_md *ctx, struct generate_template *t, __u32 number)
{
	struct generate_flow *f;
	__u32 len = t->len, at;
	__u8 *data, *end;

	if (len < 14 || len > GENERATE_FRAME || len > weir_longest)
		return -1;
	if (len < weir_longest && bpf_xdp_adjust_tail(ctx, (int)(len - weir_longest)))
		return -1;
	if (bpf_xdp_store_bytes(ctx, 0, t->bytes, len))
		return -1;
	if (t->flags & GENERATE_RAW)
		return 0;
	at = weir_flows > 1 ? number % weir_flows : 0;
	f = bpf_map_lookup_elem(&flows, &at);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (!f)
		return -1;
	if (t->family == 4) {
		if (data + 58 > end)
			return -1;
		*(__u32 *)(data + 26) = *(__u32 *)f->src;
		*(__u32 *)(data + 30) = *(__u32 *)f->dst;
		*(__be16 *)(data + 24) = checksum((__u64)t->ip_sum + f->addresses_sum);
		mark(data + 34, t, f, number);
		return 0;
	}
	if (data + 78 > end)
		return -1;
	__builtin_memcpy(data + 22, f->src, 16);
	__builtin_memcpy(data + 38, f->dst, 16);
	mark(data + 54, t, f, number);
	return 0;
}

SEC("xdp")
int generator(struct xdp_md *ctx)
{
	__u32 zero = 0, which = 0, number, mixed;
	struct generate_state *s = bpf_map_lookup_elem(&state, &zero);
	struct generate_template *t;
	int verdict = XDP_DROP;

	if (!s || !is_due(s))
		goto out;
	number = s->sent;
	if (weir_templates > 1) {
		mixed = number * 0x9e3779b1;
		mixed ^= mixed >> 15;
		mixed *= 0x85ebca77;
		which = weir_in_turn ? s->sent % weir_templates : (__u64)mixed * weir_templates >> 32;
	}
	t = bpf_map_lookup_elem(&templates, &which);
	if (!t || write_frame(ctx, t, number)) {
		s->failed++;
		goto out;
	}
	s->sent++;
	s->bytes += t->len;
	verdict = XDP_TX;
out:
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
