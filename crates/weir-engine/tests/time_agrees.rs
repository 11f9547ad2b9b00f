//! Rules that test the time of day and the day of the week, at the borders of hours, days, weeks and time zones: every engine on both
//! hooks gives the reference's verdicts and counters, live programs go by the host's clock.

#![allow(
    clippy::print_stderr,
    reason = "how much was compared is said where the test runs"
)]

use crate::common::{
    Coverage, Sample, cases, config, disagreement_on, engines, policy, tc_engines,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::net::UdpSocket;
use std::time::{Duration, Instant, SystemTime};
use weir_engine::live::{Hook, Live, Options};
use weir_engine::{EngineKind, ReplayHook, ReplayOptions};
use weir_kernel::{NetNs, XdpMode, bed};
use weir_packet::build::Frame;
use weir_policy::{NoFiles, Source};

const SECOND_NS: u64 = 1_000_000_000;
const DAY_S: u64 = 86_400;
const PORT: u16 = 7001;

/// Times of day that rules name: their seconds, and how they are written.
const TIMES: &[(u64, &str)] = &[
    (0, "00:00"),
    (1, "00:00:01"),
    (21_600, "06:00"),
    (28_800, "8:00"),
    (43_199, "11:59:59"),
    (61_200, "17:00"),
    (79_200, "22:00"),
    (86_399, "23:59:59"),
];

const DAYS: &[&str] = &["sun", "mon", "tuesday", "wed", "thu", "FRI", "6"];

/// Zones in minutes, and as they are written.
const ZONES: &[(i64, &str)] = &[
    (0, ""),
    (0, "timezone utc\n"),
    (120, "timezone +02:00\n"),
    (345, "timezone +05:45\n"),
    (-210, "timezone -03:30\n"),
    (840, "timezone +14:00\n"),
    (-720, "timezone -12:00\n"),
];

fn time_test() -> impl Strategy<Value = String> {
    let time = || prop::sample::select(TIMES).prop_map(|(_, text)| text);
    let day = || prop::sample::select(DAYS);
    prop_oneof![
        (time(), time()).prop_map(|(a, b)| format!("hour {a}-{b}")),
        (time(), time()).prop_map(|(a, b)| format!("! hour {a}-{b}")),
        (time(), time(), time()).prop_map(|(a, b, c)| format!("hour in {{ {a}, {b}-{c} }}")),
        (
            time(),
            prop::sample::select(&["==", "!=", "<", "<=", ">", ">="][..])
        )
            .prop_map(|(a, cond)| format!("hour {cond} {a}")),
        day().prop_map(|a| format!("day {a}")),
        (day(), day()).prop_map(|(a, b)| format!("day {a}-{b}")),
        (day(), day()).prop_map(|(a, b)| format!("day != {a}-{b}")),
        (day(), day(), day()).prop_map(|(a, b, c)| format!("day in {{ {a}, {b}-{c} }}")),
        (day(), day()).prop_map(|(a, b)| format!("! day in {{ {a}, {b} }}")),
    ]
}

/// A policy of rules that test the time, alone or beside others, and its zone in minutes.
fn timed_policy() -> impl Strategy<Value = (i64, String)> {
    let beside =
        prop::sample::select(&["", "", "tcp-dport 80 ", "ip-saddr 10.0.0.0/8 ", "udp "][..]);
    let target = prop::sample::select(&["accept", "drop", "log", "drop 50%", "mod ip-ttl 7"][..]);
    let tests = prop::collection::vec(time_test(), 1..=2);
    let rule = (beside, tests, target)
        .prop_map(|(beside, tests, target)| format!("{beside}{} {target}\n", tests.join(" ")));
    let is_valid = |rule: &String| {
        let source = weir_policy::Source::new("rule", rule);
        weir_policy::parse(&source, &weir_policy::NoFiles).is_ok()
    };
    let rules = prop::collection::vec(rule.prop_filter("it can match", is_valid), 1..24);
    (prop::sample::select(ZONES), rules)
        .prop_map(|((zone, line), rules)| (zone, format!("{line}{}", rules.concat())))
}

/// A moment in or a nanosecond in front of a second that is a border in the zone, of some day.
fn moment() -> impl Strategy<Value = (u64, u64, u64)> {
    let near = prop_oneof![
        Just(0u64),
        Just(1),
        Just(SECOND_NS - 1),
        0..DAY_S * SECOND_NS
    ];
    let days = prop_oneof![2u64..16, 19_000u64..23_000, Just(200_000u64)];
    (days, prop::sample::select(TIMES).prop_map(|(s, _)| s), near)
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        Frame::new()
            .ip4([10, 0, 0, 1], [192, 0, 2, 1])
            .tcp(1, 80)
            .build(),
        Frame::new()
            .ip4([192, 0, 2, 9], [192, 0, 2, 1])
            .udp(1, 53)
            .build(),
        Frame::new()
            .ip4([10, 0, 0, 2], [192, 0, 2, 1])
            .tcp(1, 22)
            .build(),
        vec![0xff; 64],
    ])
}

