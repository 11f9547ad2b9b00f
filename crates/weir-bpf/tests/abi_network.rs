//! The contract of the functions of virtual networks between C and Rust: layouts by an object's BTF, numbers by the header's text.

use crate::contract;
use crate::contract::same_layout;
use weir_bpf::abi::{
    self, bridge_flag, cb, cb_where, exact, exact_kind, net_slot, probe, punt, tunnel, tunnel_kind,
    vi_flag, vi_onward,
};

#[test]
#[rustfmt::skip]
fn structures_have_the_same_layout_in_c_and_rust() {
    let btf = contract::btf_of("net_router");
    same_layout!(btf, "weir_vi", abi::Vi, peer, slot, onward, instance, device, flags, tenant, mtu, vlan, mac, room, address4, address6, state);
    same_layout!(btf, "weir_exact", abi::Exact, value, scope, key, extra);
    same_layout!(contract::btf_of("net_bridge"), "weir_net_bridge", abi::NetBridge, members, n_members, remotes, n_remotes, tunnel, storm, age, learned, learned_mask, flags, tenant, state, pad);
    same_layout!(btf, "weir_net_router", abi::NetRouter, length4, length6, learned, learned_mask, flags, tenant, state, pad);
    same_layout!(btf, "weir_net_hop", abi::NetHop, kind, vid, gateway, mac, pad);
    same_layout!(contract::btf_of("net_steer"), "weir_net_steer", abi::NetSteer, ways, n_ways, selections, n_selections);
    same_layout!(contract::btf_of("net_steer"), "weir_net_selection", abi::NetSelection, source, source_mask, target, target_mask, source_low, source_high, target_low, target_high, protocol, ports, pad);
    let punt = contract::btf_of("net_punt");
    same_layout!(punt, "weir_net_punt", abi::NetPunt, selections, n_selections, rate, pad);
    same_layout!(punt, "weir_net_punted", abi::NetPunted, heard_ns, window, punted, injected);
    same_layout!(punt, "weir_net_record", abi::NetRecord, time_ns, generation, vid, tenant, len, unfinished, l4);
    same_layout!(punt, "weir_net_flow_key", abi::NetFlowKey, source, target, vid, from, to, protocol, pad);
    same_layout!(punt, "weir_net_flow", abi::NetFlow, action, vid, idle_ns, seen_ns, packets, bytes);
    same_layout!(btf, "weir_net_learned", abi::NetLearned, key, extra, vid, seen);
    same_layout!(btf, "weir_net_count", abi::NetCount, packets, bytes, dropped, pad);
    same_layout!(btf, "weir_net_chain", abi::NetChain, vid, half, place, calls, rounds, remote, origin, mark, cause, reason, generation, number);
    same_layout!(contract::btf_of("net_workload"), "weir_net_edge", abi::NetEdge, generation);
    same_layout!(btf, "weir_net_drop", abi::NetDrop, vid, reason);
}

