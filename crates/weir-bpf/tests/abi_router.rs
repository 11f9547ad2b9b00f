//! The contract of function `router` between C and Rust: layouts by the object's BTF, numbers by the header's text.

use crate::contract;
use crate::contract::same_layout;
use weir_bpf::abi;
use weir_bpf::abi::router::{self, feature, hop, origin, word};

#[test]
#[rustfmt::skip]
fn structures_have_the_same_layout_in_c_and_rust() {
    let btf = contract::btf_of("router_graph");
    same_layout!(btf, "weir_near", abi::Near, until, port, interface, to, from, mtu, pad);
    same_layout!(btf, "weir_port_at", abi::PortAt, port, interface, mtu);
    same_layout!(btf, "weir_interface", abi::Interface, ifindex, port, vlan, mtu, mac, pad, address4, pad2, address6);
    same_layout!(btf, "weir_next_hop", abi::NextHop, kind, family, interface, mtu, address, mac, pad, pad2);
    same_layout!(btf, "weir_group", abi::Group, hop);
    same_layout!(btf, "weir_route", abi::Route, address, len, family, origin, pad, to, metric, pad2);
}

#[test]
fn numbers_are_those_of_the_header() {
    let header = include_str!("../../../bpf/include/abi/router.h");
    let numbers: &[(&str, u64)] = &[
        ("WEIR_RT_INTERFACES", router::INTERFACES as u64),
        ("WEIR_RT_LOW", router::LOW as u64),
        ("WEIR_RT_CHUNK", router::CHUNK as u64),
        ("WEIR_RT_NODE", router::NODE as u64),
        ("WEIR_RT_BUCKETS", router::BUCKETS as u64),
        ("WEIR_RT_DEEPER", word::DEEPER.into()),
        ("WEIR_RT_GROUP", word::GROUP.into()),
        ("WEIR_RT_NUMBER", word::NUMBER.into()),
        ("WEIR_NH_NONE", hop::NONE.into()),
        ("WEIR_NH_GATEWAY", hop::GATEWAY.into()),
        ("WEIR_NH_LINK", hop::LINK.into()),
        ("WEIR_NH_LOCAL", hop::LOCAL.into()),
        ("WEIR_NH_BLACKHOLE", hop::BLACKHOLE.into()),
        ("WEIR_NH_UNREACHABLE", hop::UNREACHABLE.into()),
        ("WEIR_NH_PROHIBIT", hop::PROHIBIT.into()),
        ("WEIR_RO_CONFIGURED", origin::CONFIGURED.into()),
        ("WEIR_RO_COMMAND", origin::COMMAND.into()),
        ("WEIR_RO_KERNEL", origin::KERNEL.into()),
        ("WEIR_RF_OWN", feature::OWN.into()),
        ("WEIR_RF_VLAN", feature::VLAN.into()),
        ("WEIR_RF_STRICT", feature::STRICT.into()),
        ("WEIR_RF_LOOSE", feature::LOOSE.into()),
        ("WEIR_RF_ERRORS", feature::ERRORS.into()),
        ("WEIR_RF_SILENT", feature::SILENT.into()),
        ("WEIR_RF_MACS", feature::MACS.into()),
        ("WEIR_RF_COUNT_ROUTES", feature::COUNT_ROUTES.into()),
        ("WEIR_RF_WIDE", feature::WIDE.into()),
    ];
    contract::same_numbers(header, numbers);
}
