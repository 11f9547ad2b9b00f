//! Marks and priorities of packets: every engine makes of them what the reference does, on either hook of a replay; on interfaces, tc
//! reads and writes those of the socket buffer, and XDP refuses rules that name them.

#![allow(
    clippy::print_stderr,
    reason = "what was compared is said where the test runs"
)]

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common::{Sample, cases, config, engines, is_taken, policy, tc_engines};
use weir_engine::live::{Hook, Live, LiveError, Options};
use weir_engine::{EngineKind, Meta, Packet, ReplayHook, ReplayOptions};
use weir_functions::middlebox::{Edit, PlanError, Written};
use weir_kernel::{NetNs, XdpMode, bed};
use weir_packet::Verdict;
use weir_policy::model::Policy;
use weir_policy::{FileSets, Parsed, Source, parse};

/// Few values, so that tests hold as often as not.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        0u32..8,
        Just(0x10),
        Just(0x1f),
        Just(u32::MAX),
        Just(0x1_0002)
    ]
}

fn test() -> impl Strategy<Value = String> {
    let masks = prop_oneof![
        Just(1u32),
        Just(6),
        Just(0xff),
        Just(0x8000_0000),
        Just(u32::MAX)
    ];
    prop_oneof![
        Just("all".to_owned()),
        Just("mark".to_owned()),
        number().prop_map(|n| format!("mark x{n:x}")),
        number().prop_map(|n| format!("! mark {n}")),
        number().prop_map(|n| format!("mark != x{n:x}")),
        (number(), masks.clone()).prop_map(|(n, m)| format!("mark x{:x}/x{m:x}", n & m)),
        (number(), masks.clone()).prop_map(|(n, m)| format!("! mark x{:x}/x{m:x}", n & m)),
        (number(), masks).prop_map(|(n, m)| format!("tcp-syn mark != {}/x{m:x}", n & m)),
        Just("mark in { 1, 3-5, x10 }".to_owned()),
        Just("! mark in { 0, 2 } ip-ttl > 9".to_owned()),
        Just("mark < 4".to_owned()),
        number().prop_map(|n| format!("priority {n}")),
        Just("priority 1:2".to_owned()),
        Just("priority 2-1:2 udp".to_owned()),
        (number(), number()).prop_map(|(a, b)| format!("mark x{a:x} priority != {b}")),
    ]
}

fn target() -> impl Strategy<Value = String> {
    let masks = prop_oneof![Just(1u32), Just(0xf0), Just(u32::MAX)];
    prop_oneof![
        3 => number().prop_map(|n| format!("mark set x{n:x}")),
        3 => (number(), masks).prop_map(|(n, m)| format!("mark set {}/x{m:x}", n & m)),
        2 => number().prop_map(|n| format!("priority set {n}")),
        1 => Just("priority set a:1f".to_owned()),
        1 => Just("mark set 7/7 priority set 3 mark set 8/8".to_owned()),
        1 => Just("log \"m\" mark set 1".to_owned()),
        1 => Just("mod vlan-id 5 mark set 9".to_owned()),
        1 => Just("drop".to_owned()),
        1 => Just("accept mark set 2/2".to_owned()),
    ]
}

/// What an engine says of each packet: verdict, frame if it goes on, mark and priority.
type Said = Vec<(Verdict, Vec<u8>, Meta)>;

fn said(
    hook: ReplayHook,
    kind: EngineKind,
    policy: &Arc<Policy>,
    samples: &[(Sample, Meta)],
) -> Result<(Said, Vec<u64>), String> {
    let options = ReplayOptions::default();
    let mut engine =
        weir_engine::open_for(hook, kind, policy, &options).map_err(|e| e.to_string())?;
    let mut said = Vec::new();
    for (number, (sample, meta)) in (0..).zip(samples) {
        let packet = Packet {
            frame: &sample.frame,
            now_ns: sample.now_ns,
            number,
            port: 0,
            queue: 0,
        };
        let mut out = Vec::new();
        let (verdict, after) = engine
            .marked(&packet, *meta, &mut out)
            .map_err(|e| e.to_string())?;
        if verdict == Verdict::Drop {
            out.clear();
        }
        said.push((verdict, out, after));
    }
    let (_, counters) = engine.totals().map_err(|e| e.to_string())?;
    Ok((said, counters.iter().map(|c| c.packets).collect()))
}

