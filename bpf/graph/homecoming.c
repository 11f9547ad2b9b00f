// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * homecoming: what a packet that was recirculated leaves the graph by is the
 * pair, and the stack must not see that: addresses, filters and routes are
 * those of the device that it came in by. Runs at tc ingress of the far end,
 * where packets to the stack come out, and of the near end, where those come
 * out that go back by their device.
 *
 * Hooks: tc.
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include "abi.h"

/* `flags`: of bpf_redirect(). What did not come out of the graph goes on as it is. */
static __always_inline int take_home(struct __sk_buff *skb, __u64 flags)
{
	struct weir_meta *meta = (void *)(long)skb->data_meta;
	__u32 device;

	if ((void *)(meta + 1) > (void *)(long)skb->data)
		return TC_ACT_UNSPEC;
	if (meta->magic == WEIR_META_HOME) {
		device = meta->port;
	} else if (meta->magic == WEIR_META_MAGIC && !meta->vid && meta->passes) {
		/* It has a mark, too (meta.h). */
		device = meta->passes;
		skb->mark = meta->mark;
	} else {
		return TC_ACT_UNSPEC;
	}
	return bpf_redirect(device, flags);
}

SEC("tc")
int to_stack(struct __sk_buff *skb)
{
	return take_home(skb, BPF_F_INGRESS);
}

SEC("tc")
int to_device(struct __sk_buff *skb)
{
	return take_home(skb, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
