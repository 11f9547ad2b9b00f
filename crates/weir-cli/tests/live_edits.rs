//! Random live edits of all kinds beside a numbered stream: no packet is lost, and each sees the rules before an edit or those after it. Two rules
//! that always change together mark the packets: whoever sees half a change carries two marks. Needs root.
//!
//! 60 edits, 1,000 with `WEIR_LONG=1`. Times are printed, not asserted.

#![allow(clippy::print_stderr, reason = "figures are said where the test runs")]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::live_bed::{Run, file, root, stderr, weir};
use serde_json::Value;
use weir_kernel::{NetNs, bed, pins};

/// Between two packets.
const PAUSE: Duration = Duration::from_micros(300);
/// Nothing comes any more.
const SILENCE: Duration = Duration::from_secs(2);

/// The mark of a packet: low bits of its source address, and its source port above this one.
const FIRST_PORT: u16 = 20_000;

/// The rules that change together.
fn pair(mark: u16) -> [String; 2] {
    let [high, low] = mark.to_be_bytes();
    [
        format!("udp-dport 9 mod ip-saddr 10.87.{high}.{low}"),
        format!("udp-dport 9 mod udp-sport {}", FIRST_PORT + mark),
    ]
}

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Not that of the stream.
    fn port(&mut self) -> u64 {
        1000 + self.below(50_000)
    }
}

/// The instance as the edits have made it.
struct Edited<'a> {
    ns: &'a NetNs,
    policy: PathBuf,
    numbers: Numbers,
    mark: u16,
    /// Kinds of edits with the time that each took, the program's start included.
    took: Vec<(&'static str, Duration)>,
    rebuilt: usize,
}

impl Edited<'_> {
    fn policy_text(numbers: &mut Numbers, mark: u16) -> String {
        let [one, other] = pair(mark);
        let mut port = || numbers.port();
        format!(
            "connections 1024\nlimits 256\nset bad = {{ 192.0.2.{}, 198.51.100.0/24 }}\nset seen = dynamic size 64\n\
             chain side {{\n    udp-dport {} drop\n    ip-saddr in @bad drop\n}}\n\
             add-stateful udp-dport 7 timeout 1m\nudp-dport {} drop over 5/s per source\n{one}\nudp jump side\nudp-dport {} add @seen source\n{other}\n",
            port() % 250,
            port(),
            port(),
            port(),
        )
    }

    fn run(&mut self, kind: &'static str, arguments: &[&str]) -> Value {
        let begun = Instant::now();
        // What follows `add` is the rule.
        let (first, rest) = arguments.split_at(1);
        let output = weir(self.ns, &[first, &["--json"], rest].concat());
        self.took.push((kind, begun.elapsed()));
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            stderr(&output)
        );
        let said: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        self.rebuilt += usize::from(said["rebuilt"] == true);
        said
    }

    /// Ids of live rules whose text begins so; `None`: of those that drop a port.
    fn ids(&self, begins: Option<&str>) -> Vec<String> {
        let output = weir(self.ns, &["rule", "list", "--json"]);
        let list: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        let rules = list["rules"].as_array().expect("rules").iter();
        let wanted = |rule: &&Value| {
            let text = rule["rule"].as_str().expect("text");
            let is_one = match begins {
                Some(begins) => text.starts_with(begins),
                None => text.starts_with("udp-dport") && text.contains("drop"),
            };
            is_one && rule["state"] != "deleted-live"
        };
        rules
            .filter(wanted)
            .map(|rule| rule["id"].to_string())
            .collect()
    }

    fn edit(&mut self) {
        let port = self.numbers.port();
        match self.numbers.below(10) {
            0 => drop(self.run("add", &["rule", "add", &format!("udp-dport {port} drop")])),
            1 => {
                let rule = format!("udp-dport {port} drop over 5/s per source");
                self.run("limit of sources", &["rule", "add", &rule]);
            }
            2 => {
                let rule = format!("udp-dport {port} drop over 4 connections per source");
                self.run("limit of connections", &["rule", "add", &rule]);
            }
            kind @ (3 | 4) => {
                let ids = self.ids(None);
                let Some(id) = ids.get(self.numbers.below(ids.len().max(1) as u64) as usize) else {
                    return;
                };
                if kind == 3 {
                    self.run("delete", &["rule", "delete", id]);
                } else {
                    let rule = format!("udp-dport {port} drop");
                    self.run("replace", &["rule", "replace", id, &rule]);
                }
            }
            5 => {
                let address = format!("10.86.9.{}", port % 250);
                let verb = ["add", "delete"][(port % 2) as usize];
                let also = ["set", verb, "seen", &address];
                // Deleting an absent address fails, and does not count as an edit.
                let begun = Instant::now();
                if weir(self.ns, &also).status.success() {
                    self.took.push(("set", begun.elapsed()));
                }
            }
            6 => drop(self.run("compact", &["rule", "compact"])),
            7 => {
                // The new pair is behind the old one, so it counts; then the old one goes.
                let old = self.ids(Some("udp-dport 9 mod"));
                self.mark += 1;
                let [one, other] = pair(self.mark);
                let text = file("pair.rules", &format!("{one}\n{other}\n"));
                let begun = Instant::now();
                let output = (self.ns.command("sh").expect("namespace"))
                    .arg("-c")
                    .arg(format!(
                        "{} rule add - < {}",
                        env!("CARGO_BIN_EXE_weir"),
                        text.display()
                    ))
                    .output()
                    .expect("sh");
                self.took.push(("add of two", begun.elapsed()));
                assert!(output.status.success(), "{}", stderr(&output));
                let old: Vec<&str> = old.iter().map(String::as_str).collect();
                self.run("delete of two", &[&["rule", "delete"], &old[..]].concat());
            }
            _ => {
                self.mark += 1;
                let text = Self::policy_text(&mut self.numbers, self.mark);
                fs::write(&self.policy, text).expect("written");
                let path = self.policy.to_str().expect("text").to_owned();
                self.run("load", &["rule", "load", &path]);
            }
        }
    }
}

