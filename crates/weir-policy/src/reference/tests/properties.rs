//! Properties over generated frames: checksums stay as right or wrong as they were, payloads survive, nothing panics.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_packet::Verdict;

use super::frames::{KINDS, damaged, tcp_option, well_formed};
use super::*;
use crate::model::{DropWhen, KindSet};

/// Fields that say how a packet is laid out, or are checksums: writing them changes what is verified.
const STRUCTURAL: &[&str] = &[
    "ip-ver",
    "ip-ihl",
    "ip-len",
    "ip-flags",
    "ip-mf",
    "ip-frag-offset",
    "ip-ttl",
    "ip-proto",
    "ip-checksum",
    "ip6-ver",
    "ip6-len",
    "ip6-next",
    "ip6-hop-limit",
    "icmp-checksum",
    "icmp6-checksum",
    "udp-len",
    "udp-checksum",
    "tcp-offset",
    "tcp-checksum",
];

fn fixed_fields() -> Vec<Field> {
    Field::all()
        .filter(|field| field.info().writable && field.info().bits > 0 && !is_option(*field))
        .collect()
}

fn is_option(field: Field) -> bool {
    matches!(field.info().kind, Kind::TcpOption(_))
}

fn set_field(fields: Vec<Field>) -> impl Strategy<Value = Target> {
    (
        proptest::sample::select(fields),
        prop_oneof![any::<u128>(), 0u128..4, Just(u128::MAX)],
    )
        .prop_map(|(field, value)| {
            let bits = u32::from(field.info().bits);
            Target::Set {
                field,
                value: if bits == 128 {
                    value
                } else {
                    value & ((1 << bits) - 1)
                },
            }
        })
}

fn payload_target(names: &'static [&'static str]) -> impl Strategy<Value = Target> {
    (
        proptest::sample::select(names),
        0u16..30,
        vec(any::<u8>(), 0..20),
    )
        .prop_map(|(name, at, bytes)| Target::SetPayload {
            subject: Subject {
                at,
                ..subject(name)
            },
            bytes,
        })
}

fn option_target() -> impl Strategy<Value = Target> {
    let kinds = vec(proptest::sample::select(KINDS), 0..4);
    prop_oneof![
        tcp_option().prop_map(|(kind, value)| Target::SetOption { kind, value }),
        tcp_option().prop_map(|(kind, value)| Target::AddOption { kind, value }),
        (kinds, any::<bool>()).prop_map(|(kinds, keep)| {
            let mut set = if keep { KindSet::ALL } else { KindSet::EMPTY };
            kinds.into_iter().for_each(|kind| {
                if keep {
                    set.remove(kind)
                } else {
                    set.insert(kind)
                }
            });
            Target::Strip(set)
        }),
    ]
}

/// Targets that keep a packet's layout and do not write checksums.
fn harmless_target() -> impl Strategy<Value = Target> {
    let fields = fixed_fields()
        .into_iter()
        .filter(|field| !STRUCTURAL.contains(&field.info().name))
        .collect();
    prop_oneof![
        3 => set_field(fields),
        1 => payload_target(&["udp-payload", "tcp-payload", "icmp-payload", "icmp6-payload"]),
        3 => option_target(),
    ]
}

fn any_target() -> impl Strategy<Value = Target> {
    prop_oneof![
        4 => set_field(fixed_fields()),
        2 => payload_target(&["ip-payload", "ip6-payload", "udp-payload", "tcp-payload", "icmp-payload", "icmp6-payload"]),
        4 => option_target(),
        1 => Just(Target::Log { prefix: String::new(), limit: None }),
        1 => Just(Target::Drop(DropWhen::Random { below: 1 << 31 })),
        1 => Just(Target::Drop(DropWhen::Over { period_ns: 10, burst: 2 })),
        1 => Just(Target::Drop(DropWhen::Quota { bytes: 500 })),
    ]
}

/// One rule per target, so that each runs on the packets that have what it needs.
fn run_each(frame: &[u8], targets: &[Target], options: Options) -> Outcome {
    let rules = targets
        .iter()
        .map(|target| (all(), vec![target.clone()]))
        .collect();
    Reference::new(policy(rules), options).run(Input::new(frame))
}

