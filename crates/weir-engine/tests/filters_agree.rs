//! Generated filters over generated packets: verdicts, reasons, counters of rules and hits of entries are those of a naive reading of the
//! same rules, in the kernel, in the interpreter and as native code.
//!
//! `WEIR_CASES` sets the number of filters (default 300, 150 packets each; 3000 where WEIR_LONG is set).

use std::collections::BTreeMap;

use crate::filters;
use crate::filters::oracle::{Fate, Oracle};
use crate::filters::runs::counted;
use crate::filters::{compiled, engines, filter};
use proptest::prelude::*;
use proptest::sample::select;
use weir_packet::Reason;

const PACKETS: usize = 150;
/// Clock of the first packet: entries of lists end around it.
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;
/// Rules and reasons that generated filters must come to.
const WANTED: [&str; 15] = [
    "allow",
    "deny",
    "shed",
    "limit",
    "denied",
    "blocked",
    "limited",
    "not_allowed",
    "not_ip",
    "tcp_truncated",
    "udp_truncated",
    "ip4_truncated",
    "ip6_truncated",
    "ip6_eh_deep",
    "vlan_truncated",
];

#[derive(Clone, Debug)]
struct Sample {
    frame: Vec<u8>,
    gap_ns: u64,
    load: u64,
}

fn prefix() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0u8..=255, select(vec![24u8, 25, 28, 30, 31, 32])).prop_map(|(host, len)| {
            let host = u32::from(host) >> (32 - len) << (32 - len);
            format!("10.0.0.{host}/{len}")
        }),
        6 => (0u8..5).prop_map(|host| format!("10.0.0.{host}")),
        3 => (0u8..5).prop_map(|host| format!("192.0.2.{host}")),
        2 => select(vec!["10.0.0.0/8", "0.0.0.0/0", "192.0.2.0/24", "10.0.0.0/15", "192.0.0.0/16", "128.0.0.0/1", "255.255.255.255"]).prop_map(str::to_owned),
        1 => any::<u32>().prop_map(|a| std::net::Ipv4Addr::from(a).to_string()),
        4 => (0u8..5).prop_map(|host| format!("2001:db8::{host:x}")),
        3 => (0u32..5, select(vec![126u8, 127, 128])).prop_map(|(host, len)| format!("2001:db8::{:x}/{len}", host >> (128 - len) << (128 - len))),
        2 => select(vec!["::/0", "2001:db8::/32", "2001:db8::/64", "2001:db8::/65", "2001:db8:0:1::/64", "8000::/1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2000::/3"]).prop_map(str::to_owned),
        1 => any::<u128>().prop_map(|a| std::net::Ipv6Addr::from(a).to_string()),
    ]
}

/// A line of a list. Its end lies around the packets.
fn line() -> impl Strategy<Value = String> {
    let only = prop_oneof![
        12 => Just(String::new()),
        1 => select(vec![" udp", " tcp", " icmp", " 58", " tcp 80", " udp 53"]).prop_map(str::to_owned),
        1 => select(vec![" 80", " 53", " 443"]).prop_map(str::to_owned),
    ];
    let until = prop_oneof![
        4 => Just(String::new()),
        1 => (0u64..12).prop_map(|s| format!(" until {}", BEGIN_NS / 1_000_000_000 + s)),
    ];
    (prefix(), only, until).prop_map(|(prefix, only, until)| format!("{prefix}{only}{until}"))
}

fn addresses(key: &'static str) -> impl Strategy<Value = String> {
    let item =
        prop_oneof![3 => prefix(), 3 => select(vec!["@a", "@b", "@c"]).prop_map(str::to_owned)];
    prop_oneof![
        3 => Just(String::new()),
        4 => prop::collection::vec(item, 1..3).prop_map(move |items| format!(" {key} {}", items.join(", "))),
        1 => prefix().prop_map(move |one| format!(" {key} not {one}")),
        1 => Just(format!(" {key} not @c")),
    ]
}

fn conditions() -> impl Strategy<Value = String> {
    let kind = prop_oneof![
        6 => Just(""),
        4 => select(vec![" udp", " tcp", " icmp", " icmp6", " tcp-syn", " fragment", " ip4", " ip6", " udp, tcp", " 132", " not udp", " not tcp-syn", " not fragment", " tcp fragment"]),
    ];
    let ports = prop_oneof![
        5 => Just(String::new()),
        3 => select(vec![" to-port 80", " to-port 53, 443", " to-port 1024-1030", " from-port 0-1023", " to-port not 80", " from-port 1025, 1028"]).prop_map(str::to_owned),
    ];
    (kind, addresses("from"), addresses("to"), ports)
        .prop_map(|(kind, from, to, ports)| format!("{kind}{from}{to}{ports}"))
}

