/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What steer.c and weir-xsk agree on (crates/weir-xsk/src/steer.rs mirrors it): what is steered into sockets, the mark in front of
 * a frame, and the counters. Not part of any function.
 */
#ifndef WEIR_STEER_H
#define WEIR_STEER_H

#define STEER_ALL		0
#define STEER_ETHERTYPE		1
#define STEER_UDP		2	/* destination port; IPv4 without fragments, IPv6 without extension headers */

#define STEER_MARK		0x57454952	/* "WEIR": the bytes before the frame are a mark */

/* In front of a frame whose sockets asked for it: it ends where the frame begins. */
struct steer_mark {
	__u32 mark;		/* STEER_MARK */
	__u32 queue;
	__u64 time;		/* CLOCK_MONOTONIC in ns */
};

struct steer_counters {
	__u64 steered;		/* handed to a socket; what it lost it counts itself */
	__u64 passed;		/* did not match: on to the stack */
	__u64 lonely;		/* matched, and their queue has no socket: on to the stack */
	__u64 unmarked;		/* handed to a socket without a mark that was asked for: no room in front */
};

#endif
