// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * wire: stands at the receive side of one of two joined ports and hands every
 * frame to the sensor, by a tap that the sensor reads. Where the sensor is away
 * or late it decides itself: on to the other port, or dropped. A frame takes
 * exactly one of these ways, and the stack of the host sees none.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>

const volatile __u32 wire_peer = 0;	/* index of the other port */
const volatile __u32 wire_open = 0;	/* frames that the sensor cannot take pass; else they are dropped */
const volatile __u64 wire_bound = 0;	/* frames that may wait for the sensor */
const volatile __u64 wire_away_ns = 0;	/* it is away after so long without a sign of life */

/* The first five words are the sensor's to write; weir-xsk/src/wire.rs has the same order. */
struct wire_state {
	__u64 device;	/* index of the tap; 0: it takes nothing */
	__u64 beat_ns;	/* when it gave its last sign of life, CLOCK_MONOTONIC */
	__u64 taken;	/* frames that it has read */
	__u64 qdisc;	/* weir made the qdisc of the port */
	__u64 promisc;	/* weir made the port promiscuous */
	__u64 handed;	/* to the tap */
	__u64 passed_away;
	__u64 passed_late;
	__u64 dropped_away;
	__u64 dropped_late;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wire_state);
} wire_state SEC(".maps");

/* Whether the sensor is there: it says where, has given a sign of life, and its tap exists, which goes with its process. */
static __always_inline int is_there(struct __sk_buff *skb, __u32 device, __u64 beat_ns)
{
	__u32 mtu = 0;

	/* The coarse clock may be behind a sign of life. */
	if (!device || (__s64)(bpf_ktime_get_coarse_ns() - beat_ns) > (__s64)wire_away_ns)
		return 0;
	/* Positive: the frame exceeds the MTU. The tap takes it all the same. */
	return bpf_check_mtu(skb, device, &mtu, 0, 0) >= 0;
}

SEC("tc")
int wire(struct __sk_buff *skb)
{
	__u32 zero = 0, device;
	struct wire_state *s = bpf_map_lookup_elem(&wire_state, &zero);
	int action = TC_ACT_SHOT, late;

	if (!s)
		goto out;
	device = *(volatile __u64 *)&s->device;
	if (is_there(skb, device, *(volatile __u64 *)&s->beat_ns)) {
		if (*(volatile __u64 *)&s->handed - *(volatile __u64 *)&s->taken < wire_bound) {
			__sync_fetch_and_add(&s->handed, 1);
			action = bpf_redirect(device, 0);
			goto out;
		}
		late = 1;
	} else {
		late = 0;
	}
	if (wire_open) {
		__sync_fetch_and_add(late ? &s->passed_late : &s->passed_away, 1);
		action = bpf_redirect(wire_peer, 0);
	} else {
		__sync_fetch_and_add(late ? &s->dropped_late : &s->dropped_away, 1);
	}
out:
	return action;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