fn rule() -> impl Strategy<Value = String> {
    let limit = (
        select(vec!["1/s", "10/s", "100/s", "5k/s"]),
        select(vec!["1", "2", "5", "50"]),
        select(vec![
            "",
            " per source",
            " per source/24",
            " per source/24/48",
            " per rule",
            " per source block 2s",
            " per source/16/32 block 500ms",
        ]),
    )
        .prop_map(|(rate, burst, per)| format!(" rate {rate} burst {burst}{per}"));
    prop_oneof![
        2 => conditions().prop_map(|c| format!("allow{c}")),
        4 => conditions().prop_map(|c| format!("deny{c}")),
        1 => conditions().prop_map(|c| format!("shed{c} when load > 50")),
        3 => (conditions(), limit).prop_map(|(c, limit)| format!("limit{c}{limit}")),
        1 => (select(vec!["from @a", "from @b, 10.0.0.0/24", "to @a"]), select(vec!["2", "5"])).prop_map(|(c, burst)| format!("limit {c} rate 5/s burst {burst} per entry")),
    ]
}

/// Rules, lists, and whether the rest is dropped.
#[derive(Clone, Debug)]
struct Config {
    rules: Vec<String>,
    lists: [Vec<String>; 3],
    drops: (bool, bool),
    hits: bool,
}

fn config() -> impl Strategy<Value = Config> {
    let lists = (
        prop::collection::vec(line(), 0..8),
        prop::collection::vec(line(), 0..25),
        prop::collection::vec(prefix(), 0..6),
    );
    let rules = prop_oneof![8 => prop::collection::vec(rule(), 0..7), 1 => prop::collection::vec(rule(), 70..90)];
    (
        rules,
        lists,
        any::<(bool, bool)>(),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(rules, (a, b, c), drops, hits)| Config {
            rules,
            lists: [a, b, c],
            drops,
            hits,
        })
}

fn sample() -> impl Strategy<Value = Sample> {
    let frame = weir_packet::generate::frame()
        .prop_filter("test runs take 14 bytes and more", |f| {
            (14..=65_549).contains(&f.len())
        });
    (
        frame,
        prop_oneof![4 => 0u64..20_000_000, 1 => 0u64..400_000_000],
        0u64..100,
    )
        .prop_map(|(frame, gap_ns, load)| Sample {
            frame,
            gap_ns,
            load,
        })
}

fn toml(config: &Config) -> String {
    let quoted = |list: &[String]| {
        format!(
            "[{}]",
            list.iter()
                .map(|l| format!("{l:?}"))
                .collect::<Vec<_>>()
                .join(", ")
        )
    };
    let verdict = |drops| if drops { "drop" } else { "pass" };
    format!(
        "rules = {}\ndefault = {:?}\nother = {:?}\nhits = {}\n[sets]\na = {}\nb = {}\nc = {}\n",
        quoted(&config.rules),
        verdict(config.drops.0),
        verdict(config.drops.1),
        config.hits,
        quoted(&config.lists[0]),
        quoted(&config.lists[1]),
        quoted(&config.lists[2]),
    )
}

