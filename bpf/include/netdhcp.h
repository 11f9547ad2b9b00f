/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packets of DHCP clients (RFC 2131): the only IPv4 packets that a workload may
 * send from 0.0.0.0, and what goes to the helper where a subnet has `dhcp`.
 */
#ifndef WEIR_NETDHCP_H
#define WEIR_NETDHCP_H

#define DHCP_HEADS	42	/* Ethernet, IPv4 and UDP headers */

/* Whether a frame, whose EtherType is IPv4's, is of a client: UDP from port 68 to 67, without options and no fragment. */
static __always_inline int net_is_dhcp(__u8 *data, __u8 *end)
{
	__u8 *ip = data + 14;

	if (data + DHCP_HEADS > end)
		return 0;
	if (ip[0] != 0x45 || ip[9] != 17 || *(__be16 *)(ip + 6) & bpf_htons(0x3fff))
		return 0;
	return *(__be32 *)(ip + 20) == bpf_htonl(68 << 16 | 67);
}

#endif