fn udp_without_checksum(frame: &[u8]) -> bool {
    parse(frame).is_ok_and(|layout| layout.notes.contains(&Reason::UdpZeroChecksum))
}

fn is_unfinished(frame: &[u8]) -> bool {
    let Ok(layout) = parse(frame) else {
        return false;
    };
    super::super::rewrite::is_unfinished(frame, &layout)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn checksums_stay_right_or_wrong_by_the_same_difference(frame in well_formed(), targets in vec(harmless_target(), 1..5)) {
        let outcome = run_each(&frame, &targets, Options::default());
        prop_assert_eq!(outcome.verdict, Verdict::Pass);
        let before = parse(&frame).expect("well formed");
        let after = parse(&outcome.frame);
        prop_assert!(after.is_ok(), "{:?}", after);
        let after = after.expect("just seen");
        prop_assert_eq!(udp_without_checksum(&frame), udp_without_checksum(&outcome.frame));
        if !udp_without_checksum(&frame) {
            prop_assert_eq!(checksum_error(&frame), checksum_error(&outcome.frame));
        }
        // What follows the TCP header is only touched by payload targets.
        if !targets.iter().any(|target| matches!(target, Target::SetPayload { .. }))
            && let (Some(old), Some(new)) = (before.l4, after.l4)
        {
            prop_assert_eq!(&frame[old.payload.start..], &outcome.frame[new.payload.start..]);
        }
    }

    #[test]
    fn unfinished_checksums_stay_unfinished(frame in well_formed(), targets in vec(harmless_target(), 1..5)) {
        let outcome = run_each(&frame, &targets, offloaded());
        if is_unfinished(&frame) {
            prop_assert!(is_unfinished(&outcome.frame));
        } else if !udp_without_checksum(&frame) {
            prop_assert_eq!(checksum_error(&frame), checksum_error(&outcome.frame));
        }
    }

    #[test]
    fn writing_the_value_that_is_there_changes_no_byte(frame in well_formed()) {
        let layout = parse(&frame).expect("well formed");
        let input = Input::new(&frame);
        let view = super::super::fields::View { input: &input, layout: &layout, state: None, sets: None, clock: Default::default() };
        let targets: Vec<Target> = fixed_fields()
            .into_iter()
            .filter_map(|field| {
                let value = view.number(Subject { field, option: None, at: 0 })?;
                Some(Target::Set { field, value })
            })
            .collect();
        for options in [Options::default(), offloaded()] {
            prop_assert_eq!(&run_each(&frame, &targets, options).frame, &frame);
        }
    }

    #[test]
    fn a_written_field_is_read_back(frame in well_formed(), target in set_field(fixed_fields())) {
        let outcome = run_each(&frame, std::slice::from_ref(&target), Options::default());
        let Target::Set { field, value } = target else { unreachable!("set_field makes Set") };
        let (layout, input) = (parse(&frame).expect("well formed"), Input::new(&outcome.frame));
        let view = super::super::fields::View { input: &input, layout: &layout, state: None, sets: None, clock: Default::default() };
        if let Some(found) = view.number(Subject { field, option: None, at: 0 }) {
            prop_assert_eq!(found, value);
        }
    }

    #[test]
    fn nothing_panics(frame in prop_oneof![well_formed(), damaged()], targets in vec(any_target(), 0..8), offload in any::<bool>(), mtu in prop_oneof![0u32..100, Just(u32::MAX)], now_ns in any::<u64>()) {
        let checksums = if offload { ChecksumMode::Offloaded } else { ChecksumMode::Complete };
        let rules = targets.iter().map(|target| (all(), vec![target.clone()])).collect();
        let mut reference = Reference::new(policy(rules), Options { checksums, mtu, seed: now_ns });
        for number in [0, 1, u64::MAX] {
            let outcome = reference.run(Input { now_ns, number, ..Input::new(&frame) });
            let drops = outcome.reasons.iter().filter(|reason| reason.fate() == weir_packet::Fate::Drop).count();
            prop_assert_eq!(drops, usize::from(outcome.verdict == Verdict::Drop));
            if outcome.verdict == Verdict::Drop || outcome.matched.is_empty() {
                prop_assert_eq!(&outcome.frame, &frame);
            }
        }
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200), targets in vec(any_target(), 0..4)) {
        run_each(&bytes, &targets, offloaded());
    }
}