#[test]
fn generated_filters_do_what_their_rules_say_in_every_engine() {
    let cases = std::env::var("WEIR_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(if std::env::var_os("WEIR_LONG").is_some() {
            3000
        } else {
            200
        });
    let mut seen: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut refused = 0u32;
    let seen_here = std::cell::RefCell::new((&mut seen, &mut refused));
    let judged = |(config, samples): (Config, Vec<Sample>)| {
        let text = toml(&config);
        let filter = filter(&text);
        let Some(compiled) = compiled(&filter) else {
            *seen_here.borrow_mut().1 += 1;
            return Ok(());
        };
        for mut run in engines(&compiled) {
            let mut oracle = Oracle::new(&filter);
            let (mut now_ns, mut out) = (BEGIN_NS, Vec::new());
            for (number, sample) in samples.iter().enumerate() {
                now_ns += sample.gap_ns;
                if sample.load != oracle.load {
                    oracle.load = sample.load;
                    run.write("load", 0, &sample.load.to_ne_bytes());
                }
                let wanted = oracle.packet(&sample.frame, now_ns);
                let action = run.packet(&sample.frame, now_ns, &mut out);
                let found = if action == 2 { "pass" } else { "drop" };
                let same = match wanted {
                    Fate::Pass => action == 2,
                    Fate::Drop(_) => action == 1,
                };
                prop_assert!(
                    same,
                    "{}: packet {number} ({}) at +{} ns: {found}, wanted {wanted:?}\n{text}",
                    run.name(),
                    weir_packet::summary(&sample.frame),
                    now_ns - BEGIN_NS
                );
            }
            let (stats, counts, hits) = counted(run.as_ref(), &compiled);
            let reasons: BTreeMap<&'static str, u64> = Reason::ALL
                .iter()
                .map(|r| (r.name(), stats.reason[*r as usize]))
                .filter(|(_, n)| *n > 0)
                .collect();
            prop_assert_eq!(
                &reasons,
                &oracle.reasons,
                "{}: reasons\n{}",
                run.name(),
                text
            );
            prop_assert_eq!(stats.received, samples.len() as u64);
            prop_assert_eq!(stats.verdict.iter().sum::<u64>(), stats.received);
            let report = compiled.report(&filter, &counts, &hits);
            let rules: Vec<_> = report
                .rules
                .iter()
                .map(|r| (r.packets, r.bytes, r.dropped, r.blocked))
                .collect();
            prop_assert_eq!(&rules, &oracle.counts, "{}: rules\n{}", run.name(), text);
            let entries: Vec<_> = report
                .entries
                .iter()
                .map(|e| (e.set.as_str(), e.line, e.packets))
                .collect();
            let wanted: Vec<_> = oracle
                .hits
                .iter()
                .map(|((set, place), n)| {
                    (
                        filter.sets[*set].name.as_str(),
                        filter.sets[*set].entries[*place].line,
                        *n,
                    )
                })
                .collect();
            prop_assert_eq!(entries, wanted, "{}: hits\n{}", run.name(), text);
            for (reason, count) in &oracle.reasons {
                *seen_here.borrow_mut().0.entry(reason).or_default() += count;
            }
            for (number, rule) in filter.rules.iter().enumerate() {
                let verb = ["allow", "deny", "shed", "limit"][usize::from(rule.action.number())];
                *seen_here.borrow_mut().0.entry(verb).or_default() += oracle.counts[number].0;
            }
        }
        Ok(())
    };
    // Rarely no filter of a run blocks, say, a source that comes again: such a run goes on.
    let mut missing = Vec::new();
    let mut run = 0;
    for _ in 0..5 {
        let mut runner = proptest::test_runner::TestRunner::new(filters::settings(cases, file!()));
        if let Err(error) = runner.run(
            &(config(), prop::collection::vec(sample(), PACKETS)),
            judged,
        ) {
            crate::common::give_up(error);
        }
        run += cases;
        let seen = &seen_here.borrow().0;
        missing = WANTED.iter().filter(|w| !seen.contains_key(*w)).collect();
        if missing.is_empty() || cases < 60 {
            break;
        }
    }
    eprintln!("{run} filters x {PACKETS} packets; {refused} refused; {seen:?}");
    if cases >= 60 {
        assert!(missing.is_empty(), "no case met {missing:?}");
        assert!(refused < run / 10, "{refused} filters were refused");
    }
}

#[test]
fn accepted_packets_are_moved_to_their_cpus() {
    const REDIRECT: u32 = 4;
    let filter =
        filter("rules = [\"allow tcp cpu 0\", \"deny udp to-port 53\"]\ncpu = [0, 1]\nqueue = 64");
    let compiled = compiled(&filter).expect("compiles");
    for mut run in engines(&compiled) {
        let mut out = Vec::new();
        let frame = || weir_packet::build::Frame::new().ip4([10, 0, 0, 1], [10, 0, 0, 2]);
        for (frame, wanted) in [
            (frame().tcp(1, 2), REDIRECT),
            (frame().udp(1, 2), REDIRECT),
            (frame().udp(1, 53), 1),
            (
                weir_packet::build::Frame::new()
                    .ether_type(0x0806)
                    .payload(&[0; 46]),
                2,
            ),
        ] {
            assert_eq!(
                run.packet(&frame.build(), BEGIN_NS, &mut out),
                wanted,
                "{}",
                run.name()
            );
        }
        let (stats, ..) = counted(run.as_ref(), &compiled);
        assert_eq!(stats.verdict[..5], [0, 1, 1, 0, 2]);
    }
}

