//! Stateful rules that change while connections live: a connection goes on with those of its rules that are left, finds them wherever an
//! edit has put them, keeps what was chosen for it, and ends with the last of them. A model in this file says what each packet meets.
//!
//! A new layout starts with empty tables here, as its own instance does; that connections outlive one is tested on interfaces.

#![allow(
    clippy::print_stderr,
    reason = "what was compared is said where the test runs"
)]

use std::collections::BTreeMap;

use crate::common;
use crate::updates::{InKernel, InVm, Instance, Random, rules_of};
use weir_engine::EngineKind;
use weir_functions::middlebox::{Edit, RuleBook, Staged};
use weir_functions::plan::InstancePlan;
use weir_packet::Verdict;
use weir_packet::build::Frame;
use weir_policy::model::{Connections, Target};

/// Edits of a run; more than there are ids beside the plan, so that some rebuild the classifier.
const EDITS: usize = 1500;
/// Sources, and ports that rules name.
const SOURCES: usize = 4;
const PORTS: usize = 5;
/// The source port of every packet, and the size of a pool that takes its place.
const SPORT: u16 = 4000;
const POOL: u16 = 10;
/// Everything that rules beside the plan need is in the program: operations, the translation of ports.
const POLICY: &str = "ip-proto udp drop\nadd-stateful udp-dport 4998 accept\nadd-stateful udp-dport 4999 mod ip-dscp 3 map udp-sport 30000-30009 accept\n";

#[test]
fn connections_keep_to_their_rules_through_edits_in_the_user_engine() {
    edit_under_connections(&mut InVm::new, EDITS);
}

#[test]
fn connections_keep_to_their_rules_through_edits_in_the_kernel() {
    if common::engines().contains(&EngineKind::Kernel) {
        edit_under_connections(&mut InKernel::new, EDITS);
    }
}

#[test]
fn limits_for_each_source_go_on_through_edits_in_the_user_engine() {
    edit_beside_limits(&mut InVm::new);
}

#[test]
fn limits_for_each_source_go_on_through_edits_in_the_kernel() {
    if common::engines().contains(&EngineKind::Kernel) {
        edit_beside_limits(&mut InKernel::new);
    }
}

/// A limit beside the plan keeps its counts when other rules are added. One that replaces it starts at zero, in any table.
fn edit_beside_limits<I: Instance>(load: &mut dyn FnMut(&InstancePlan) -> I) {
    let table = Connections {
        limits: 64,
        ..Connections::default()
    };
    let planned = "udp-dport 1 drop over 1/s burst 2 per source\n";
    let (mut book, plan) = RuleBook::new(rules_of(planned), &table, &[], false).expect("a plan");
    let mut running = load(&plan);
    let limit = "udp-dport 5000 drop over 1/s burst 2 per source\n";
    let mut edit = |running: &mut I, edits: Vec<Edit>| {
        match book.stage(edits).expect("staged") {
            Staged::InPlace(step) => {
                running.apply(&step);
                book.commit(*step);
            }
            Staged::Rebuild(_) => panic!("a table is ready"),
        }
        book.entries().last().expect("a rule").rule.id
    };
    let add = |text: &str| Edit::Add(Box::new(rules_of(text).pop().expect("a rule")));
    let verdicts = |running: &mut I, packets: usize| -> Vec<Verdict> {
        let frame = Frame::new()
            .ip4([10, 0, 0, 1], [10, 9, 9, 9])
            .udp(SPORT, 5000)
            .build();
        let mut out = Vec::new();
        (0..packets)
            .map(|_| running.packet(&frame, &mut out))
            .collect()
    };
    let mut id = edit(&mut running, vec![add(limit)]);
    // More often than tables are ready: they are given again.
    for _ in 0..100 {
        assert_eq!(verdicts(&mut running, 2), [Verdict::Pass; 2]);
        let other = edit(&mut running, vec![add("ip-daddr 10.1.0.0/16 drop\n")]);
        assert_eq!(verdicts(&mut running, 2), [Verdict::Drop; 2]);
        let replaced = vec![Edit::Delete(other), Edit::Delete(id), add(limit)];
        id = edit(&mut running, replaced);
    }
}

