//! Random conversations and random abuse through weir (XDP and tc) and nftables' connection tracking, on a live bed: the same packets pass, translated in the
//! same way up to the choice of ports, and the tables of connections say the same.
//!
//! What may differ is listed in `weir_lab::firewall::random::CLASSES`, each class argued in docs/differences-nftables.md. 150 plays a policy,
//! the same in every run; with `WEIR_LONG=1` ten minutes of others; `WEIR_TRIAGE=1` collects differences instead of making the first one smaller. Failing plays are made smaller on the same bed, and kept in `conntrack_agrees.regressions`.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::live_bed::root;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestError, TestRng, TestRunner};
use weir_lab::firewall::random::{
    CLASSES, Coverage, Differential, Event, Kind, Op, Play, STATE_CLASSES, Shift, Talk,
};

const LONG: Duration = Duration::from_secs(600);
/// Plays of a short run, and of a long one between two looks at the clock.
const PLAYS: u32 = 110;

fn talk() -> impl Strategy<Value = Talk> {
    let kind = prop_oneof![4 => Just(Kind::Tcp), 2 => Just(Kind::Udp), 1 => Just(Kind::Echo)];
    (kind, 0..3u8, 0..2u8, 0..2u8, 0..6u8, any::<bool>(), 0..3u8).prop_map(
        |(kind, client, server, port, data, scaled, close)| Talk {
            kind,
            client,
            server,
            port,
            data,
            scaled,
            close,
        },
    )
}

fn shift() -> impl Strategy<Value = Shift> {
    prop_oneof![
        4 => Just(Shift::Exact),
        2 => (-3..4i8).prop_map(Shift::Near),
        1 => any::<bool>().prop_map(Shift::Window),
        2 => any::<bool>().prop_map(Shift::Far),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    // SYN, SYN+ACK, ACK, PSH+ACK, FIN+ACK, RST, RST+ACK, and what no stack sends.
    let flags = prop_oneof![
        Just(0x02u8),
        Just(0x12),
        Just(0x10),
        Just(0x18),
        Just(0x11),
        Just(0x04),
        Just(0x14),
        Just(0),
        Just(0x3f),
        Just(0x03),
        Just(0x06),
        Just(0x01),
        Just(0x29),
        Just(0x19)
    ];
    let forged = (
        any::<bool>(),
        flags,
        shift(),
        shift(),
        prop_oneof![Just(0u8), 1..40u8],
        prop::bool::weighted(0.1),
    );
    let errors = prop_oneof![
        Just((3u8, 1u8)),
        Just((3, 3)),
        Just((3, 4)),
        Just((11, 0)),
        Just((12, 0))
    ];
    prop_oneof![
        24 => Just(Op::Next),
        1 => Just(Op::Lost),
        2 => any::<u8>().prop_map(Op::Again),
        4 => forged.prop_map(|(opener, flags, seq, ack, len, bad)| Op::Forged { opener, flags, seq, ack, len, bad }),
        2 => (any::<bool>(), errors, shift()).prop_map(|(opener, what, seq)| Op::Error { opener, what, seq }),
        1 => (any::<bool>(), prop_oneof![2 => 0..2u8, 1 => 2..6u8], prop::bool::weighted(0.1)).prop_map(|(opener, order, overlap)| Op::Pieces { opener, order, overlap }),
        1 => Just(Op::Stray),
    ]
}

fn play() -> impl Strategy<Value = Play> {
    let event = (any::<u8>(), op()).prop_map(|(talk, op)| Event { talk, op });
    (
        prop::collection::vec(talk(), 1..6),
        prop::collection::vec(event, 10..70),
    )
        .prop_map(|(talks, events)| Play { talks, events })
}

#[expect(clippy::print_stdout, reason = "figures of a test")]
fn compare(policy: &str) {
    if !root("conntrack_agrees") {
        return;
    }
    if std::process::Command::new("nft")
        .arg("--version")
        .output()
        .is_err()
    {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "in CI weir is compared with nftables: install nftables (`scripts/setup`)"
        );
        weir_testdata::not_run("there is no nftables to compare with");
        return;
    }
    let long = std::env::var("WEIR_LONG").as_deref() == Ok("1");
    let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
    let mut devices = Differential::build(weir, policy).expect("a bed");
    devices.triage = std::env::var("WEIR_TRIAGE").as_deref() == Ok("1");
    let devices = RefCell::new(devices);
    let coverage = RefCell::new(Coverage::default());
    let config = ProptestConfig {
        cases: PLAYS,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        source_file: Some(file!()),
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    };
    let plays = RefCell::new(0u32);
    let mut result = Ok(());
    let end = Instant::now() + LONG;
    while result.is_ok() && (*plays.borrow() == 0 || long && Instant::now() < end) {
        // The same plays in every short run, others in every long one.
        let mut runner = match long {
            true => TestRunner::new(config.clone()),
            false => {
                let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
                TestRunner::new_with_rng(config.clone(), rng)
            }
        };
        result = runner.run(&play(), |play| {
            *plays.borrow_mut() += 1;
            match devices.borrow_mut().play(&play, &mut coverage.borrow_mut()) {
                Ok(None) => Ok(()),
                Ok(Some(difference)) => Err(TestCaseError::fail(difference.0)),
                Err(error) => panic!("{error}"),
            }
        });
    }
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, play)) => panic!("{policy}:\n{reason}\n{play:?}"),
        Err(error) => panic!("{error}"),
    }
    let coverage = coverage.borrow();
    println!(
        "{policy}: {} plays\n{:#?}\n{:#?}\n{:#?}\n{} behind differences",
        plays.borrow(),
        coverage.packets,
        coverage.states,
        coverage.classes,
        coverage.behind
    );
    let mut unknown: Vec<_> = coverage.unknown.iter().collect();
    unknown.sort_by_key(|(_, (times, _))| std::cmp::Reverse(*times));
    for (what, (times, example)) in &unknown {
        println!("== {times} times: {what}\n{example}");
    }
    assert!(
        unknown.is_empty(),
        "{} kinds of differences that no class explains",
        unknown.len()
    );
    demand(&coverage, *plays.borrow());
}

/// The comparison met what it is for.
fn demand(coverage: &Coverage, plays: u32) {
    let packets: u64 = coverage.packets.values().sum();
    assert!(packets >= 300, "{plays} plays, {packets} packets");
    for what in [
        "SYN passed",
        "handshake passed",
        "data passed",
        "FIN passed",
        "RST passed",
        "datagram passed",
        "echo passed",
        "repeated passed",
        "forged passed",
        "forged dropped",
        "error passed",
        "fragments passed",
        "stray dropped",
    ] {
        assert!(
            coverage.packets.contains_key(what),
            "no {what}: {coverage:#?}"
        );
    }
    for class in coverage.classes.keys() {
        assert!(
            CLASSES.iter().any(|c| c.name == *class) || STATE_CLASSES.contains(class),
            "{class} is not listed"
        );
    }
    assert!(
        coverage.behind < packets,
        "most was not compared: {coverage:#?}"
    );
}

#[test]
fn conversations_without_translation() {
    compare("accept");
}

#[test]
fn conversations_that_share_a_public_address() {
    compare("shared");
}
