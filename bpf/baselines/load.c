// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Somebody's object with programs on several hooks and one map that they
 * share: the others count what happens, and `gate` lets packets through until
 * there was enough of it.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

enum { CALLS, SWITCHES, CONNECTS, PLACES };

const volatile __u64 limit = 0;	/* of calls */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLACES);
	__type(key, __u32);
	__type(value, __u64);
} load SEC(".maps");

static __always_inline void count(__u32 what)
{
	__u64 *word = bpf_map_lookup_elem(&load, &what);

	if (word)
		__sync_fetch_and_add(word, 1);
}

SEC("tp/syscalls/sys_enter_getppid")
int on_call(void *ctx)
{
	count(CALLS);
	return 0;
}

SEC("raw_tp/sched_switch")
int on_switch(void *ctx)
{
	count(SWITCHES);
	return 0;
}

SEC("cgroup/connect4")
int on_connect(void *ctx)
{
	count(CONNECTS);
	return 1;
}

SEC("xdp.frags")
int gate(struct xdp_md *ctx)
{
	__u32 calls = CALLS;
	__u64 *word = bpf_map_lookup_elem(&load, &calls);

	return word && *word > limit ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
