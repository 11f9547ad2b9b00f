//! VLAN tags that rules put on and take off: every engine does what the reference does, on either hook of a replay; on interfaces, frames
//! arrive with the tags that rules gave them.
//!
//! In a replay on tc the kernel, or what stands in for it, keeps the outermost tag beside the packet once it was changed: there a frame is
//! that of the reference, or that without its outermost tag.

#![allow(
    clippy::print_stderr,
    reason = "what was compared is said where the test runs"
)]

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common::{cases, config, engines, is_taken, policy, said, tc_engines};
use weir_engine::live::{Hook, Live, Options};
use weir_engine::{EngineKind, ReplayHook};
use weir_kernel::{NetNs, XdpMode, bed};
use weir_packet::Reason;
use weir_policy::{NoFiles, Parsed, Source, parse};

fn rule() -> impl Strategy<Value = String> {
    let test = prop_oneof![
        3 => Just("all"),
        1 => Just("vlan"),
        1 => Just("! vlan"),
        1 => Just("vlan2"),
        1 => Just("tcp"),
        1 => Just("udp"),
        1 => Just("ip-ttl > 60"),
        1 => Just("vlan-id < 2000"),
    ];
    let target = prop_oneof![
        3 => (0u16..4095).prop_map(|id| format!("vlan push {id}")),
        2 => (0u16..4095, 0u8..8).prop_map(|(id, pcp)| format!("vlan push {id} pcp {pcp}")),
        1 => (0u16..4095).prop_map(|id| format!("vlan push {id} dei")),
        5 => Just("vlan pop".to_owned()),
        1 => Just("vlan pop vlan pop vlan push 7".to_owned()),
        1 => Just("vlan push 1 vlan push 2 vlan pop".to_owned()),
        1 => Just("mod vlan-id 9 vlan pop vlan push 10 pcp 7 dei".to_owned()),
        1 => Just("mod ip-ttl 9 vlan push 3".to_owned()),
        1 => Just("strip all vlan push 5".to_owned()),
        1 => Just("mod udp-payload[0] x0102 vlan pop".to_owned()),
    ];
    (test, target).prop_map(|(test, target)| {
        let rule = format!("{test} {target}");
        // Not all go together: nothing without a tag loses one, and UDP has no options.
        match parse(&Source::new("rule.weir", rule.as_str()), &NoFiles) {
            Ok(_) => rule,
            Err(_) => format!("all {target}"),
        }
    })
}

/// The frame without its outermost tag.
fn without_tag(frame: &[u8]) -> Option<Vec<u8>> {
    let is_tag = matches!(
        frame.get(12..14),
        Some([0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00])
    );
    is_tag.then(|| [&frame[..12], &frame[16..]].concat())
}

#[test]
fn engines_agree_on_tags() {
    let cases = cases(40);
    let rules = prop::collection::vec(rule(), 1..6);
    let strategy = (
        weir_policy::generate::policy_text(),
        rules,
        prop::collection::vec(weir_packet::generate::frame(), 60),
    );
    let mut runner = TestRunner::new(config(cases, file!()));
    let count = |cell: &std::cell::Cell<u64>, by: u64| cell.set(cell.get() + by);
    let (longer, shorter, full, absent) = Default::default();
    let result = runner.run(&strategy, |(text, rules, frames)| {
        let policy = policy(&[text, rules.join("\n")].join("\n"));
        for (hook, engines) in [(ReplayHook::Xdp, engines()), (ReplayHook::Tc, tc_engines())] {
            let mut frames = frames.clone();
            frames.retain(|frame| hook == ReplayHook::Xdp || is_taken(frame));
            let wanted = said(hook, EngineKind::Reference, &policy, &frames);
            for kind in engines {
                let found = said(hook, kind, &policy, &frames);
                let (Ok((wanted, reasons)), Ok((found, own))) = (&wanted, &found) else {
                    prop_assert_eq!(&wanted, &found);
                    continue;
                };
                for (at, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                    let is_same = wanted == found
                        || hook == ReplayHook::Tc
                            && wanted.0 == found.0
                            && without_tag(&wanted.1).as_ref() == Some(&found.1);
                    prop_assert!(
                        is_same,
                        "{:?} on {:?}, packet {}:\n{:02x?}\n{:02x?}\n{:02x?}",
                        kind,
                        hook,
                        at,
                        frames[at],
                        wanted,
                        found
                    );
                }
                prop_assert_eq!(reasons, own, "reasons of {:?} on {:?}", kind, hook);
            }
            let Ok((said, reasons)) = wanted else {
                continue;
            };
            for ((_, out), frame) in said.iter().zip(&frames) {
                count(&longer, u64::from(out.len() > frame.len()));
                count(
                    &shorter,
                    u64::from(!out.is_empty() && out.len() < frame.len()),
                );
            }
            count(&full, reasons[Reason::VlanNoRoom as usize]);
            count(&absent, reasons[Reason::VlanAbsent as usize]);
        }
        Ok(())
    });
    if let Err(error) = result {
        crate::common::give_up(error);
    }
    let met = [&longer, &shorter, &full, &absent].map(std::cell::Cell::get);
    assert!(met.iter().all(|&count| count > 0), "{met:?}");
    eprintln!("{cases} policies: longer, shorter, full, absent {met:?}: all engines agree");
}