fn agree(hook: ReplayHook, engines: &[EngineKind]) {
    let cases = cases(100);
    let strategy = (
        timed_policy(),
        prop::collection::vec((moment(), frame()), 60),
    );
    let coverage = std::cell::RefCell::new(Coverage::default());
    let result = TestRunner::new(config(cases, file!())).run(&strategy, |((zone, text), drawn)| {
        let mut samples: Vec<Sample> = drawn
            .into_iter()
            .map(|((day, time, near), frame)| {
                let local = (day * DAY_S + time) as i64 - zone * 60;
                Sample {
                    frame,
                    now_ns: local as u64 * SECOND_NS + near,
                    port: 0,
                    queue: 0,
                }
            })
            .collect();
        samples.sort_by_key(|sample| sample.now_ns);
        let mut coverage = coverage.borrow_mut();
        let options = ReplayOptions::default();
        match disagreement_on(
            hook,
            engines,
            &policy(&text),
            &options,
            &samples,
            &mut coverage,
        ) {
            None => Ok(()),
            Some(difference) => Err(TestCaseError::fail(format!(
                "{difference}\npolicy:\n{text}"
            ))),
        }
    });
    if let Err(error) = result {
        crate::common::give_up(error);
    }
    eprintln!(
        "{cases} policies x 60 packets: reference and {engines:?} agree\n{}",
        coverage.borrow()
    );
}

#[test]
fn in_front_of_the_stack() {
    agree(ReplayHook::Xdp, &engines());
}

#[test]
fn on_tc() {
    agree(ReplayHook::Tc, &tc_engines());
}

/// Live programs go by the host's clock, on either hook, in the zone of the policy. Needs root.
#[test]
fn live_it_is_the_time_of_the_host() {
    if !engines().contains(&EngineKind::Kernel) {
        return;
    }
    for (name, hook) in [("xdp", Hook::Xdp(XdpMode::Native)), ("tc", Hook::Tc)] {
        let (near, far) = namespaces(name);
        let sender = near
            .run(|| {
                let socket = UdpSocket::bind("10.78.0.1:0").expect("a socket");
                socket.connect(("10.78.0.2", PORT)).expect("a route");
                socket
            })
            .expect("namespace");
        let _receiver = far
            .run(|| UdpSocket::bind(("10.78.0.2", PORT)).expect("a socket"))
            .expect("namespace");
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("behind 1970")
            .as_secs();
        // A zone in which it is noon: no border of a day is near.
        let zone = 720 - (now / 60 % 1440) as i64;
        let local = (now as i64 + zone * 60) as u64;
        let hour = |second: u64| {
            let of_day = second % DAY_S;
            format!(
                "{:02}:{:02}:{:02}",
                of_day / 3600,
                of_day / 60 % 60,
                of_day % 60
            )
        };
        let names = ["thu", "fri", "sat", "sun", "mon", "tue", "wed"];
        let day = names[(local / DAY_S % 7) as usize];
        let (since, until) = (hour(local), hour(local + 120));
        let (sign, distance) = (if zone < 0 { '-' } else { '+' }, zone.abs());
        let text = format!(
            "timezone {sign}{:02}:{:02}\n\
             udp-dport {PORT} hour {since}-{until} accept\n\
             udp-dport {PORT} ! hour {since}-{until} accept\n\
             udp-dport {PORT} day {day} accept\n\
             udp-dport {PORT} day != {day} accept\n",
            distance / 60,
            distance % 60
        );
        let live = far
            .run(|| {
                let parsed = weir_policy::parse(&Source::new("live", text.as_str()), &NoFiles);
                let options = Options {
                    hook: Some(hook),
                    egress: false,
                    checksums: None,
                    vlan_in_frame: false,
                };
                let parsed = parsed.unwrap_or_else(|e| panic!("{text}\n{e}"));
                Live::start(&parsed, &["wtime".to_owned()], options).expect("runs")
            })
            .expect("namespace");
        for _ in 0..5 {
            sender.send(b"what time is it").expect("sent");
        }
        live.follow_clock().expect("the clock is there");
        for _ in 0..5 {
            sender.send(b"and now").expect("sent");
        }
        let end = Instant::now() + Duration::from_secs(5);
        while live.report().expect("counters").packets.received < 10 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let report = far.run(|| live.stop().expect("stops")).expect("namespace");
        let counted: Vec<u64> = report.rules.iter().map(|rule| rule.packets).collect();
        assert_eq!(counted, [10, 0, 10, 0], "{name}\n{text}");
    }
}

/// Two namespaces joined by a veth pair.
fn namespaces(name: &str) -> (NetNs, NetNs) {
    let create = |end: u32| {
        let name = format!("weir-time-{}-{name}-{end}", std::process::id());
        NetNs::create(&name).expect("namespace")
    };
    let (near, far) = (create(1), create(2));
    let end = |ns, address| bed::End {
        ns,
        name: "wtime",
        addresses: address,
    };
    let ends = [end(&near, &["10.78.0.1/24"]), end(&far, &["10.78.0.2/24"])];
    bed::veth(ends[0], ends[1]).expect("veth");
    (near, far)
}
