// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The monitor: counts what becomes of packets after an XDP program decided,
 * which the program never learns. One program for each tracepoint of XDP that is
 * used; they share the map. xdp_redirect is not among them: it fires for every packet and says only what programs count themselves.
 *
 * The tracepoints fire for all programs of the host, also for those that are not weir's; who reads the map picks its devices and maps.
 * Field offsets of kernel structures are relocated when the object is loaded (CO-RE).
 */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include "abi.h"

#define KERNEL __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} KERNEL;

struct net {
	struct ns_common ns;
} KERNEL;

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} KERNEL;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, WEIR_SEEN_KEYS);
	__type(key, struct weir_seen);
	__type(value, struct weir_seen_count);
} seen SEC(".maps");

/* Packets that found no room in the map. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_seen_count);
} unseen SEC(".maps");

static __noinline int count(struct weir_seen *key, __u32 sent, __u32 dropped)
{
	struct weir_seen_count *c, none = {};
	__u32 zero = 0;

	if (!key)
		goto out;
	c = bpf_map_lookup_elem(&seen, key);
	if (!c) {
		bpf_map_update_elem(&seen, key, &none, 1 /* BPF_NOEXIST: another CPU may have been faster */);
		c = bpf_map_lookup_elem(&seen, key);
	}
	if (!c)
		c = bpf_map_lookup_elem(&unseen, &zero);
	if (!c)
		goto out;
	c->sent += sent;
	c->dropped += dropped;
out:
	return 0;
}

static __always_inline __u32 index_of(const struct net_device *dev)
{
	return dev ? dev->ifindex : 0;
}

static __always_inline __u32 netns_of(const struct net_device *dev)
{
	return dev && dev->nd_net.net ? dev->nd_net.net->ns.inum : 0;
}

/* const struct net_device *dev, const struct bpf_prog *xdp, const void *tgt, int err, enum bpf_map_type, u32 map_id, u32 index */
SEC("tp_btf/xdp_redirect_err")
int xdp_redirect_err(__u64 *args)
{
	const struct net_device *from = (void *)args[0];
	struct weir_seen key = { .event = WEIR_SEEN_ERROR };

	key.error = (int)args[3];
	key.netns = netns_of(from);
	key.from = index_of(from);
	key.map = args[5];
	key.target = args[6];
	return count(&key, 0, 1);
}

/* const struct net_device *from_dev, const struct net_device *to_dev, int sent, int drops, int err */
SEC("tp_btf/xdp_devmap_xmit")
int xdp_devmap_xmit(__u64 *args)
{
	const struct net_device *from = (void *)args[0], *to = (void *)args[1];
	struct weir_seen key = { .event = WEIR_SEEN_DEVICE };

	key.error = (int)args[4];
	key.netns = netns_of(to);
	key.from = index_of(from);
	key.target = index_of(to);
	return count(&key, args[2], args[3]);
}

/* int map_id, unsigned int processed, unsigned int drops, int to_cpu */
SEC("tp_btf/xdp_cpumap_enqueue")
int xdp_cpumap_enqueue(__u64 *args)
{
	struct weir_seen key = { .event = WEIR_SEEN_ENQUEUE };

	key.map = args[0];
	key.target = args[3];
	return count(&key, args[1], args[2]);
}

/* int map_id, unsigned int processed, unsigned int drops, int sched, ...; runs on the CPU that the packets are for */
SEC("tp_btf/xdp_cpumap_kthread")
int xdp_cpumap_kthread(__u64 *args)
{
	struct weir_seen key = { .event = WEIR_SEEN_CPU };

	/* It fires for empty rounds, too. */
	if (!(__u32)args[1] && !(__u32)args[2])
		return 0;
	key.map = args[0];
	key.target = bpf_get_smp_processor_id();
	return count(&key, args[1], args[2]);
}

/* const struct net_device *dev, int sent, int drops, int err */
SEC("tp_btf/xdp_bulk_tx")
int xdp_bulk_tx(__u64 *args)
{
	const struct net_device *dev = (void *)args[0];
	struct weir_seen key = { .event = WEIR_SEEN_TX };

	key.error = (int)args[3];
	key.netns = netns_of(dev);
	key.from = index_of(dev);
	key.target = key.from;
	return count(&key, args[1], args[2]);
}

/* const struct net_device *dev, const struct bpf_prog *xdp, u32 act */
SEC("tp_btf/xdp_exception")
int xdp_exception(__u64 *args)
{
	const struct net_device *dev = (void *)args[0];
	struct weir_seen key = { .event = WEIR_SEEN_EXCEPTION };

	key.netns = netns_of(dev);
	key.from = index_of(dev);
	key.target = args[2];
	return count(&key, 0, 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
