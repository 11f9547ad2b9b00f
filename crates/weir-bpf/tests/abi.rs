//! The contract between C and Rust: sizes, offsets, constants and reasons of abi.rs are those the objects were compiled with.

use std::mem::offset_of;

use weir_bpf::{BASELINES, MONITORS, OBJECTS, TOOLS, abi, object};
use weir_packet::Reason;
use weir_vm::{Btf, Object};

fn btf() -> Btf {
    btf_of("middlebox_graph")
}

fn btf_of(function: &str) -> Btf {
    let bytes = object(function).expect("every function is compiled");
    let object = Object::parse(bytes).expect("the object is well formed");
    object.btf().expect("objects carry BTF").clone()
}

/// Compares a struct's size and every named member with its mirror.
macro_rules! same_layout {
    ($btf:expr, $c:literal, $rust:ty, $($member:ident),+) => {
        let layout = $btf.layout($c).unwrap_or_else(|e| panic!("{}: {e}", $c));
        assert_eq!(layout.size as usize, size_of::<$rust>(), "size of {}", $c);
        $(
            let member = layout.member(stringify!($member)).unwrap_or_else(|| panic!("{} has no {}", $c, stringify!($member)));
            assert_eq!(member.offset() as usize, offset_of!($rust, $member), "{}.{}", $c, stringify!($member));
        )+
    };
}

#[test]
fn what_the_monitor_counts_has_the_same_layout_in_c_and_rust() {
    let bytes = weir_bpf::monitor("monitor").expect("compiled");
    let object = Object::parse(bytes).expect("the object is well formed");
    let btf = object.btf().expect("objects carry BTF");
    same_layout!(
        btf,
        "weir_seen",
        abi::Seen,
        event,
        error,
        netns,
        from,
        map,
        target
    );
    same_layout!(btf, "weir_seen_count", abi::SeenCount, sent, dropped);
}

