/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What tunnels between edges share with their Rust half: numbers on the wire, and
 * the probes by which edges know that a tunnel carries (docs/design/tunnels.md). Part of abi.h.
 */
#ifndef WEIR_ABI_TUNNEL_H
#define WEIR_ABI_TUNNEL_H

#define WEIR_TN_VXLAN_PORT	4789	/* RFC 7348 */
#define WEIR_TN_GENEVE_PORT	6081	/* RFC 8926 */
#define WEIR_TN_CLASS		0xff77	/* Geneve option of weir: class (of those for experiments) */
#define WEIR_TN_TENANT		0x01	/* ... and type: number of the tenant, 4 bytes. Others may ignore it */
#define WEIR_TN_NEAR		4096	/* remotes whose way is remembered */
#define WEIR_TN_ERRORS		1024	/* words that limit the rate of errors: interfaces share them by the low bits of their VID */

/* Probes have an identifier of their own, so that they cross what networks cross and reach none of them. No tunnel may have it. */
#define WEIR_TP_IDENTIFIER	0xffffff
#define WEIR_TP_ETHERTYPE	0x88b5	/* IEEE 802, local experiments */
#define WEIR_TP_MAGIC		0x77656972
#define WEIR_TP_ASK		1
#define WEIR_TP_ANSWER		2

/* Behind the Ethernet header of a probe; numbers as on the wire. op and anti add up to 0xffff, so that an answer has the checksums of what it answers. */
struct weir_net_probe {
	__u32 magic;
	__u16 op;
	__u16 anti;
	__u64 nonce;
	__u64 sent_ns;		/* by the asking edge's monotonic clock */
};

/* What is known of a remote, by its `state`. User space writes `nonce` and `down`, the data plane the rest. */
struct weir_net_heard {
	__u64 nonce;		/* of the probe that is out, 0: none */
	__u64 heard_ns;		/* when it last answered: monotonic clock */
	__u64 rtt_ns;
	__u32 answers;		/* to probes of this edge */
	__u32 asked;		/* its probes that were answered here */
	__u32 down;		/* 1: it does not answer */
	__u32 pad;
};

#endif
