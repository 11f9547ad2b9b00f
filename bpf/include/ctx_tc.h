/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The context API for tc, ingress and egress (tcx, or a clsact filter in
 * direct-action mode). docs/semantics.md section 6 says what differs from XDP.
 *
 * Checksums. A socket buffer is in one of four states (skb->ip_summed), none of which a
 * program can read, and the packet must be right afterwards in all of them:
 *  - NONE, UNNECESSARY: the checksum in the packet is finished (for UNNECESSARY somebody verified it).
 *    weir updates it by RFC 1624; the kernel keeps nothing else.
 *  - COMPLETE: finished, too, and skb->csum holds the sum of the bytes behind the Ethernet header, which the
 *    receiver will use instead of reading them. BPF_F_RECOMPUTE_CSUM takes the old bytes out of that sum and the new ones in,
 *    whatever they mean, so it stays the sum of the packet. The bytes are paired by offset: the Ethernet header is 14 bytes long, an
 *    even number, so counting from it or from behind it pairs alike; its own bytes are not in the sum, but weir
 *    writes them as they were, which takes out what it puts in. Shrinking takes the bytes out of the
 *    sum, growing turns the packet to NONE (both in bpf_skb_change_tail).
 *  - PARTIAL: the field holds the plain pseudo-header sum and the device will finish it, from skb->csum_start to the end.
 *    weir changes the field by what changes in the pseudo-header only. The flag does nothing here. Headers never move, so
 *    csum_start stays right; a packet may grow or shrink at its tail, for the sum ends where the packet does.
 * Whether the last holds is seen by the checksum field, and then asked of bpf_l4_csum_replace, which leaves the field of a PARTIAL
 * packet alone. GSO packets are always cut as if PARTIAL: the stack makes their field the pseudo-header's if it is not.
 *
 * VLAN. The outermost tag is in skb->vlan_tci and not in the data (it is in the data in test runs, and of frames that a
 * packet socket sends). Here it counts as part of the frame: offsets behind it are 4 larger than in the data.
 */
#ifndef WEIR_CTX_TC_H
#define WEIR_CTX_TC_H

#define CTX_SECTION	"tc"

typedef struct __sk_buff ctx_t;

/* Headers in front of a payload stay where they are. */
#define CTX_HEAD_MOVES	0

const volatile __u32 weir_replay;	/* programs with such a map define it with a value */

#ifdef WEIR_PANEL

/*
 * Port numbers of the interfaces of an edge, so that packets on their way out know where they came in. Key: index of the interface * 2 + low
 * bit of the generation.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * WEIR_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} weir_ports SEC(".maps");

#else

const volatile __u32 weir_egress = 0;	/* this copy sees packets on their way out of its port */

#endif

#if !defined(WEIR_NETWORK) && !defined(WEIR_PANEL)
/* Port numbers of the interfaces that weir is attached to, so that packets on their way out know where they came in. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);	/* interface index */
	__type(value, __u32);
} ports SEC(".maps");
#endif