#[test]
fn engines_agree_on_marks() {
    let cases = cases(40);
    let sample = (weir_packet::generate::frame(), 0u64..9, number(), number()).prop_map(
        |(frame, now_ns, mark, priority)| {
            let sample = Sample {
                frame,
                now_ns,
                port: 0,
                queue: 0,
            };
            (sample, Meta { mark, priority })
        },
    );
    let rules = prop::collection::vec((test(), target()), 1..8);
    let strategy = (
        weir_policy::generate::policy_text(),
        rules,
        prop::collection::vec(sample, 60),
    );
    let mut runner = TestRunner::new(config(cases, file!()));
    let (changed, packets) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let result = runner.run(&strategy, |(text, rules, samples)| {
        let mut text = text;
        for (test, target) in rules {
            text.push_str(&format!("\n{test} {target}"));
        }
        let policy = policy(&text);
        for (hook, engines) in [(ReplayHook::Xdp, engines()), (ReplayHook::Tc, tc_engines())] {
            let mut samples = samples.clone();
            samples.retain(|(sample, _)| hook == ReplayHook::Xdp || is_taken(&sample.frame));
            let wanted = said(hook, EngineKind::Reference, &policy, &samples);
            for kind in engines {
                let found = said(hook, kind, &policy, &samples);
                prop_assert_eq!(&wanted, &found, "{:?} on {:?}\n{}", kind, hook, text);
            }
            let Ok((said, _)) = wanted else { continue };
            let both = said.iter().zip(&samples);
            let differ = both.filter(|((.., after), (_, meta))| after != meta);
            changed.set(changed.get() + differ.count());
            packets.set(packets.get() + samples.len());
        }
        Ok(())
    });
    if let Err(error) = result {
        crate::common::give_up(error);
    }
    assert!(changed.get() * 10 > packets.get(), "few marks changed");
    eprintln!(
        "{cases} policies, {} packets, {} marks or priorities changed: all engines agree",
        packets.get(),
        changed.get()
    );
}

fn read(text: &str) -> Parsed {
    parse(
        &Source::new("marks.weir", text),
        &FileSets::relative_to("."),
    )
    .expect("a policy")
}

const LIVE: &str = "in: mark 0 ip-proto icmp mark set x2a/xff priority set 1:2\n\
                    again: mark x2a drop\n";

/// nft(8) in a namespace.
fn nft(ns: &NetNs, rules: &str) -> String {
    let rules = rules.to_owned();
    let output = ns
        .run(move || {
            std::process::Command::new("nft")
                .arg(rules)
                .output()
                .expect("nft is installed")
        })
        .expect("namespace");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ping(ns: &NetNs, to: &'static str) {
    let status = ns
        .run(move || {
            std::process::Command::new("ping")
                .args(["-c", "3", "-i", "0.05", "-W", "2", to])
                .output()
                .expect("ping is installed")
                .status
        })
        .expect("namespace");
    assert!(status.success());
}

/// A ping comes in over a veth with weir on tc: nftables sees what weir set. XDP refuses the rules.
#[test]
fn tc_writes_the_socket_buffer() {
    if !engines().contains(&EngineKind::Kernel) {
        return;
    }
    let near = NetNs::create("weir-marks-1").expect("namespace");
    let far = NetNs::create("weir-marks-2").expect("namespace");
    let end = |ns, address| bed::End {
        ns,
        name: "wmark",
        addresses: address,
    };
    bed::veth(end(&near, &["10.78.0.1/24"]), end(&far, &["10.78.0.2/24"])).expect("veth");
    let options = |hook| Options {
        hook: Some(hook),
        egress: false,
        checksums: None,
        vlan_in_frame: false,
    };
    let refused = far
        .run(|| {
            Live::start(
                &read(LIVE),
                &["wmark".to_owned()],
                options(Hook::Xdp(XdpMode::Generic)),
            )
        })
        .expect("namespace")
        .expect_err("XDP has no marks");
    assert!(
        matches!(
            &refused,
            LiveError::Plan(PlanError::MetaUnknown { name: "mark", .. })
        ),
        "{refused}"
    );
    let text = refused.to_string();
    assert!(
        text.contains("marks.weir:1") && text.contains("generic XDP") && text.contains("--hook tc"),
        "{text}"
    );
    nft(&far, "add table ip t");
    nft(
        &far,
        "add chain ip t in { type filter hook input priority 0; }",
    );
    nft(
        &far,
        "add rule ip t in meta mark 0x2a meta priority 1:2 counter",
    );
    let live = far
        .run(|| Live::start(&read(LIVE), &["wmark".to_owned()], options(Hook::Tc)).expect("runs"))
        .expect("namespace");
    ping(&near, "10.78.0.2");
    let listed = nft(&far, "list ruleset");
    assert!(listed.contains("counter packets 3 "), "{listed}");
    let added = far.run(|| {
        let parsed = read("all mark set 1");
        let text = parsed.texts().next().expect("a rule");
        let rule = parsed.policy.rules[0].clone();
        let written = Written { rule, text };
        let edit = Edit::Add(Box::new(written));
        live.lock().edit(vec![edit])
    });
    assert!(added.expect("namespace").is_ok());
    let report = far.run(|| live.stop()).expect("namespace").expect("stops");
    let counted: Vec<u64> = report.rules.iter().map(|rule| rule.packets).collect();
    assert_eq!(counted[..2], [3, 0], "{report:?}");
}