/// A table of destinations lies behind that of sources, and an address outside of all its prefixes has no position in it: what ends for
/// sources must not end for such a destination.
#[test]
fn entries_that_end_leave_addresses_outside_of_all_prefixes_alone() {
    let list: Vec<String> = (1..=20)
        .map(|host| format!("\"2001:db8::{host:x} until 1700000001\""))
        .collect();
    // With and without IPv6 destinations in the table.
    for to in [
        "10.0.0.1, 10.0.0.5, 10.0.0.9",
        "10.0.0.1, 10.0.0.5, 10.0.0.9, 2001:db8:1::/64",
    ] {
        let filter = filter(&format!(
            "rules = [\"deny from @ends\", \"allow from 2001:db8:2::1 to not @far\"]\ndefault = \"drop\"\n[sets]\nends = [{}]\nfar = [{}]",
            list.join(", "),
            to.split(", ")
                .map(|t| format!("{t:?}"))
                .collect::<Vec<_>>()
                .join(", "),
        ));
        let compiled = compiled(&filter).expect("compiles");
        let frame = weir_packet::build::Frame::new()
            .ip6(
                "2001:db8:2::1"
                    .parse::<std::net::Ipv6Addr>()
                    .expect("an address")
                    .octets(),
                "fd00::1"
                    .parse::<std::net::Ipv6Addr>()
                    .expect("an address")
                    .octets(),
            )
            .udp(1, 2)
            .build();
        for mut run in engines(&compiled) {
            let mut out = Vec::new();
            for seconds in [0, 2] {
                let now_ns = BEGIN_NS + seconds * 1_000_000_000;
                assert_eq!(
                    run.packet(&frame, now_ns, &mut out),
                    2,
                    "{}: to not {to}, after {seconds} s",
                    run.name()
                );
            }
        }
    }
}

/// A limit `per rule` counts prefixes of the rule and plain entries of its sets together, and entries about something else apart,
/// whatever else of the rule a packet matches.
#[test]
fn a_limit_counts_what_its_entries_are_about() {
    const PASS: u32 = 2;
    const DROP: u32 = 1;
    let filter = filter(
        "rules = [\"limit from @some, 10.0.0.1 rate 1/s burst 1\"]\n[sets]\nsome = [\"10.0.0.2\", \"10.0.0.1 udp\", \"10.0.0.3 udp\"]",
    );
    let compiled = compiled(&filter).expect("compiles");
    for mut run in engines(&compiled) {
        let mut out = Vec::new();
        for (at, host, is_udp, wanted) in [
            (0, 1, false, PASS),
            (1, 2, false, DROP),
            (2, 3, false, PASS),
            (3, 3, true, PASS),
            (4, 3, true, DROP),
            // Both of the rule and of UDP's own entry.
            (2_000_000_000, 1, true, PASS),
            (2_000_000_001, 2, true, DROP),
            (2_000_000_002, 3, true, DROP),
        ] {
            let frame = weir_packet::build::Frame::new().ip4([10, 0, 0, host], [192, 0, 2, 1]);
            let frame = if is_udp {
                frame.udp(1, 2)
            } else {
                frame.tcp(1, 2)
            };
            let found = run.packet(&frame.build(), BEGIN_NS + at, &mut out);
            assert_eq!(found, wanted, "{}: host {host} at {at} ns", run.name());
        }
    }
}

/// A rule that is there twice counts a packet once in each, not twice in both.
#[test]
fn rules_with_the_same_text_count_apart() {
    for per in ["per source", "per entry", "per rule"] {
        let rule = format!("\"limit from 10.0.0.0/24 rate 1/s burst 3 {per}\"");
        let filter = filter(&format!("rules = [{rule}, {rule}]"));
        let compiled = compiled(&filter).expect("compiles");
        for mut run in engines(&compiled) {
            let mut out = Vec::new();
            let frame = weir_packet::build::Frame::new()
                .ip4([10, 0, 0, 1], [192, 0, 2, 1])
                .udp(1, 2)
                .build();
            let found = [0; 4].map(|_| run.packet(&frame, BEGIN_NS, &mut out));
            assert_eq!(found, [2, 2, 2, 1], "{}: {per}", run.name());
        }
    }
}
