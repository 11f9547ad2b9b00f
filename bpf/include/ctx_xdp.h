/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The context API for XDP. Packet bytes are read and written through helpers,
 * which also reach the fragments of frames that are not linear.
 */
#ifndef WEIR_CTX_XDP_H
#define WEIR_CTX_XDP_H

#define CTX_SECTION	"xdp.frags"

typedef struct xdp_md ctx_t;

/* The start of the frame may move: headers in front of a payload can change their length. */
#define CTX_HEAD_MOVES	1

/* What the program returns for a verdict. */
static __always_inline int ctx_return(int verdict)
{
	return verdict;
}

/* Bytes of the frame, fragments included. */
static __always_inline __u32 ctx_len(ctx_t *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

/* Bytes of ctx_len() that lie beside the packet data. */
static __always_inline __u32 ctx_beside(ctx_t *ctx)
{
	return 0;
}

/* Packets on the wire that this one stands for. */
static __always_inline __u32 ctx_segments(ctx_t *ctx)
{
	return 1;
}

static __always_inline long ctx_load(ctx_t *ctx, __u32 off, void *to, __u32 len)
{
	at_least_one(len);
	return bpf_xdp_load_bytes(ctx, off, to, len);
}

static __always_inline long ctx_store(ctx_t *ctx, __u32 off, void *from, __u32 len)
{
	at_least_one(len);
	return bpf_xdp_store_bytes(ctx, off, from, len);
}

/* The first len bytes of the frame, to memory of `room` bytes. */
static __always_inline long ctx_load_head(ctx_t *ctx, void *to, __u32 len, const __u32 room)
{
	return ctx_load(ctx, 0, to, len);
}

/* Replaces the first len bytes, which end behind the Ethernet header and all tags. */
static __always_inline long ctx_store_head(ctx_t *ctx, void *from, __u32 len)
{
	return ctx_store(ctx, 0, from, len);
}

/* Moves the start of the frame: positive `more` makes room, negative takes bytes away. */
static __always_inline long ctx_grow_head(ctx_t *ctx, int more)
{
	return bpf_xdp_adjust_head(ctx, -more);
}

static __always_inline long ctx_grow_tail(ctx_t *ctx, int more)
{
	return bpf_xdp_adjust_tail(ctx, more);
}

/* Whether a sender may have left checksums to the device. */
static __always_inline int ctx_may_be_unfinished(ctx_t *ctx)
{
	return weir_csum_mode == WEIR_CSUM_OFFLOADED;
}

/* Whether a packet whose checksum at `off` looks unfinished is so; looks and the port it came in by are all that XDP has. */
static __always_inline int ctx_is_unfinished(ctx_t *ctx, __u32 off)
{
#ifdef WEIR_PANEL
	struct weir_chain *chain = panel_chain();

	return chain && chain->csum_mode == WEIR_CSUM_OFFLOADED;
#else
	return 1;
#endif
}

/* Whether the packet is on its way out. */
static __always_inline int ctx_transmits(void)
{
	return 0;
}

static __always_inline __u32 ctx_queue(ctx_t *ctx)
{
	return ctx_word(ctx, rx_queue_index);
}

/* weir's number of the port that the packet came in by. */
static __always_inline __u32 ctx_port_in(ctx_t *ctx)
{
#ifdef WEIR_PANEL
	struct weir_chain *chain = panel_chain();

	return chain ? chain->port : 0;
#else
	return weir_port;
#endif
}

/* ... and of the port it leaves by, 0 where that is not known. */
static __always_inline __u32 ctx_port_out(ctx_t *ctx)
{
	return 0;
}

#endif
