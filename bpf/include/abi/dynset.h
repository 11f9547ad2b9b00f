/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The part of abi.h about sets that packets fill: dynset.h.
 */
#ifndef WEIR_ABI_DYNSET_H
#define WEIR_ABI_DYNSET_H

#define WEIR_DYNSETS		32	/* sets of a policy */
#define WEIR_SET_BITS		32	/* pairs of a set and an address that its rules test */
#define WEIR_ELEMENTS		8	/* places of a bucket */

/* Which address of a packet. */
enum weir_address {
	WEIR_A_SOURCE = 0,		/* IPv4 or IPv6 */
	WEIR_A_DESTINATION = 1,
	WEIR_A_ETH_SOURCE = 2,
	WEIR_A_ETH_DESTINATION = 3,
};

/* weir_element.what: sequence number << 32 | tag of its set << 8 | one of these, and WEIR_ELEMENT_CLAIMED while one CPU writes it. */
#define WEIR_ELEMENT_FREE	0
#define WEIR_ELEMENT_MAC	2
#define WEIR_ELEMENT_IP4	4
#define WEIR_ELEMENT_IP6	6
#define WEIR_ELEMENT_CLAIMED	0x80
#define WEIR_ELEMENT_TAG	8

/* An address in a set. It is a number of 128 bits, whatever its kind. */
struct weir_element {
	__u64 what;
	__u64 until_ns;		/* it is in the set before this; all ones: always */
	__u64 high, low;
};

/* Four cache lines. */
struct weir_elements {
	struct weir_element place[WEIR_ELEMENTS];
};

/* Where a set lies. Elements of another tag, which a former policy left there, are none. */
struct weir_set {
	__u32 first;		/* bucket; of a security group, its number */
	__u32 buckets;		/* in a network, 0: a security group (WEIR_EX_GROUP) */
	__u32 tag;		/* of its name, << WEIR_ELEMENT_TAG */
};

/* What a bit of the key says. */
struct weir_set_bit {
	__u8 set;
	__u8 address;		/* enum weir_address */
};

#endif