#[test]
fn numbers_are_those_of_the_header() {
    let header = include_str!("../../../bpf/include/abi/network.h");
    let numbers: &[(&str, u64)] = &[
        ("WEIR_NET_PROGRAMS", abi::NET_PROGRAMS as u64),
        ("WEIR_NET_LENGTHS", abi::NET_LENGTHS as u64),
        ("WEIR_NET_CALLS", abi::NET_CALLS.into()),
        ("WEIR_NET_ROUNDS", abi::NET_ROUNDS.into()),
        ("WEIR_NS_NOWHERE", net_slot::NOWHERE.into()),
        ("WEIR_NS_DEVICE", net_slot::DEVICE.into()),
        ("WEIR_NS_BRIDGE", net_slot::BRIDGE.into()),
        ("WEIR_NS_ROUTER", net_slot::ROUTER.into()),
        ("WEIR_NS_TUNNEL", net_slot::TUNNEL.into()),
        ("WEIR_NS_FLOOD", net_slot::FLOOD.into()),
        ("WEIR_NS_STEER", net_slot::STEER.into()),
        ("WEIR_NS_PUNT", net_slot::PUNT.into()),
        ("WEIR_NS_EMPTY", net_slot::EMPTY.into()),
        ("WEIR_NS_REFUSE", net_slot::REFUSE.into()),
        ("WEIR_NS_PRIVATE", net_slot::PRIVATE.into()),
        ("WEIR_ON_PEER", vi_onward::PEER as u64),
        ("WEIR_ON_SLOT", vi_onward::SLOT as u64),
        ("WEIR_VF_ANY_MAC", vi_flag::ANY_MAC.into()),
        ("WEIR_VF_ANY_ADDRESS", vi_flag::ANY_ADDRESS.into()),
        ("WEIR_VF_MORE_ADDRESSES", vi_flag::MORE_ADDRESSES.into()),
        ("WEIR_VF_LEARN", vi_flag::LEARN.into()),
        ("WEIR_VF_TRUNK", vi_flag::TRUNK.into()),
        ("WEIR_VF_TUNNEL", vi_flag::TUNNEL.into()),
        ("WEIR_VF_PEER", vi_flag::PEER.into()),
        ("WEIR_VF_EXTERNAL", vi_flag::EXTERNAL.into()),
        ("WEIR_VF_DHCP", vi_flag::DHCP.into()),
        ("WEIR_VF_PUNT", vi_flag::PUNT.into()),
        ("WEIR_VF_MAY_RA", vi_flag::MAY_RA.into()),
        ("WEIR_VF_MAY_DHCP", vi_flag::MAY_DHCP.into()),
        ("WEIR_TA_NO_TENANT", abi::ACCEPTS_NO_TENANT.into()),
        ("WEIR_NI_MAGIC", punt::MAGIC.into()),
        ("WEIR_PUNT_MAX", punt::MOST_BYTES.into()),
        ("WEIR_PUNT_HEARD_NS", punt::HEARD_NS),
        ("WEIR_PUNT_DHCP_RATE", punt::DHCP_RATE.into()),
        ("WEIR_FA_FORWARD", punt::FORWARD.into()),
        ("WEIR_FA_DROP", punt::DROP.into()),
        ("WEIR_EX_DEVICE", exact_kind::DEVICE.into()),
        ("WEIR_EX_STATION", exact_kind::STATION.into()),
        ("WEIR_EX_NEIGHBOUR", exact_kind::NEIGHBOUR.into()),
        ("WEIR_EX_ROUTE", exact_kind::ROUTE.into()),
        ("WEIR_EX_ARP", exact_kind::ARP.into()),
        ("WEIR_EX_ADDRESS", exact_kind::ADDRESS.into()),
        ("WEIR_EX_PEER", exact_kind::PEER.into()),
        ("WEIR_EX_TUNNEL", exact_kind::TUNNEL.into()),
        ("WEIR_EX_MEMBER", exact_kind::MEMBER.into()),
        ("WEIR_EX_VLAN", exact_kind::VLAN.into()),
        ("WEIR_EX_GROUP", exact_kind::GROUP.into()),
        ("WEIR_EX_LOCAL", exact_kind::LOCAL.into()),
        ("WEIR_EX_WAYS", exact::WAYS.into()),
        ("WEIR_EX_KIND", exact::KIND.into()),
        ("WEIR_EX_INSTANCE", exact::INSTANCE.into()),
        ("WEIR_BF_CLOSED", bridge_flag::CLOSED.into()),
        ("WEIR_TK_VXLAN", tunnel_kind::VXLAN.into()),
        ("WEIR_TK_GENEVE", tunnel_kind::GENEVE.into()),
        ("WEIR_TK_GRE", tunnel_kind::GRE.into()),
        ("WEIR_TK_KERNEL", tunnel_kind::KERNEL.into()),
        ("WEIR_CB_VID", cb::VID.into()),
        ("WEIR_CB_WHERE", cb::WHERE.into()),
        ("WEIR_CB_REMOTE", cb::REMOTE.into()),
        ("WEIR_CB_PORT", cb::PORT.into()),
        ("WEIR_CB_MAGIC", cb::MAGIC.into()),
        ("WEIR_CB_IS_OURS", cb::IS_OURS.into()),
        ("WEIR_CW_HALF", cb_where::HALF.into()),
        ("WEIR_CW_TUNNEL", cb_where::TUNNEL.into()),
        ("WEIR_CW_SHOWN", cb_where::SHOWN.into()),
    ];
    contract::same_numbers(header, numbers);
}

#[test]
#[rustfmt::skip]
fn tunnels_have_the_same_layout_and_numbers() {
    // What probes look like is on the wire only: the live tests have them answered.
    let btf = contract::btf_of("net_underlay");
    same_layout!(btf, "weir_net_heard", abi::NetHeard, nonce, heard_ns, rtt_ns, answers, asked, down, pad);
    let header = include_str!("../../../bpf/include/abi/tunnel.h");
    let numbers: &[(&str, u64)] = &[
        ("WEIR_TN_VXLAN_PORT", tunnel::VXLAN_PORT.into()),
        ("WEIR_TN_GENEVE_PORT", tunnel::GENEVE_PORT.into()),
        ("WEIR_TN_CLASS", tunnel::CLASS.into()),
        ("WEIR_TN_TENANT", tunnel::TENANT.into()),
        ("WEIR_TN_NEAR", tunnel::NEAR.into()),
        ("WEIR_TN_ERRORS", tunnel::ERRORS.into()),
        ("WEIR_TP_IDENTIFIER", probe::IDENTIFIER.into()),
        ("WEIR_TP_ETHERTYPE", probe::ETHERTYPE.into()),
        ("WEIR_TP_MAGIC", probe::MAGIC.into()),
        ("WEIR_TP_ASK", probe::ASK.into()),
        ("WEIR_TP_ANSWER", probe::ANSWER.into()),
    ];
    contract::same_numbers(header, numbers);
}