#[test]
fn structures_have_the_same_layout_in_c_and_rust() {
    let btf = btf();
    same_layout!(btf, "weir_table", abi::Table, n_words, pad, word, mask);
    same_layout!(btf, "weir_slot", abi::Slot, hash, first, what);
    same_layout!(btf, "weir_cell", abi::Cell, slot);
    same_layout!(
        btf,
        "weir_node",
        abi::Node,
        pivot,
        left,
        right,
        first,
        count,
        field,
        pad
    );
    same_layout!(btf, "weir_dim", abi::DimRows, row);
    same_layout!(
        btf,
        "weir_rule",
        abi::Rule,
        shape,
        flags,
        id,
        slot,
        cond_first,
        cond_count,
        dead_from,
        value,
        op_first,
        op_count,
        drop_param,
        rate_limit_ns,
        timeout_ns
    );
    same_layout!(
        btf,
        "weir_tuple",
        abi::Tuple,
        src,
        dst,
        sport,
        dport,
        proto,
        family,
        what
    );
    same_layout!(
        btf,
        "weir_flow",
        abi::Flow,
        life,
        last_ns,
        orig,
        what,
        rule,
        trans,
        side,
        acked,
        timeout_ns,
        trans_tag,
        seq_off,
        ack_off,
        identity,
        born_ns,
        more,
        again_ns,
        again_end,
        again_answer,
        again_window,
        again_scale,
        again_answered,
        again_pad,
        mapping,
        permission
    );
    same_layout!(btf, "weir_parent", abi::Parent, place, sequence);
    same_layout!(btf, "weir_side", abi::Side, end, edge);
    same_layout!(btf, "weir_bucket", abi::Bucket, version, tag);
    same_layout!(btf, "weir_nat_bucket", abi::NatBucket, version, pad, entry);
    same_layout!(
        btf,
        "weir_frag",
        abi::Frag,
        lock,
        at_ns,
        src,
        dst,
        id,
        proto,
        family,
        kind,
        flow,
        flow_seq
    );
    same_layout!(btf, "weir_held", abi::Held, key, state, len, data);
    same_layout!(btf, "weir_pool", abi::Pool, first, count, size);
    same_layout!(
        btf,
        "weir_half",
        abi::Half,
        table_first,
        tables,
        cell_first,
        cells_mask
    );
    same_layout!(btf, "weir_live", abi::LiveWord, now, half);
    same_layout!(btf, "weir_rule_at", abi::RuleAt, place);
    same_layout!(
        btf,
        "weir_cond",
        abi::Cond,
        op,
        flags,
        width,
        shift,
        off,
        len,
        mask,
        set_first,
        set_count,
        u
    );
    same_layout!(
        btf,
        "weir_op",
        abi::Op,
        kind,
        base,
        flags,
        option,
        off,
        len,
        u
    );
    same_layout!(btf, "weir_counter", abi::Counter, packets, bytes);
    same_layout!(
        btf,
        "weir_stats",
        abi::Stats,
        received,
        bytes,
        verdict,
        reason
    );
    same_layout!(btf, "weir_hop", abi::Hop, vid, slot);
    same_layout!(
        btf,
        "weir_chain",
        abi::Chain,
        vid,
        port,
        csum_mode,
        len,
        mark,
        passes,
        hops,
        watched,
        base,
        away,
        generation,
        number
    );
    let watched = btf_of("entry_watched");
    same_layout!(
        watched,
        "weir_watch_want",
        abi::WatchWant,
        session,
        owner,
        until_ns,
        emit,
        vid,
        sample,
        snap,
        ports,
        checks,
        proto_v4,
        proto_v6,
        pad,
        saddr,
        saddr_mask,
        daddr,
        daddr_mask,
        sport,
        dport
    );
    same_layout!(
        watched,
        "weir_watch_event",
        abi::WatchEvent,
        time_ns,
        number,
        generation,
        session,
        cpu,
        kind,
        hop,
        vid,
        port,
        verdict,
        out,
        next_vid,
        next_slot,
        reason,
        len,
        snap,
        queue,
        path
    );
    same_layout!(
        watched,
        "weir_watch_count",
        abi::WatchCount,
        packets,
        asked,
        events,
        lost,
        turn
    );
    let entry = btf_of("entry_graph");
    same_layout!(entry, "weir_edge", abi::Edge, generation);
    same_layout!(
        btf,
        "weir_replay",
        abi::Replay,
        now_ns,
        random,
        port,
        queue,
        mark,
        priority,
        wall_ns
    );
    same_layout!(
        btf,
        "weir_event",
        abi::Event,
        now_ns,
        rule,
        port,
        len,
        verdict,
        snap,
        pad,
        prefix,
        data
    );
    assert_eq!(
        btf.layout("weir_interval").expect("interval").size as usize,
        size_of::<abi::Interval>()
    );
}

