//! The contract of limits that count addresses apart between C and Rust: layout by the object's BTF, numbers by the header's text.

use crate::contract;
use crate::contract::same_layout;
use weir_bpf::abi::{self, meter};

#[test]
fn buckets_have_the_same_layout_in_c_and_rust() {
    let btf = contract::btf_of("middlebox");
    same_layout!(btf, "weir_meter", abi::Meter, name, tat);
    same_layout!(btf, "weir_count", abi::Count, name);
}

#[test]
fn numbers_of_the_header_are_those_of_the_mirror() {
    let header = include_str!("../../../bpf/include/abi/meter.h");
    contract::same_numbers(
        header,
        &[
            ("WEIR_METER_WAYS", abi::METER_WAYS as u64),
            ("WEIR_COUNT_WAYS", abi::COUNT_WAYS as u64),
            ("WEIR_METER_LEN4", meter::LEN4.into()),
            ("WEIR_METER_LEN6", meter::LEN6.into()),
            ("WEIR_METER_SOURCE", meter::SOURCE.into()),
            ("WEIR_METER_DESTINATION", meter::DESTINATION.into()),
        ],
    );
}