/* Passing lets later programs of the hook see the packet. */
static __always_inline int ctx_return(int verdict)
{
#ifdef WEIR_PANEL
	/* bpf_redirect() was told where to. */
	if (verdict == XDP_TX || verdict == XDP_REDIRECT)
		return TC_ACT_REDIRECT;
#endif
	return verdict == XDP_PASS ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* Bytes of ctx_len() that lie beside the packet data: those of the tag. */
static __always_inline __u32 ctx_beside(ctx_t *ctx)
{
	return ctx_word(ctx, vlan_present) ? VLAN_BYTES : 0;
}

static __always_inline __u32 ctx_len(ctx_t *ctx)
{
	return ctx_word(ctx, len) + ctx_beside(ctx);
}

static __always_inline __u32 ctx_segments(ctx_t *ctx)
{
	__u32 segments = ctx_word(ctx, gso_segs);

	return segments ? segments : 1;
}

/* `off` lies behind the Ethernet header and all tags. */
static __always_inline long ctx_load(ctx_t *ctx, __u32 off, void *to, __u32 len)
{
	at_least_one(len);
	return bpf_skb_load_bytes(ctx, off - ctx_beside(ctx), to, len);
}

static __always_inline long ctx_store(ctx_t *ctx, __u32 off, void *from, __u32 len)
{
	at_least_one(len);
	return bpf_skb_store_bytes(ctx, off - ctx_beside(ctx), from, len, BPF_F_RECOMPUTE_CSUM);
}

/* The first len bytes of the frame, at least an Ethernet header, to memory of `room` bytes, a constant. */
static __always_inline long ctx_load_head(ctx_t *ctx, void *to, __u32 len, const __u32 room)
{
	__u8 *bytes = to;

	if (!ctx_beside(ctx)) {
		at_least_one(len);
		return bpf_skb_load_bytes(ctx, 0, to, len);
	}
	if (bpf_skb_load_bytes(ctx, 0, to, MAC_BYTES))
		return -1;
	*(__be16 *)(bytes + MAC_BYTES) = ctx_word(ctx, vlan_proto);
	*(__be16 *)(bytes + MAC_BYTES + 2) = bpf_htons(ctx_word(ctx, vlan_tci));
	if (len <= MAC_BYTES + VLAN_BYTES)
		return -1;
	len -= MAC_BYTES + VLAN_BYTES;
	at_most(len, room - MAC_BYTES - VLAN_BYTES);
	at_least_one(len);
	return bpf_skb_load_bytes(ctx, MAC_BYTES, bytes + MAC_BYTES + VLAN_BYTES, len);
}

/* Replaces the first len bytes, which end behind the Ethernet header and all tags. The addresses are not written. */
static __always_inline long ctx_store_head(ctx_t *ctx, void *from, __u32 len)
{
	__u8 *bytes = from;
	__u32 tci;

	if (!ctx_beside(ctx)) {
		at_least_one(len);
		return bpf_skb_store_bytes(ctx, 0, from, len, BPF_F_RECOMPUTE_CSUM);
	}
	tci = bpf_ntohs(*(__be16 *)(bytes + MAC_BYTES + 2));
	if (tci != ctx_word(ctx, vlan_tci)) {
		__u32 proto = ctx_word(ctx, vlan_proto);

		/* Taking the tag off pulls a second one out of the data; putting it on pushes that one back. */
		if (bpf_skb_vlan_pop(ctx) || bpf_skb_vlan_push(ctx, proto, tci))
			return -1;
	}
	if (len <= MAC_BYTES + VLAN_BYTES)
		return -1;
	len -= MAC_BYTES + VLAN_BYTES;
	at_most(len, 511);
	at_least_one(len);
	return bpf_skb_store_bytes(ctx, MAC_BYTES, bytes + MAC_BYTES + VLAN_BYTES, len, BPF_F_RECOMPUTE_CSUM);
}

static __always_inline long ctx_grow_head(ctx_t *ctx, int more)
{
	return -1;
}

static __always_inline long ctx_grow_tail(ctx_t *ctx, int more)
{
	return bpf_skb_change_tail(ctx, ctx_word(ctx, len) + more, 0);
}

static __always_inline int ctx_may_be_unfinished(ctx_t *ctx)
{
	return 1;
}

/* Whether a packet whose checksum at `off` looks unfinished is so. In a test run, where nothing ever is, looks decide. */
static __always_inline int ctx_is_unfinished(ctx_t *ctx, __u32 off)
{
	__be16 before, after;

	if (weir_replay || ctx_word(ctx, gso_size))
		return 1;
	off -= ctx_beside(ctx);
	if (bpf_skb_load_bytes(ctx, off, &before, sizeof(before)))
		return 1;
	/* A word that is not the pseudo-header's went from 0 to 1: the checksum of a PARTIAL packet does not follow. */
	if (bpf_l4_csum_replace(ctx, off, 0, bpf_htons(1), sizeof(before)))
		return 1;
	if (bpf_skb_load_bytes(ctx, off, &after, sizeof(after)) || before == after)
		return 1;
	/* Nothing else changed, skb->csum included, so that the old bytes go back without a flag. */
	bpf_skb_store_bytes(ctx, off, &before, sizeof(before), 0);
	return 0;
}

static __always_inline int ctx_transmits(void)
{
#ifdef WEIR_PANEL
	struct weir_chain *chain = panel_chain();

	return chain && chain->away & WEIR_AWAY_TRANSMIT;
#else
	return weir_egress;
#endif
}

/* skb->queue_mapping: the receive queue + 1, 0 for packets of this host. */
static __always_inline __u32 ctx_queue(ctx_t *ctx)
{
	__u32 queue = ctx_word(ctx, queue_mapping);

	return queue ? queue - 1 : 0;
}

#ifdef WEIR_NETWORK

/* 1 for what came in by interface `a`, 2 for `b` (network.h). */
static __always_inline __u32 ctx_port_in(ctx_t *ctx);

#elif defined(WEIR_PANEL)

static __always_inline __u32 ctx_port_in(ctx_t *ctx)
{
	struct weir_chain *chain = panel_chain();
	__u32 key, *port;

	if (!chain)
		return 0;
	if (!(chain->away & WEIR_AWAY_TRANSMIT))
		return chain->port;
	key = ctx_word(ctx, ingress_ifindex) * 2 + (chain->generation & 1);
	port = bpf_map_lookup_elem(&weir_ports, &key);
	return port ? *port : 0;
}

#else

static __always_inline __u32 ctx_port_in(ctx_t *ctx)
{
	__u32 index, *port;

	if (!weir_egress)
		return weir_port;
	index = ctx_word(ctx, ingress_ifindex);
	port = bpf_map_lookup_elem(&ports, &index);
	return port ? *port : 0;
}

#endif

static __always_inline __u32 ctx_port_out(ctx_t *ctx)
{
#ifdef WEIR_PANEL
	struct weir_chain *chain = panel_chain();

	return chain && chain->away & WEIR_AWAY_TRANSMIT ? chain->port : 0;
#else
	return weir_egress ? weir_port : 0;
#endif
}

#endif
