/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The context API of functions, for XDP. Functions call ctx_* only, so that
 * the tc build needs another header and nothing else. Packet bytes are read and
 * written through helpers, which also reach the fragments of frames that are
 * not linear; offsets count from the first byte of the frame.
 */
#ifndef WEIR_CTX_XDP_H
#define WEIR_CTX_XDP_H

#define CTX_SECTION	"xdp.frags"

/* Largest offset that the byte helpers take (net/core/filter.c: offset > 0xffff is -EFAULT). */
#define CTX_REACH	0xffff

/* Bytes of the frame, fragments included. */
static __always_inline __u32 ctx_len(struct xdp_md *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

/*
 * Gives a length its lower bound of 1 in the verifier's eyes. Linux 6.1 draws none from a test for
 * "not 0", which is how compilers write the checks at the callers.
 */
#define at_least_one(n)	asm volatile("if %0 > 0 goto +1\n%0 = 1" : "+r"(n))

static __always_inline long ctx_load(struct xdp_md *ctx, __u32 off, void *to, __u32 len)
{
	at_least_one(len);
	return bpf_xdp_load_bytes(ctx, off, to, len);
}

static __always_inline long ctx_store(struct xdp_md *ctx, __u32 off, void *from, __u32 len)
{
	at_least_one(len);
	return bpf_xdp_store_bytes(ctx, off, from, len);
}

/* Moves the start of the frame: positive `more` makes room, negative takes bytes away. */
static __always_inline long ctx_grow_head(struct xdp_md *ctx, int more)
{
	return bpf_xdp_adjust_head(ctx, -more);
}

static __always_inline long ctx_grow_tail(struct xdp_md *ctx, int more)
{
	return bpf_xdp_adjust_tail(ctx, more);
}

static __always_inline __u32 ctx_queue(struct xdp_md *ctx)
{
	__u32 queue;

	/* In assembly: a hoisted ctx + 16 would be a modified context pointer, which the verifier refuses. */
	asm volatile("%0 = *(u32 *)(%1 + 16)" : "=r"(queue) : "r"(ctx));
	return queue;
}

#endif