fn read(text: &str) -> Parsed {
    parse(&Source::new("tags.weir", text), &NoFiles).expect("a policy")
}

fn tool(ns: &NetNs, words: &str) {
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let output = ns
        .run(move || {
            let (name, arguments) = words.split_first().expect("a name");
            std::process::Command::new(name)
                .args(arguments)
                .output()
                .expect("it is installed")
        })
        .expect("namespace");
    assert!(output.status.success(), "{output:?}");
}

fn start(ns: &NetNs, text: &'static str, options: Options) -> Live {
    ns.run(move || Live::start(&read(text), &["wtag".to_owned()], options).expect("runs"))
        .expect("namespace")
}

fn bed(name: &str) -> (NetNs, NetNs) {
    let near = NetNs::create(&format!("weir-tags-{name}-1")).expect("namespace");
    let far = NetNs::create(&format!("weir-tags-{name}-2")).expect("namespace");
    let end = |ns, addresses| bed::End {
        ns,
        name: "wtag",
        addresses,
    };
    bed::veth(end(&near, &["10.79.0.1/24"]), end(&far, &["10.79.0.2/24"])).expect("veth");
    (near, far)
}

const TC: Options = Options {
    hook: Some(Hook::Tc),
    egress: true,
    checksums: None,
    vlan_in_frame: false,
};

/// Two hosts without VLANs speak in VLAN 100, for weir puts the tag on what leaves and takes it off what comes.
#[test]
fn tc_gives_frames_a_tag_and_takes_it() {
    if !engines().contains(&EngineKind::Kernel) {
        return;
    }
    let (near, far) = bed("tc");
    let text = "out wtag vlan push 100 pcp 3\nin wtag vlan-id 100 vlan-pcp 3 vlan pop";
    let lives = [start(&near, text, TC), start(&far, text, TC)];
    tool(&near, "ping -c 3 -i 0.05 -W 2 10.79.0.2");
    for (ns, live) in [&near, &far].into_iter().zip(lives) {
        let report = ns.run(|| live.stop()).expect("namespace").expect("stops");
        assert!(
            report.rules.iter().all(|rule| rule.packets >= 3),
            "{report:?}"
        );
        assert_eq!(report.packets.drop, 0, "{report:?}");
    }
}

/// Native XDP takes off what tc puts on at the other end.
#[test]
fn xdp_takes_a_tag() {
    if !engines().contains(&EngineKind::Kernel) {
        return;
    }
    let (near, far) = bed("xdp");
    // Else the tag lies beside the frame, where XDP does not see it.
    tool(&near, "ethtool -K wtag txvlan off");
    let xdp = Options {
        hook: Some(Hook::Xdp(XdpMode::Native)),
        egress: false,
        checksums: None,
        vlan_in_frame: true,
    };
    let takes = start(&far, "vlan-id 100 vlan pop", xdp);
    let puts = start(&near, "out wtag vlan push 100", TC);
    tool(&near, "ping -c 3 -i 0.05 -W 2 10.79.0.2");
    for (ns, live) in [(&near, puts), (&far, takes)] {
        let report = ns.run(|| live.stop()).expect("namespace").expect("stops");
        assert!(report.rules[0].packets >= 3, "{report:?}");
        assert_eq!(report.packets.drop, 0, "{report:?}");
    }
}
