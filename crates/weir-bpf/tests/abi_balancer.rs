//! The contract of function `balancer` between C and Rust: layouts by the object's BTF, numbers by the header's text.

use crate::contract;
use crate::contract::same_layout;
use weir_bpf::abi;

#[test]
fn structures_have_the_same_layout_in_c_and_rust() {
    let btf = contract::btf_of("balancer");
    same_layout!(
        btf,
        "weir_lb_key",
        abi::LbKey,
        high,
        low,
        port,
        protocol,
        family,
        pad
    );
    same_layout!(
        btf,
        "weir_lb_prefix",
        abi::LbPrefix,
        bits,
        protocol,
        family,
        port,
        address
    );
    same_layout!(
        btf,
        "weir_lb_service",
        abi::LbService,
        number,
        identity,
        ring_first,
        ring_size,
        mode,
        flags,
        id_bytes,
        pad
    );
    same_layout!(
        btf,
        "weir_lb_server",
        abi::LbServer,
        identity,
        service,
        state,
        mode,
        deliver,
        family,
        address,
        port,
        to,
        mac,
        from,
        service_number,
        cpu,
        gone_at,
        other_port,
        weight
    );
    same_layout!(btf, "weir_lb_back", abi::LbBack, address, port, pad, server);
    same_layout!(btf, "weir_lb_bucket", abi::LbBucket, entry);
    same_layout!(
        btf,
        "weir_lb_count",
        abi::LbCount,
        packets,
        bytes,
        flows,
        pad
    );
}

#[test]
fn tunnels_have_the_same_layout_in_c_and_rust() {
    let btf = contract::btf_of("decapsulate");
    same_layout!(
        btf,
        "weir_tunnel_end",
        abi::TunnelEnd,
        high,
        low,
        family,
        pad
    );
    same_layout!(
        btf,
        "weir_tunnel_from",
        abi::TunnelFrom,
        bits,
        family,
        address
    );
    let header = include_str!("../../../bpf/include/abi/decapsulate.h");
    for (name, value) in [
        ("WEIR_DC_IPIP", abi::decapsulate::IPIP),
        ("WEIR_DC_GUE", abi::decapsulate::GUE),
        ("WEIR_DC_FROM", abi::decapsulate::FROM),
    ] {
        let line = format!("#define {name}\t\t(1 << {})", value.trailing_zeros());
        assert!(header.contains(&line), "{line}");
    }
}

#[test]
fn numbers_of_the_header_are_those_of_the_mirror() {
    use abi::balancer::{self, deliver, feature, flow, mode, service, state};
    let header = include_str!("../../../bpf/include/abi/balancer.h");
    let numbers: &[(&str, u64)] = &[
        ("WEIR_LB_WAYS", balancer::WAYS as u64),
        ("WEIR_LB_QUOTA", balancer::QUOTA as u64),
        ("WEIR_LB_CHUNK", balancer::CHUNK as u64),
        ("WEIR_LB_CPUS", balancer::CPUS as u64),
        ("WEIR_LB_ECHO", balancer::ECHO.into()),
        ("WEIR_LB_TAG", balancer::TAG.into()),
        ("WEIR_LB_STATE", balancer::STATE.into()),
        ("WEIR_LB_SERVER", balancer::SERVER.into()),
        ("WEIR_LB_TIME", balancer::TIME.into()),
        ("WEIR_LB_STATES", balancer::STATES as u64),
        ("WEIR_LB_IPIP", mode::IPIP.into()),
        ("WEIR_LB_GUE", mode::GUE.into()),
        ("WEIR_LB_GUE0", mode::GUE0.into()),
        ("WEIR_LB_NAT", mode::NAT.into()),
        ("WEIR_LB_DSR", mode::DSR.into()),
        ("WEIR_LB_S_QUIC", service::QUIC.into()),
        ("WEIR_LB_NONE", state::NONE.into()),
        ("WEIR_LB_UP", state::UP.into()),
        ("WEIR_LB_DRAIN", state::DRAIN.into()),
        ("WEIR_LB_GONE", state::GONE.into()),
        ("WEIR_LB_D_MAC", deliver::MAC.into()),
        ("WEIR_LB_D_PORT", deliver::PORT.into()),
        ("WEIR_LB_D_CPU", deliver::CPU.into()),
        ("WEIR_LB_NEW", flow::NEW as u64),
        ("WEIR_LB_TCP", flow::TCP as u64),
        ("WEIR_LB_UDP", flow::UDP as u64),
        ("WEIR_LB_CLOSING", flow::CLOSING as u64),
        ("WEIR_LB_TOWARDS", flow::TOWARDS as u64),
        ("WEIR_LB_FROM", flow::FROM as u64),
        ("WEIR_LB_F_ENCAP", feature::ENCAP.into()),
        ("WEIR_LB_F_NAT", feature::NAT.into()),
        ("WEIR_LB_F_PREFIX", feature::PREFIX.into()),
        ("WEIR_LB_F_ANY_PORT", feature::ANY_PORT.into()),
        ("WEIR_LB_F_QUIC", feature::QUIC.into()),
        ("WEIR_LB_F_CPU", feature::CPU.into()),
    ];
    contract::same_numbers(header, numbers);
}