#[test]
fn numbers_of_the_header_are_those_of_the_mirror() {
    let header = include_str!("../../../bpf/include/abi.h");
    let find = |name: &str| -> u64 {
        let line = header
            .lines()
            .find(|line| {
                let mut words = line.split_whitespace();
                match (words.next(), words.next()) {
                    (Some("#define"), Some(second)) => second == name,
                    (Some(first), Some("=")) => first == name,
                    _ => false,
                }
            })
            .unwrap_or_else(|| panic!("abi.h has no {name}"));
        let value = line
            .split_once(name)
            .map(|(_, rest)| rest.trim_start().trim_start_matches('='))
            .expect("has a value");
        let value = value
            .split("/*")
            .next()
            .unwrap_or_default()
            .trim()
            .trim_end_matches(',');
        let value = value.trim_matches(['(', ')']);
        match value.split_once("<<") {
            Some((_, shift)) => 1 << shift.trim().parse::<u32>().expect("a shift"),
            None if value.starts_with("0x") => {
                let digits = value.trim_start_matches("0x").trim_end_matches("ULL");
                u64::from_str_radix(digits, 16).unwrap_or_else(|e| panic!("{name} = {value}: {e}"))
            }
            None => value
                .parse()
                .unwrap_or_else(|e| panic!("{name} = {value}: {e}")),
        }
    };
    let numbers: &[(&str, u64)] = &[
        ("WEIR_FRAME_MAX", abi::FRAME_MAX as u64),
        ("WEIR_KEY_WORDS", abi::KEY_WORDS as u64),
        ("WEIR_SLOTS", abi::SLOTS as u64),
        ("WEIR_PROBE_WORDS", abi::PROBE_WORDS as u64),
        ("WEIR_DIMS", abi::DIMS as u64),
        ("WEIR_SLOT_COUNT", abi::slot_bits::COUNT.into()),
        ("WEIR_SLOT_TABLE", abi::slot_bits::TABLE.into()),
        ("WEIR_SLOT_TREE", abi::slot_bits::TREE.into()),
        ("WEIR_HASH_SEED", abi::hash::SEED),
        ("WEIR_HASH_TABLE", abi::hash::TABLE),
        ("WEIR_HASH_WORD", abi::hash::WORD),
        ("WEIR_HASH_END", abi::hash::END),
        ("WEIR_HITS", abi::HITS as u64),
        ("WEIR_VALUE_MAX", abi::VALUE_MAX as u64),
        ("WEIR_PREFIX_MAX", abi::PREFIX_MAX as u64),
        ("WEIR_REASONS", abi::REASONS as u64),
        ("WEIR_SNAP", abi::SNAP as u64),
        ("WEIR_NEXT", abi::NEXT as u64),
        ("WEIR_OUTS", abi::panel::OUTS as u64),
        ("WEIR_VIDS", abi::panel::VIDS as u64),
        ("WEIR_PORTS", abi::panel::PORTS as u64),
        ("WEIR_PROGRAMS", abi::panel::PROGRAMS as u64),
        ("WEIR_DEVICES", abi::panel::DEVICES as u64),
        ("WEIR_SLOT_STACK", abi::panel::STACK.into()),
        ("WEIR_SLOT_DROP", abi::panel::DROP.into()),
        ("WEIR_SLOT_TX", abi::panel::TX.into()),
        ("WEIR_SLOT_DEVICE", abi::panel::DEVICE.into()),
        ("WEIR_META_MAGIC", abi::panel::MAGIC.into()),
        ("WEIR_META_HOME", abi::panel::HOME.into()),
        ("WEIR_TARGETS", abi::redirect::TARGETS as u64),
        ("WEIR_TO_ALL", abi::redirect::TO_ALL.into()),
        ("WEIR_TO_DEVICES", abi::redirect::TO_DEVICES.into()),
        ("WEIR_TO_CPUS", abi::redirect::TO_CPUS.into()),
        ("WEIR_TO_SOCKETS", abi::redirect::TO_SOCKETS.into()),
        ("WEIR_SPREAD_FLOW", abi::redirect::SPREAD_FLOW.into()),
        ("WEIR_SPREAD_ROUND", abi::redirect::SPREAD_ROUND.into()),
        ("WEIR_SEEN_ERROR", abi::seen::ERROR.into()),
        ("WEIR_SEEN_DEVICE", abi::seen::DEVICE.into()),
        ("WEIR_SEEN_ENQUEUE", abi::seen::ENQUEUE.into()),
        ("WEIR_SEEN_CPU", abi::seen::CPU.into()),
        ("WEIR_SEEN_TX", abi::seen::TX.into()),
        ("WEIR_SEEN_EXCEPTION", abi::seen::EXCEPTION.into()),
        ("WEIR_WATCH_SNAP", abi::watch::SNAP as u64),
        ("WEIR_WATCH_PATH", abi::watch::PATH as u64),
        ("WEIR_WATCH_CODE", abi::watch::CODE.into()),
        ("WEIR_W_ENTRY", abi::watch::ENTRY.into()),
        ("WEIR_W_ON", abi::watch::ON.into()),
        ("WEIR_W_END", abi::watch::END.into()),
        ("WEIR_W_DROP", abi::watch::DROP.into()),
        ("WEIR_W_COPY", abi::watch::COPY.into()),
        ("WEIR_WQ_IP4", abi::watch::IP4.into()),
        ("WEIR_WQ_IP6", abi::watch::IP6.into()),
        ("WEIR_WQ_PROTO", abi::watch::PROTO.into()),
        ("WEIR_WQ_SADDR", abi::watch::SADDR.into()),
        ("WEIR_WQ_DADDR", abi::watch::DADDR.into()),
        ("WEIR_WQ_SPORT", abi::watch::SPORT.into()),
        ("WEIR_WQ_DPORT", abi::watch::DPORT.into()),
        ("WEIR_LIVE_TABLES", abi::LIVE_TABLES as u64),
        ("WEIR_DEPTH_MASK", abi::DEPTH_MASK.into()),
        ("WEIR_K_VALID", abi::key::VALID as u64),
        ("WEIR_K_IN", abi::key::IN as u64),
        ("WEIR_K_OUT", abi::key::OUT as u64),
        ("WEIR_K_QUEUE", abi::key::QUEUE as u64),
        ("WEIR_K_ETHER", abi::key::ETHER as u64),
        ("WEIR_K_VLAN", abi::key::VLAN as u64),
        ("WEIR_K_VLAN2", abi::key::VLAN2 as u64),
        ("WEIR_K_IP4", abi::key::IP4 as u64),
        ("WEIR_K_IP6", abi::key::IP6 as u64),
        ("WEIR_K_L4", abi::key::L4 as u64),
        ("WEIR_K_FRAG6", abi::key::FRAG6 as u64),
        ("WEIR_K_IP4OPT", abi::key::IP4OPT as u64),
        ("WEIR_K_TCPOPT", abi::key::TCPOPT as u64),
        ("WEIR_K_SLOT", abi::key::SLOT as u64),
        ("WEIR_K_L4PROTO", abi::key::L4PROTO as u64),
        ("WEIR_K_CT", abi::key::CT as u64),
        ("WEIR_K_MAC", abi::key::MAC as u64),
        ("WEIR_K_SETS", abi::key::SETS as u64),
        ("WEIR_K_CLOCK", abi::key::CLOCK as u64),
        ("WEIR_V_FRAG", abi::valid::FRAG),
        ("WEIR_V_FRAG_FIRST", abi::valid::FRAG_FIRST),
        ("WEIR_V_FRAG_LATER", abi::valid::FRAG_LATER),
        ("WEIR_V_IP4OPT", abi::valid::IP4OPT),
        ("WEIR_V_TCPOPT", abi::valid::TCPOPT),
        ("WEIR_V_FRAG6", abi::valid::FRAG6),
        ("WEIR_V_PORTS", abi::valid::PORTS),
        ("WEIR_V_EH", abi::valid::EH),
        ("WEIR_V_EH_HOPBYHOP", abi::valid::EH_FIRST),
        ("WEIR_V_SLOT", abi::valid::SLOT.into()),
        ("WEIR_RULE_DROP", abi::rule_flag::DROP.into()),
        ("WEIR_RULE_ACCEPT", abi::rule_flag::ACCEPT.into()),
        ("WEIR_RULE_RANDOM", abi::rule_flag::RANDOM.into()),
        ("WEIR_RULE_RATE", abi::rule_flag::RATE.into()),
        ("WEIR_RULE_HIT", abi::rule_flag::HIT.into()),
        ("WEIR_RULE_STATEFUL", abi::rule_flag::STATEFUL.into()),
        ("WEIR_RULE_ACCEPT_ICMP", abi::rule_flag::ACCEPT_ICMP.into()),
        ("WEIR_RULE_REQUIRES", abi::rule_flag::REQUIRES.into()),
        ("WEIR_FLOW_RULES", abi::FLOW_RULES as u64),
        ("WEIR_WAYS", abi::WAYS as u64),
        ("WEIR_NAT_WAYS", abi::NAT_WAYS as u64),
        ("WEIR_FRAG_WAYS", abi::FRAG_WAYS as u64),
        ("WEIR_FLOW_STATES", abi::FLOW_STATES as u64),
        ("WEIR_HELD_WAYS", abi::HELD_WAYS as u64),
        ("WEIR_HELD_BYTES", abi::HELD_BYTES as u64),
        ("WEIR_STATE_LAYOUT", abi::STATE_LAYOUT.into()),
        ("WEIR_O_MAP", abi::op_kind::MAP.into()),
        ("WEIR_O_SHUFFLE", abi::op_kind::SHUFFLE.into()),
        ("WEIR_O_META", abi::op_kind::META.into()),
        ("WEIR_O_VLAN_PUSH", abi::op_kind::VLAN_PUSH.into()),
        ("WEIR_O_VLAN_POP", abi::op_kind::VLAN_POP.into()),
        ("WEIR_O_TTL", abi::op_kind::TTL.into()),
        ("WEIR_O_SET_ADD", abi::op_kind::SET_ADD.into()),
        ("WEIR_O_SET_DELETE", abi::op_kind::SET_DELETE.into()),
        ("WEIR_D_SADDR", abi::choice::SADDR.into()),
        ("WEIR_D_DADDR", abi::choice::DADDR.into()),
        ("WEIR_D_SPORT", abi::choice::SPORT.into()),
        ("WEIR_D_DPORT", abi::choice::DPORT.into()),
        ("WEIR_D_ID", abi::choice::ID.into()),
        ("WEIR_D_LABEL", abi::choice::LABEL.into()),
        ("WEIR_D_SEQ", abi::choice::SEQ.into()),
        ("WEIR_D_ACK", abi::choice::ACK.into()),
        ("WEIR_LIFE_FREE", abi::life::FREE),
        ("WEIR_LIFE_CLAIMED", abi::life::CLAIMED),
        ("WEIR_LIFE_LIVE", abi::life::LIVE),
        ("WEIR_LIFE_MASK", abi::life::MASK),
        ("WEIR_SEEN_AT", abi::life::SEEN_AT.into()),
        ("WEIR_SEEN_ANY", abi::life::SEEN_ANY),
        ("WEIR_SEEN_ACK", abi::life::SEEN_ACK),
        ("WEIR_SEEN_FIN", abi::life::SEEN_FIN),
        ("WEIR_SEEN_RST", abi::life::SEEN_RST),
        ("WEIR_SEEN_REVERSE", abi::life::SEEN_REVERSE.into()),
        ("WEIR_FRAG_END_AT", abi::FRAG_END_AT.into()),
        ("WEIR_SCALE_AT", abi::life::SCALE_AT.into()),
        ("WEIR_SCALE_REVERSE", abi::life::SCALE_REVERSE.into()),
        ("WEIR_SCALE_MASK", abi::life::SCALE_MASK),
        ("WEIR_LIFE_PICKED", abi::life::PICKED),
        ("WEIR_LIFE_ACKED_FIN", abi::life::ACKED_FIN),
        ("WEIR_LIFE_RETRANS_ONE", abi::life::RETRANS_ONE),
        ("WEIR_LIFE_RETRANS", abi::life::RETRANS),
        ("WEIR_LIFE_INEXACT", abi::life::INEXACT),
        ("WEIR_FLOW_NAT", abi::flow_flag::NAT.into()),
        ("WEIR_FLOW_TRANSMIT", abi::flow_flag::TRANSMIT.into()),
        ("WEIR_FLOW_ID_SET", abi::flow_flag::ID_SET.into()),
        ("WEIR_FLOW_ID_MOVED", abi::flow_flag::ID_MOVED.into()),
        ("WEIR_FLOW_LABEL_SET", abi::flow_flag::LABEL_SET.into()),
        ("WEIR_FLOW_LABEL_MOVED", abi::flow_flag::LABEL_MOVED.into()),
        ("WEIR_FLOW_SEQUENCE", abi::flow_flag::SEQUENCE.into()),
        ("WEIR_FLOW_TIMEOUT", abi::flow_flag::TIMEOUT.into()),
        ("WEIR_FLOW_MORE", abi::flow_flag::MORE.into()),
        ("WEIR_FLOW_MAPPED", abi::flow_flag::MAPPED.into()),
        ("WEIR_FLOW_INBOUND", abi::flow_flag::INBOUND.into()),
        (
            "WEIR_FLOW_FILTER_ADDRESS",
            abi::flow_flag::FILTER_ADDRESS.into(),
        ),
        ("WEIR_FLOW_FILTER_NONE", abi::flow_flag::FILTER_NONE.into()),
        ("WEIR_RULE_MAPPING", abi::rule_flag::MAPPING.into()),
        (
            "WEIR_RULE_FILTER_ADDRESS",
            abi::rule_flag::FILTER_ADDRESS.into(),
        ),
        ("WEIR_RULE_FILTER_NONE", abi::rule_flag::FILTER_NONE.into()),
        ("WEIR_F_MAPPING", abi::feature::MAPPING.into()),
        ("WEIR_F_EXPECT", abi::feature::EXPECT.into()),
        ("WEIR_F_MAC", abi::feature::MAC.into()),
        ("WEIR_F_PORTS", abi::feature::PORTS.into()),
        ("WEIR_F_L4PROTO", abi::feature::L4PROTO.into()),
        ("WEIR_F_CT", abi::feature::CT.into()),
        ("WEIR_F_SETS", abi::feature::SETS.into()),
        ("WEIR_F_REJECT", abi::feature::REJECT.into()),
        ("WEIR_F_META", abi::feature::META.into()),
        ("WEIR_F_VLAN", abi::feature::VLAN.into()),
        ("WEIR_F_TTL", abi::feature::TTL.into()),
        ("WEIR_F_METER", abi::feature::METER.into()),
        ("WEIR_F_COUNT", abi::feature::COUNT.into()),
        ("WEIR_F_CLOCK", abi::feature::CLOCK.into()),
        ("WEIR_F_LOG_LIMIT", abi::feature::LOG_LIMIT.into()),
        ("WEIR_F_QUOTA", abi::feature::QUOTA.into()),
        ("WEIR_RULE_TTL", abi::rule_flag::TTL.into()),
        ("WEIR_RULE_METER", abi::rule_flag::METER.into()),
        ("WEIR_RULE_QUOTA", abi::rule_flag::QUOTA.into()),
        ("WEIR_RULE_COUNT", abi::rule_flag::COUNT.into()),
        ("WEIR_RULE_ANSWER", abi::rule_flag::ANSWER.into()),
        ("WEIR_ANSWER_RESET", abi::answer::RESET),
        ("WEIR_ANSWER_ICMP4", abi::answer::ICMP4.into()),
        ("WEIR_ANSWER_ICMP6", abi::answer::ICMP6.into()),
        ("WEIR_RULE_HELPER_TFTP", abi::rule_flag::HELPER_TFTP.into()),
        ("WEIR_FLOW_HELPER_TFTP", abi::flow_flag::HELPER_TFTP.into()),
        ("WEIR_FLOW_EXPECTED", abi::flow_flag::EXPECTED.into()),
        ("WEIR_TUPLE_EXPECTED", abi::TUPLE_EXPECTED.into()),
        ("WEIR_C_RANGE", abi::cond_op::RANGE.into()),
        ("WEIR_C_SET", abi::cond_op::SET.into()),
        ("WEIR_C_OPTION", abi::cond_op::OPTION.into()),
        ("WEIR_C_IP_PAYLOAD", abi::cond_op::IP_PAYLOAD.into()),
        ("WEIR_C_L4_PAYLOAD", abi::cond_op::L4_PAYLOAD.into()),
        ("WEIR_COND_NEGATED", abi::cond_op::NEGATED.into()),
        ("WEIR_O_WORD", abi::op_kind::WORD.into()),
        ("WEIR_O_IP_PAYLOAD", abi::op_kind::IP_PAYLOAD.into()),
        ("WEIR_O_L4_PAYLOAD", abi::op_kind::L4_PAYLOAD.into()),
        ("WEIR_O_STRIP", abi::op_kind::STRIP.into()),
        ("WEIR_O_SET_OPTION", abi::op_kind::SET_OPTION.into()),
        ("WEIR_O_ADD_OPTION", abi::op_kind::ADD_OPTION.into()),
        ("WEIR_O_LOG", abi::op_kind::LOG.into()),
        ("WEIR_B_VLAN", abi::base::VLAN.into()),
        ("WEIR_B_VLAN2", abi::base::VLAN2.into()),
        ("WEIR_B_IP4", abi::base::IP4.into()),
        ("WEIR_B_IP6", abi::base::IP6.into()),
        ("WEIR_B_L4", abi::base::L4.into()),
        ("WEIR_OP_PSEUDO", abi::op_flag::PSEUDO.into()),
        ("WEIR_OP_NEXT_HEADER", abi::op_flag::NEXT_HEADER.into()),
        ("WEIR_OP_LIMITED", abi::op_flag::LIMITED.into()),
        ("WEIR_CSUM_COMPLETE", abi::csum::COMPLETE.into()),
        ("WEIR_CSUM_OFFLOADED", abi::csum::OFFLOADED.into()),
        ("WEIR_F_SLOTS", abi::feature::SLOTS.into()),
        ("WEIR_F_TCPOPT", abi::feature::TCPOPT.into()),
        ("WEIR_F_OPTION_OPS", abi::feature::OPTION_OPS.into()),
        ("WEIR_F_PAYLOAD_OPS", abi::feature::PAYLOAD_OPS.into()),
        ("WEIR_F_LOG", abi::feature::LOG.into()),
        ("WEIR_F_REWRITE", abi::feature::REWRITE.into()),
        ("WEIR_F_STATE", abi::feature::STATE.into()),
        ("WEIR_F_TRANSLATE", abi::feature::TRANSLATE.into()),
        ("WEIR_F_NAT", abi::feature::NAT.into()),
        ("WEIR_F_SEQUENCE", abi::feature::SEQUENCE.into()),
    ];
    for (name, rust) in numbers {
        assert_eq!(find(name), *rust, "{name}");
    }
}

