/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What tools/bypass.c and weir-xsk/src/bypass.rs share: the key of a flow in
 * one direction, and what was counted of it. A test compares both through BTF.
 */
#ifndef WEIR_BYPASS_H
#define WEIR_BYPASS_H

#define BYPASS_VLANS	2	/* tags that a key holds */

/* As the packet has it. Addresses, ports: network order; of IPv4 the first four bytes. */
struct bypass_key {
	__u8 source[16];
	__u8 destination[16];
	__be16 source_port;
	__be16 destination_port;
	__u16 vlan[BYPASS_VLANS];	/* identifiers, the outermost first */
	__u8 protocol;
	__u8 version;
	__u8 vlans;
	__u8 pad;
};

/* A cache line: directions are often on different CPUs. */
struct bypass_count {
	__u64 packets;
	__u64 bytes;
	__u64 last_ns;	/* CLOCK_MONOTONIC */
	__u64 pad[5];
};

/* A flow: the direction of its client, and the other one. */
struct bypass_slot {
	struct bypass_count way[2];
};

#endif