/// A connection as the model has it.
struct Connection {
    /// Ids, of which some may be gone.
    rules: Vec<u32>,
    /// Its source port behind the translation.
    sport: u16,
}

fn edit_under_connections<I: Instance>(load: &mut dyn FnMut(&InstancePlan) -> I, wanted: usize) {
    let table = Connections {
        capacity: 1024,
        ..Connections::default()
    };
    let (mut book, plan) = RuleBook::new(rules_of(POLICY), &table, &[], false).expect("a plan");
    let fixed = book.entries().len();
    let mut running = load(&plan);
    let mut connections: BTreeMap<(usize, usize), Connection> = BTreeMap::new();
    let mut random = Random(23);
    let (mut in_place, mut rebuilt, mut ended, mut followed) = (0, 0, 0, 0);
    for number in 1..=wanted {
        let ids: Vec<u32> = book.entries().skip(fixed).map(|e| e.rule.id).collect();
        let add = |random: &mut Random| {
            let rule = rules_of(&rule_text(random)).pop().expect("a rule");
            Edit::Add(Box::new(rule))
        };
        let mut edits = Vec::new();
        if ids.len() > 30 || (!ids.is_empty() && random.below(9) < 5) {
            edits.push(Edit::Delete(ids[random.below(ids.len())]));
        }
        if ids.len() <= 30 && (edits.is_empty() || random.below(3) == 0) {
            edits.push(add(&mut random));
        }
        match book.stage(edits).expect("few rules match one packet") {
            Staged::InPlace(step) => {
                running.apply(&step);
                book.commit(*step);
                in_place += 1;
            }
            Staged::Rebuild(rebuild) => {
                running = load(&rebuild.plan);
                book.commit_rebuild(*rebuild);
                connections.clear();
                rebuilt += 1;
            }
        }
        for _ in 0..4 {
            let flow = (random.below(SOURCES), random.below(PORTS));
            let (outcome, matched) = send(&book, &mut running, flow);
            let wanted = expect(&book, &mut connections, flow, &mut ended, &mut followed);
            assert_eq!(
                matched, wanted.matched,
                "after edit {number}: rules that {flow:?} met"
            );
            match (outcome, wanted.passes) {
                (None, false) => {}
                (Some(sport), true) => wanted.check(&book, &mut connections, flow, sport, number),
                (found, wanted) => {
                    panic!("after edit {number}: {flow:?} left by {found:?}, passes: {wanted}")
                }
            }
        }
    }
    eprintln!(
        "{in_place} edits in place, {rebuilt} by a rebuild; {followed} packets of connections whose rules moved or stayed, {ended} connections ended"
    );
    assert!(
        rebuilt > 0 && rebuilt * 100 < wanted,
        "{rebuilt} of {wanted} edits rebuilt the classifier"
    );
    assert!(
        ended > wanted / 50 && followed > wanted,
        "{ended} {followed}"
    );
}

/// What the model says of a packet.
struct Wanted {
    matched: Vec<u32>,
    passes: bool,
    opens: bool,
}

impl Wanted {
    /// The port behind the translation is that of the connection, or of a pool of a rule that opens it.
    fn check(
        &self,
        book: &RuleBook,
        connections: &mut BTreeMap<(usize, usize), Connection>,
        flow: (usize, usize),
        sport: u16,
        number: usize,
    ) {
        if !self.opens {
            assert_eq!(
                connections[&flow].sport, sport,
                "after edit {number}: the port of {flow:?}"
            );
            return;
        }
        let pools: Vec<u16> = (self.matched.iter())
            .filter_map(|id| pool_of(&book.entry(*id)?.text))
            .collect();
        let is_right = match pools.is_empty() {
            true => sport == SPORT,
            false => pools.iter().any(|&lo| (lo..lo + POOL).contains(&sport)),
        };
        assert!(
            is_right,
            "after edit {number}: {flow:?} got port {sport} of the pools at {pools:?}"
        );
        let rules = self.matched.clone();
        connections.insert(flow, Connection { rules, sport });
    }
}

