/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The context API of functions: one file of calls for each hook, chosen when
 * compiling (-DWEIR_HOOK_TC). Functions call ctx_* only.
 *
 * Offsets count from the first byte of the frame as it would be on the wire, VLAN tags included.
 * Verdicts inside functions, ledgers and events are those of enum xdp_action on every hook.
 */
#ifndef WEIR_CTX_H
#define WEIR_CTX_H

#define CTX_DROP XDP_DROP
#define CTX_PASS XDP_PASS

/* Largest offset that the byte helpers of XDP take (net/core/filter.c: offset > 0xffff is -EFAULT); tc keeps to it, too. */
#define CTX_REACH	0xffff

/*
 * Gives a length its lower bound of 1 in the verifier's eyes. Linux 6.1 draws none from a test for
 * "not 0", which is how compilers write the checks at the callers. On the 32-bit register ("w"): its bounds survive
 * a 32-bit move there, those of the 64-bit register do not.
 */
#define at_least_one(n)	asm volatile("if %0 > 0 goto +1\n%0 = 1" : "+w"(n))

/* The same for an upper bound that is a constant and holds already. */
#define at_most(n, k)	asm volatile("if %0 <= %1 goto +1\n%0 = %1" : "+w"(n) : "i"(k))

/* A word of the context. In assembly: a hoisted context + offset would be a modified context pointer, which the verifier refuses. */
#define ctx_word(ctx, member) ({ \
	__u32 word_; \
	asm volatile("%0 = *(u32 *)(%1 + %2)" \
		     : "=r"(word_) : "r"(ctx), "i"(__builtin_offsetof(ctx_t, member))); \
	word_; })

/* As ctx_word(), of members that are pointers. */
#define packet_word(ctx, member) ({ \
	__u8 *word_; \
	asm volatile("%0 = *(u32 *)(%1 + %2)" \
		     : "=r"(word_) : "r"(ctx), "i"(__builtin_offsetof(ctx_t, member))); \
	word_; })

#include "chain.h"

#ifdef WEIR_HOOK_TC
#include "ctx_tc.h"
#else
#include "ctx_xdp.h"
#endif

#endif