#[test]
fn reasons_fit_the_counter_array() {
    assert!(Reason::ALL.len() <= abi::REASONS);
}

#[test]
fn objects_use_no_kernel_functions_and_need_no_relocations_against_a_kernel() {
    for object in &OBJECTS {
        let (name, bytes) = (object.name, object.bytes());
        let text = String::from_utf8_lossy(bytes);
        assert!(
            !text.contains(".ksyms"),
            "{name} calls kernel functions: the floor is Linux 6.1 helpers"
        );
        assert!(
            !text.contains(".kconfig"),
            "{name} depends on the kernel's configuration"
        );
    }
}

#[test]
fn objects_unpack_to_what_was_compiled() {
    let folders = [
        (&OBJECTS[..], ""),
        (&BASELINES[..], "baselines/"),
        (&MONITORS[..], "monitor/"),
        (&TOOLS[..], "tools/"),
    ];
    for (table, folder) in folders {
        assert!(!table.is_empty());
        // From the last one on: forms of an object are asked for before what they were compressed with.
        for object in table.iter().rev() {
            let path = format!("{}/{folder}{}.bpf.o", env!("OUT_DIR"), object.name);
            let compiled = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert!(object.bytes() == compiled, "{}", object.name);
        }
    }
}

#[test]
fn objects_name_no_folder_of_the_builder() {
    let home = env!("CARGO_MANIFEST_DIR")
        .trim_end_matches("/crates/weir-bpf")
        .as_bytes();
    for object in &OBJECTS {
        let (name, bytes) = (object.name, object.bytes());
        let found = bytes.windows(home.len()).any(|window| window == home);
        assert!(!found, "{name} holds {}", String::from_utf8_lossy(home));
    }
}
