/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the generator, its sink and weir-lab agree on: how generated frames are
 * marked, and the values of their maps (crates/weir-lab/src/generate/abi.rs mirrors them). Not part of any function.
 *
 * A frame of a run carries the run's tag and its own number: in TCP in the acknowledgement and the sequence number, else in
 * the first bytes behind the L4 header, in network order: tag, number, time of sending in ns.
 */
#ifndef WEIR_GENERATE_H
#define WEIR_GENERATE_H

#define GENERATE_MARK		16	/* bytes of tag, number and time */
#define GENERATE_FRAME		2016	/* longest frame */

#define GENERATE_ICMP4		1	/* the checksum does not cover the addresses */
#define GENERATE_TCP		2
#define GENERATE_ECHO		4	/* ICMP: no second port, the first one is the identifier */
#define GENERATE_UDP		8	/* a checksum of zero is written as 0xffff */
#define GENERATE_RAW		16	/* of a capture: sent as it is */

/* A frame to be sent, all of it but what differs from flow to flow. Sums are of big-endian 16-bit words, not folded. */
struct generate_template {
	__u32 len;
	__u32 flags;		/* GENERATE_* */
	__u32 family;		/* 4 or 6 */
	__u32 ip_sum;		/* of the IPv4 header without addresses and checksum */
	__u64 l4_sum;		/* of what the L4 checksum covers, without addresses, ports and mark */
	__u8 bytes[GENERATE_FRAME];
	__u64 pad;
};

struct generate_flow {
	__u8 src[16], dst[16];	/* an IPv4 address is the first four bytes */
	__u16 sport, dport;	/* network order */
	__u32 addresses_sum;
};

/* What is to be done, and what was done. */
struct generate_state {
	__u64 rate;		/* frames a second; 0: as fast as it goes */
	__u64 frames;		/* that are to be sent; 0: until the time is over */
	__u64 lasting;		/* ns, 0: no limit */
	__u64 start;		/* by the kernel's clock, 0: not yet */
	__u64 sent;
	__u64 bytes;
	__u64 credit;		/* frames that may be sent without a look at the clock */
	__u64 over;
	__u64 end;		/* when it was over */
	__u64 failed;		/* runs that could not write their frame */
};

/* What one CPU saw arrive. */
struct generate_arrived {
	__u64 frames;		/* of this run */
	__u64 bytes;
	__u64 repeated;		/* their number had arrived before */
	__u64 reordered;	/* a larger number had arrived before on this CPU */
	__u64 untracked;	/* numbers beyond the map of those that arrived */
	__u64 other;		/* frames of others; they go on to the stack */
	__u64 next;		/* largest number so far, + 1 */
	__u64 delays;		/* frames whose delay was taken: one in 64 */
	__u64 delay_sum;	/* ns */
	__u64 delay_max;
};

#endif
