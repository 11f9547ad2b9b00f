//! The contract of function `filter` between C and Rust: layouts by the object's BTF, numbers by the header's text.

use crate::contract;
use crate::contract::same_layout;
use weir_bpf::abi;

#[test]
fn structures_have_the_same_layout_in_c_and_rust() {
    let btf = contract::btf_of("filter");
    same_layout!(
        btf,
        "weir_filter_rule",
        abi::FilterRule,
        action,
        flags,
        per,
        len4,
        len6,
        slot_src,
        slot_dst,
        cpus,
        cpu_first,
        shed,
        id,
        mark,
        pad,
        above,
        interval_ns,
        burst_ns,
        block_ns
    );
    same_layout!(
        btf,
        "weir_filter_count",
        abi::FilterCount,
        packets,
        bytes,
        dropped,
        blocked
    );
    same_layout!(
        btf,
        "weir_filter_life",
        abi::FilterLife,
        until,
        then,
        row,
        pad
    );
    same_layout!(btf, "weir_filter_top", abi::FilterTop, first, what);
    same_layout!(btf, "weir_filter_limit", abi::FilterLimit, tag, ahead_ns);
    same_layout!(
        btf,
        "weir_filter_block",
        abi::FilterBlock,
        high,
        low,
        until_ns,
        dropped
    );
}

#[test]
fn numbers_of_the_header_are_those_of_the_mirror() {
    use abi::filter::{self, action, feature, flag, kind, per};
    let header = include_str!("../../../bpf/include/abi.h");
    let numbers: &[(&str, u64)] = &[
        ("WEIR_FILTER_CHUNK", filter::CHUNK as u64),
        ("WEIR_FILTER_WORDS", filter::WORDS as u64),
        ("WEIR_FILTER_RULES", filter::RULES as u64),
        ("WEIR_FILTER_BLOCKS", filter::BLOCKS as u64),
        ("WEIR_FILTER_TOP", filter::TOP as u64),
        ("WEIR_FILTER_SUB", filter::SUB as u64),
        ("WEIR_FILTER_KINDS", filter::KINDS as u64),
        ("WEIR_FILTER_HITS", filter::HITS as u64),
        ("WEIR_FILTER_LIVES", filter::LIVES as u64),
        ("WEIR_FILTER_WAYS", filter::WAYS as u64),
        ("WEIR_FILTER_CPUS", filter::CPUS as u64),
        ("WEIR_KIND_IP6", kind::IP6.into()),
        ("WEIR_KIND_FRAGMENT", kind::FRAGMENT.into()),
        ("WEIR_KIND_SYN", kind::SYN.into()),
        ("WEIR_A_ALLOW", action::ALLOW.into()),
        ("WEIR_A_DENY", action::DENY.into()),
        ("WEIR_A_SHED", action::SHED.into()),
        ("WEIR_A_LIMIT", action::LIMIT.into()),
        ("WEIR_A_COOKIE", action::COOKIE.into()),
        ("WEIR_P_RULE", per::RULE.into()),
        ("WEIR_P_SOURCE", per::SOURCE.into()),
        ("WEIR_P_ENTRY", per::ENTRY.into()),
        ("WEIR_FR_HIT_SRC", flag::HIT_SRC.into()),
        ("WEIR_FR_HIT_DST", flag::HIT_DST.into()),
        ("WEIR_FR_ENTRY_DST", flag::ENTRY_DST.into()),
        ("WEIR_FR_MARK", flag::MARK.into()),
        ("WEIR_FR_CPU", flag::CPU.into()),
        ("WEIR_FF_SRC", feature::SRC.into()),
        ("WEIR_FF_DST", feature::DST.into()),
        ("WEIR_FF_SPORT", feature::SPORT.into()),
        ("WEIR_FF_DPORT", feature::DPORT.into()),
        ("WEIR_FF_KIND", feature::KIND.into()),
        ("WEIR_FF_L4", feature::L4.into()),
        ("WEIR_FF_IP6_SRC", feature::IP6_SRC.into()),
        ("WEIR_FF_IP6_DST", feature::IP6_DST.into()),
        ("WEIR_FF_LIVES", feature::LIVES.into()),
        ("WEIR_FF_HITS", feature::HITS.into()),
        ("WEIR_FF_SHED", feature::SHED.into()),
        ("WEIR_FF_LIMIT", feature::LIMIT.into()),
        ("WEIR_FF_BLOCK", feature::BLOCK.into()),
        ("WEIR_FF_COOKIE", feature::COOKIE.into()),
        ("WEIR_FF_CPU", feature::CPU.into()),
        ("WEIR_FF_EXACT", feature::EXACT.into()),
        ("WEIR_FF_ENTRY", feature::ENTRY.into()),
        ("WEIR_FF_DENY_REST", feature::DENY_REST.into()),
        ("WEIR_FF_DENY_OTHER", feature::DENY_OTHER.into()),
        ("WEIR_FF_PROTOCOL", feature::PROTOCOL.into()),
        ("WEIR_FF_ONE", feature::ONE.into()),
    ];
    contract::same_numbers(header, numbers);
}