#[test]
fn random_edits_lose_no_packet_and_show_none_half_a_change() {
    if !root("random_edits_lose_no_packet_and_show_none_half_a_change") {
        return;
    }
    pins::ensure_bpffs().expect("bpffs");
    let edits = match std::env::var("WEIR_LONG").as_deref() == Ok("1") {
        true => 1_000,
        false => 60,
    };
    let left = NetNs::create("weired-l").expect("namespace");
    let right = NetNs::create("weired-r").expect("namespace");
    let end = |ns, name, addresses| bed::End {
        ns,
        name,
        addresses,
    };
    bed::veth(
        end(&left, "left0", &["10.86.0.1/24"]),
        end(&right, "right0", &["10.86.0.2/24"]),
    )
    .expect("veth");
    (right.ip(&["route", "add", "10.87.0.0/16", "dev", "right0"])).expect("ip route");
    let mut numbers = Numbers(2026);
    let policy = Edited::policy_text(&mut numbers, 0);
    let run = Run::start(&right, &policy, &["right0"], &[]);
    let receiver = (right.run(|| UdpSocket::bind("10.86.0.2:9")))
        .expect("namespace")
        .expect("bound");
    rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 1 << 24).expect("sockopt");
    receiver.set_read_timeout(Some(SILENCE)).expect("sockopt");
    let sender = (left.run(|| UdpSocket::bind("10.86.0.1:5000")))
        .expect("namespace")
        .expect("bound");
    let mut edited = Edited {
        ns: &right,
        policy: file("edits.weir", &policy),
        numbers,
        mark: 0,
        took: Vec::new(),
        rebuilt: 0,
    };
    let stop = AtomicBool::new(false);
    let (sent, seen) = std::thread::scope(|scope| {
        let _stops = common::Stops(&stop);
        let sending = scope.spawn(|| {
            let mut number = 0u32;
            while !stop.load(Ordering::Relaxed) {
                (sender.send_to(&number.to_be_bytes(), "10.86.0.2:9")).expect("sent");
                number += 1;
                std::thread::sleep(PAUSE);
            }
            number
        });
        let receiving = scope.spawn(|| {
            let mut seen: Vec<(u32, IpAddr, u16)> = Vec::new();
            let mut buffer = [0; 4];
            while let Ok((4, from)) = receiver.recv_from(&mut buffer) {
                seen.push((u32::from_be_bytes(buffer), from.ip(), from.port()));
            }
            seen
        });
        while edited.took.len() < edits {
            edited.edit();
        }
        stop.store(true, Ordering::Relaxed);
        (
            sending.join().expect("all sent"),
            receiving.join().expect("all received"),
        )
    });
    run.stop();

    let mut took: Vec<Duration> = edited.took.iter().map(|(_, took)| *took).collect();
    took.sort_unstable();
    let at = |part: usize| took[(took.len() * part / 100).min(took.len() - 1)];
    let mut torn = Vec::new();
    let mut last = 0;
    for &(number, address, port) in &seen {
        let IpAddr::V4(address) = address else {
            panic!("{address}");
        };
        let mark = port.wrapping_sub(FIRST_PORT);
        let [high, low] = mark.to_be_bytes();
        // Rules come, none returns: marks ascend.
        if address != Ipv4Addr::new(10, 87, high, low) || mark < last {
            torn.push((number, address, port));
        }
        last = mark.max(last);
    }
    let in_order = seen.iter().map(|(number, ..)| *number).eq(0..sent);
    eprintln!(
        "{} edits, {} of them rebuilds, {} changes of the pair, beside {sent} packets: {} lost, {} torn; p50 {:?}, p99 {:?}, max {:?}",
        took.len(),
        edited.rebuilt,
        edited.mark,
        sent as usize - seen.len().min(sent as usize),
        torn.len(),
        at(50),
        at(99),
        at(100)
    );
    assert!(
        torn.is_empty(),
        "{} packets, as {:?}",
        torn.len(),
        &torn[..torn.len().min(5)]
    );
    assert!(in_order, "{} of {sent} came, in their order", seen.len());
    assert!(edited.mark >= 5, "{}", edited.mark);
    let mut kinds: Vec<&str> = edited.took.iter().map(|(kind, _)| *kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), 10, "{kinds:?}");
}
