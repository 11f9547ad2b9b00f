//! The contract between C and Rust about sets that packets fill.

use weir_bpf::abi::{self, element};

use crate::contract::{btf_of, same_layout, same_numbers};

const HEADER: &str = include_str!("../../../bpf/include/abi/dynset.h");

#[test]
fn elements_have_the_same_layout_in_c_and_rust() {
    let btf = btf_of("middlebox_graph");
    same_layout!(btf, "weir_element", abi::Element, what, until_ns, high, low);
    same_layout!(btf, "weir_elements", abi::Elements, place);
    same_layout!(btf, "weir_set", abi::SetPlace, first, buckets, tag);
    same_layout!(btf, "weir_set_bit", abi::SetBit, set, address);
}

#[test]
fn numbers_of_the_header_are_those_of_the_mirror() {
    same_numbers(
        HEADER,
        &[
            ("WEIR_DYNSETS", abi::DYNSETS as u64),
            ("WEIR_SET_BITS", abi::SET_BITS as u64),
            ("WEIR_ELEMENTS", abi::ELEMENTS as u64),
            // Discriminants of `weir_policy::dynamic::Address`.
            ("WEIR_A_SOURCE", 0),
            ("WEIR_A_DESTINATION", 1),
            ("WEIR_A_ETH_SOURCE", 2),
            ("WEIR_A_ETH_DESTINATION", 3),
            ("WEIR_ELEMENT_FREE", element::FREE),
            ("WEIR_ELEMENT_MAC", element::MAC),
            ("WEIR_ELEMENT_IP4", element::IP4),
            ("WEIR_ELEMENT_IP6", element::IP6),
            ("WEIR_ELEMENT_CLAIMED", element::CLAIMED),
            ("WEIR_ELEMENT_TAG", element::TAG.into()),
        ],
    );
}
