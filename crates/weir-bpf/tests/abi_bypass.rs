//! The contract of flows that are kept away from a sensor between C and Rust: layout by the object's BTF, numbers by the header's text.

use crate::contract;
use crate::contract::same_layout;
use weir_bpf::abi;

#[test]
fn keys_and_counts_have_the_same_layout_in_c_and_rust() {
    let btf = contract::btf_of("bypass");
    same_layout!(
        btf,
        "bypass_key",
        abi::BypassKey,
        source,
        destination,
        source_port,
        destination_port,
        vlan,
        protocol,
        version,
        vlans,
        pad
    );
    same_layout!(
        btf,
        "bypass_count",
        abi::BypassCount,
        packets,
        bytes,
        last_ns,
        pad
    );
    same_layout!(btf, "bypass_slot", abi::BypassSlot, way);
    same_layout!(
        btf,
        "shed_count",
        abi::ShedCount,
        packets,
        bytes,
        flows,
        pad
    );
}

#[test]
fn tags_of_a_key_are_as_many_as_the_header_says() {
    let header = include_str!("../../../bpf/include/bypass.h");
    contract::same_numbers(header, &[("BYPASS_VLANS", abi::BYPASS_VLANS as u64)]);
    let header = include_str!("../../../bpf/include/shed.h");
    contract::same_numbers(header, &[("SHED_TICK", u64::from(abi::SHED_TICK))]);
}