fn expect(
    book: &RuleBook,
    connections: &mut BTreeMap<(usize, usize), Connection>,
    flow: (usize, usize),
    ended: &mut usize,
    followed: &mut usize,
) -> Wanted {
    let of_connection: Option<Vec<u32>> = connections.get(&flow).map(|connection| {
        let ids = connection.rules.iter().copied();
        ids.filter(|id| book.entry(*id).is_some()).collect()
    });
    let accepts = |ids: &[u32]| {
        ids.iter().any(|id| {
            let targets = &book.entry(*id).expect("a rule").rule.targets;
            targets.iter().any(|t| matches!(t, Target::Accept))
        })
    };
    if let Some(left) = of_connection {
        if !left.is_empty() {
            *followed += 1;
            let passes = accepts(&left);
            return Wanted {
                matched: left,
                passes,
                opens: false,
            };
        }
        connections.remove(&flow);
        *ended += 1;
    }
    let (source, port) = flow;
    let met = [
        format!("udp-dport {} ", 5000 + port),
        format!("ip-saddr 10.0.0.{source} "),
    ];
    let matched: Vec<u32> = (book.entries())
        .filter(|e| e.rule.stateful && met.iter().any(|what| e.text.contains(what)))
        .map(|e| e.rule.id)
        .collect();
    let passes = accepts(&matched);
    Wanted {
        matched,
        passes,
        opens: passes,
    }
}

/// Sends a packet; its source port if it passes, and the stateful rules that counted it.
fn send(
    book: &RuleBook,
    running: &mut dyn Instance,
    (source, port): (usize, usize),
) -> (Option<u16>, Vec<u32>) {
    let frame = Frame::new()
        .ip4([10, 0, 0, source as u8], [10, 9, 9, 9])
        .udp(SPORT, 5000 + port as u16)
        .payload(b"payload of a datagram");
    let stateful: Vec<_> = book.entries().filter(|e| e.rule.stateful).collect();
    let counts = |running: &mut dyn Instance| -> Vec<u64> {
        let slots = stateful.iter().map(|e| e.slot);
        slots.map(|slot| running.counter(slot).packets).collect()
    };
    let before = counts(running);
    let mut out = Vec::new();
    let verdict = running.packet(&frame.build(), &mut out);
    let after = counts(running);
    let matched = (stateful.iter().zip(before).zip(after))
        .filter(|((_, before), after)| before != after)
        .map(|((entry, _), _)| entry.rule.id)
        .collect();
    let sport = (verdict == Verdict::Pass).then(|| u16::from_be_bytes([out[34], out[35]]));
    (sport, matched)
}

/// First port of the pool of a rule.
fn pool_of(text: &str) -> Option<u16> {
    let (_, pool) = text.split_once("map udp-sport ")?;
    let (first, _) = pool.split_once('-')?;
    Some(first.parse().expect("a port"))
}

fn rule_text(random: &mut Random) -> String {
    let source = random.below(SOURCES);
    let port = 5000 + random.below(PORTS);
    let pool = 20_000 + 100 * random.below(90);
    match random.below(8) {
        0..3 => format!("add-stateful udp-dport {port} accept\n"),
        3 => format!("add-stateful ip-saddr 10.0.0.{source} mod ip-dscp 9\n"),
        4 => format!("add-stateful ip-saddr 10.0.0.{source} accept\n"),
        5 => format!(
            "add-stateful udp-dport {port} map udp-sport {pool}-{} accept\n",
            pool + 9
        ),
        // What else lies beside the plan moves these.
        6 => format!("ip-ttl 3-{} udp-dport {port} drop\n", 4 + random.below(50)),
        _ => format!("ip-daddr 10.{}.0.0/16 udp-dport {port} drop\n", source + 20),
    }
}
