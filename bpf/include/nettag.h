/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Priority tags (IEEE 802.1Q): VLAN 0 is no VLAN. Such a frame is taken as
 * untagged; its priority ends here.
 */
#ifndef WEIR_NETTAG_H
#define WEIR_NETTAG_H

static __always_inline int net_is_tag(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

/* Takes a priority tag off that lies beside the data. Returns a reason if another tag is behind it: popping would bring that one to light. */
static __always_inline __u32 net_untag_beside(ctx_t *ctx)
{
#ifdef WEIR_HOOK_TC
	__u8 *data, *end;

	if (!ctx_word(ctx, vlan_present) || ctx_word(ctx, vlan_tci) & 0xfff)
		return WEIR_NO_REASON;
	data = packet_word(ctx, data);
	end = packet_word(ctx, data_end);
	if (data + 14 > end)
		return WEIR_R_frame_short;
	if (net_is_tag(*(__be16 *)(data + 12)))
		return WEIR_R_vlan_not_allowed;
	return bpf_skb_vlan_pop(ctx) ? WEIR_R_internal : WEIR_NO_REASON;
#else
	return WEIR_NO_REASON;
#endif
}

/* ... one that lies in the data: of XDP, of frames out of packet sockets and test runs. */
static __always_inline __u32 net_untag_inside(ctx_t *ctx)
{
	__u8 *data = packet_word(ctx, data), *end = packet_word(ctx, data_end);
#ifdef WEIR_HOOK_TC
	if (ctx_word(ctx, vlan_present))
		return WEIR_NO_REASON;
#endif
	if (data + 18 > end || !net_is_tag(*(__be16 *)(data + 12)) || *(__be16 *)(data + 14) & bpf_htons(0xfff))
		return WEIR_NO_REASON;
	if (net_is_tag(*(__be16 *)(data + 16)))
		return WEIR_R_vlan_not_allowed;
#ifdef WEIR_HOOK_TC
	return bpf_skb_vlan_pop(ctx) ? WEIR_R_internal : WEIR_NO_REASON;
#else
	__builtin_memmove(data + 4, data, 12);
	return bpf_xdp_adjust_head(ctx, 4) ? WEIR_R_internal : WEIR_NO_REASON;
#endif
}

#endif
