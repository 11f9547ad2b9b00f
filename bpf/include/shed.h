/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Load shedding at a capture socket: while the sensor cannot keep up, flows that
 * began after a time that it names are left out whole, the newest first. So those
 * that stay have all their packets. Flows are remembered in a table of slots by a
 * hash, each with the time of its first and last packet. One whose slot another
 * flow has is kept, unless it begins now.
 */
#ifndef WEIR_SHED_H
#define WEIR_SHED_H

#define SHED_TICK	20	/* a tick is so many bits of nanoseconds: 1.05 ms */
#define SHED_KEPT	57000	/* ticks without a packet after which a slot is free: 60 s */
#define SHED_OUT	9500	/* the same of a flow that is left out: 10 s */

/* A flow. Times in ticks of CLOCK_MONOTONIC, which wrap after 52 days. */
struct shed_slot {
	__u32 tag;	/* bits of its hash that its place does not have */
	__u32 first;
	__u32 last;
	__u32 out;	/* it is left out */
};

/* A cache line for each CPU. */
struct shed_count {
	__u64 packets;
	__u64 bytes;
	__u64 flows;
	__u64 pad[5];
};

#endif
