/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Limits that count sources, destinations or pairs apart (meter.h). Part of
 * abi.h. What they mean: docs/semantics.md section 3, "Limits apart".
 */
#ifndef WEIR_ABI_METER_H
#define WEIR_ABI_METER_H

#define WEIR_METER_WAYS	4	/* words of a bucket: one cache line with their names */

/* What a rule with WEIR_RULE_METER has in place of a time-out: which table, and what is counted apart. */
#define WEIR_METER_LEN4		32	/* from this bit on: bits of IPv4 addresses that count; below: number of the table */
#define WEIR_METER_LEN6		40	/* ... of IPv6 addresses */
#define WEIR_METER_SOURCE	48	/* this bit: the source counts */
#define WEIR_METER_DESTINATION	49	/* this bit: the destination counts */

/* A bucket. */
struct weir_meter {
	__u64 name[WEIR_METER_WAYS];	/* hash of rule and addresses, 0: never used */
	__u64 tat[WEIR_METER_WAYS];	/* word of the limit: theoretical arrival time, ns */
};

#define WEIR_COUNT_WAYS	4	/* names of a bucket of a limit of connections */

/* Such a bucket. */
struct weir_count {
	__u64 name[WEIR_COUNT_WAYS];	/* hash of rule and addresses, 0: never used */
};

#endif
