/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Limits that count sources, destinations or pairs apart (meter.h). Part of
 * abi.h. What they mean: docs/semantics.md section 3, "Limits apart".
 */
#ifndef WEIR_ABI_METER_H
#define WEIR_ABI_METER_H

#define WEIR_METER_WAYS	4	/* words of a bucket: one cache line with their names */

/*
 * What a rule with WEIR_RULE_METER or WEIR_RULE_COUNT has in place of a time-out: which table (METER), what is counted apart, and under which
 * name. The name is the id that the rule had when it began to count: edits that renumber it change nothing.
 */
#define WEIR_METER_TABLE	0xffffff	/* these bits: number of the table */
#define WEIR_METER_SOURCE	24	/* this bit: the source counts */
#define WEIR_METER_DESTINATION	25	/* this bit: the destination counts */
#define WEIR_METER_LEN4		26	/* 6 bits from this one on: bits of IPv4 addresses that count */
#define WEIR_METER_LEN6		32	/* 8 bits: ... of IPv6 addresses */
#define WEIR_METER_NAME		40	/* 24 bits: the name */

/* A bucket. */
struct weir_meter {
	__u64 name[WEIR_METER_WAYS];	/* hash of the rule's name and addresses, 0: never used */
	__u64 tat[WEIR_METER_WAYS];	/* word of the limit: theoretical arrival time, ns */
};

#define WEIR_COUNT_WAYS	4	/* names of a bucket of a limit of connections */

/* Such a bucket. */
struct weir_count {
	__u64 name[WEIR_COUNT_WAYS];	/* hash of rule and addresses, 0: never used */
};

#endif
