//! What a packet costs each function, counted by the user engine: instructions, calls, helpers and cache lines, the same on every machine.
//!
//! Every row is a policy or configuration and 64 packets of as many flows. benches/record/costs.tsv keeps the most that one of them took
//! ([`Budget`]); docs/design/costs.md says what the columns mean. With the compiler of the record nothing may grow. Objects of another
//! compiler have other counts: these are printed only. `WEIR_UPDATE=1` writes the record.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use crate::balancers;
use crate::common::policy;
use crate::filters;
use weir_functions::plan::InstancePlan;
use weir_packet::build::Frame;
use weir_vm::{BPF_ANY, Budget, Cost, Env, Machine, Object};

/// Packets, each of a flow of its own.
const FLOWS: u16 = 64;
const HOST: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [198, 51, 100, 7];

const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;

/// A name and the costs of the packets that are judged.
type Row = (&'static str, Vec<Cost>);

#[test]
fn no_packet_costs_more_than_on_record() {
    let mut rows = Vec::new();
    middlebox(&mut rows);
    connections(&mut rows);
    filter(&mut rows);
    balancer(&mut rows);
    let found: Vec<(&str, Budget)> = rows
        .iter()
        .map(|(name, costs)| (*name, Budget::of(costs)))
        .collect();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../benches/record/costs.tsv");
    if std::env::var_os("WEIR_UPDATE").is_some() {
        std::fs::write(&path, written(&found)).expect("the record");
    }
    let record = std::fs::read_to_string(&path).expect("the record");
    let is_same = record.contains(&format!("compiler {}\n", compiler()));
    let mut worse = String::new();
    for (name, budget) in &found {
        eprintln!("{name}: {budget}");
        let Some(most) = recorded(&record, name) else {
            let _ = writeln!(worse, "{name}: not on record");
            continue;
        };
        let columns = columns(budget);
        for ((what, count), most) in COLUMNS.iter().zip(columns).zip(most) {
            if count > most {
                let _ = writeln!(worse, "{name}: {count} {what}, {most} on record");
            }
        }
    }
    let names = record.lines().filter(|l| !l.starts_with('#'));
    for name in names.filter_map(|line| line.split('\t').next()) {
        if !found.iter().any(|(found, _)| *found == name) {
            let _ = writeln!(worse, "{name}: on record, and measured no more");
        }
    }
    eprint!("{worse}");
    assert!(
        !is_same || worse.is_empty(),
        "if it is meant, WEIR_UPDATE=1 writes the record:\n{worse}"
    );
}

const COLUMNS: [&str; 5] = [
    "instructions",
    "calls",
    "helpers",
    "shared lines",
    "own lines",
];

fn columns(budget: &Budget) -> [u64; 5] {
    [
        budget.instructions,
        budget.calls,
        budget.helpers,
        budget.shared_lines,
        budget.own_lines,
    ]
}

fn written(found: &[(&str, Budget)]) -> String {
    let mut text = format!("# compiler {}\n# packet", compiler());
    for column in COLUMNS {
        let _ = write!(text, "\t{column}");
    }
    text.push('\n');
    for (name, budget) in found {
        text.push_str(name);
        for count in columns(budget) {
            let _ = write!(text, "\t{count}");
        }
        text.push('\n');
    }
    text
}

fn recorded(record: &str, name: &str) -> Option<[u64; 5]> {
    let line = record.lines().find_map(|line| {
        let (first, rest) = line.split_once('\t')?;
        (first == name).then_some(rest)
    })?;
    let counts: Vec<u64> = line.split('\t').filter_map(|n| n.parse().ok()).collect();
    counts.try_into().ok()
}

/// Policies that keep no connections.
fn middlebox(rows: &mut Vec<Row>) {
    let udp = |flow: u16| datagram(HOST, SERVER, 5000 + flow, 53);
    let tcp = |flow: u16| {
        let frame = Frame::new().ip4(HOST, SERVER).tcp(5000 + flow, 80);
        frame.flags(Frame::ACK).payload(b"data").build()
    };
    let mut judged = |name, text: &str, wanted, packet: &dyn Fn(u16) -> Vec<u8>| {
        let (plan, _) = weir_functions::middlebox::plan(&policy(text), &[]).expect("planned");
        rows.push((name, each(&mut machine(&plan), wanted, packet)));
    };
    judged("no rules, UDP", "", PASS, &udp);
    judged("no rules, TCP", "", PASS, &tcp);

    let exact: String = (0..1000)
        .map(|n| {
            format!(
                "ip-saddr 10.0.0.1 ip-daddr 198.51.100.7 udp-sport {} udp-dport 53 drop\n",
                5000 + n
            )
        })
        .collect();
    judged("1,000 exact tuples, UDP", &exact, DROP, &udp);
    let mixed: String = (0..1000)
        .map(|n| {
            format!(
                "ip-saddr 10.{}.{}.0/24 tcp-dport {}-65535 accept\n",
                n / 250,
                n % 250,
                n % 64
            )
        })
        .collect();
    judged("1,000 prefixes and ranges, TCP", &mixed, PASS, &|flow| {
        let from = [10, (flow % 4) as u8, (flow * 3) as u8, 9];
        let frame = Frame::new().ip4(from, SERVER).tcp(5000, 443);
        frame.flags(Frame::ACK).payload(b"data").build()
    });
    let values: String = (0..1000)
        .map(|n| format!("tcp-opt-mss {} drop\n", 400 + n))
        .collect();
    judged("1,000 MSS values, SYN", &values, DROP, &|flow| {
        let mss = (400 + flow).to_be_bytes();
        let frame = Frame::new().ip4(HOST, SERVER).tcp(5000, 80);
        frame.flags(Frame::SYN).tcp_option(2, &mss).build()
    });
    let rewrite = "ip-saddr 10.0.0.0/8 mod ip-daddr 192.0.2.1 accept";
    judged("one rewrite, UDP", rewrite, PASS, &udp);
}

/// Packets of open connections.
fn connections(rows: &mut Vec<Row>) {
    const SYN: u8 = Frame::SYN;
    const ACK: u8 = Frame::ACK;
    let out = |flow: u16, flags: u8, sequence: u32, acknowledgement: u32| {
        let frame = Frame::new()
            .ip4(HOST, SERVER)
            .tcp(5000 + flow, 80)
            .flags(flags);
        frame.numbers(sequence, acknowledgement)
    };
    let back = |flow: u16, flags: u8, sequence: u32, acknowledgement: u32| {
        let frame = Frame::new()
            .ip4(SERVER, HOST)
            .tcp(80, 5000 + flow)
            .flags(flags);
        frame.numbers(sequence, acknowledgement).build()
    };
    let started = |settings: &str, what: &str| {
        let text = format!("{settings}add-stateful ip-saddr 10.0.0.0/8 {what}\nall drop");
        let (plan, _) = weir_functions::middlebox::plan(&policy(&text), &[]).expect("planned");
        machine(&plan)
    };
    let established = |settings: &str| {
        let mut machine = started(settings, "accept");
        for flow in 0..FLOWS {
            run(&mut machine, &out(flow, SYN, 1000, 0).build(), PASS);
            run(&mut machine, &back(flow, SYN | ACK, 5000, 1001), PASS);
            run(&mut machine, &out(flow, ACK, 1001, 5001).build(), PASS);
            run(&mut machine, &back(flow, ACK, 5001, 1001), PASS);
        }
        machine
    };
    let udp = |flow: u16| datagram(HOST, SERVER, 5000 + flow, 53);
    let data = |flow: u16| out(flow, ACK, 1001, 5001).payload(b"data").build();

    let mut plain = started("", "accept");
    each(&mut plain, PASS, &udp);
    rows.push(("open connection, UDP", each(&mut plain, PASS, &udp)));
    let mut tcp = established("");
    let acknowledges = |flow: u16| out(flow, ACK, 1001, 5001).build();
    rows.push((
        "open connection, TCP acknowledges",
        each(&mut tcp, PASS, &acknowledges),
    ));
    rows.push(("open connection, TCP data", each(&mut tcp, PASS, &data)));
    rows.push((
        "open connection, TCP data again",
        each(&mut tcp, PASS, &data),
    ));
    let mut loose = established("loose tcp\n");
    rows.push((
        "open connection, TCP data, loose",
        each(&mut loose, PASS, &data),
    ));
    let mut translated = started("", "map ip-saddr 192.0.2.0-192.0.2.63 accept");
    each(&mut translated, PASS, &udp);
    rows.push((
        "open connection, UDP, NAT",
        each(&mut translated, PASS, &udp),
    ));
}

fn filter(rows: &mut Vec<Row>) {
    let list = |ip6: bool, count: u32| {
        let prefix = |n: u32| match ip6 {
            false => format!("\"198.{}.{}.0/24\"", 18 + (n >> 8), n & 255),
            true => format!("\"2001:db8:{n:x}::/48\""),
        };
        let prefixes: Vec<String> = (0..count).map(prefix).collect();
        format!(
            "rules = [\"deny from @bad\"]\n[sets]\nbad = [{}]\n",
            prefixes.join(", ")
        )
    };
    let from4 = |flow: u16| datagram([198, 18, flow as u8, 1], HOST, 5000, 53);
    let from6 = |flow: u16| {
        let mut source = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        source[5] = flow as u8;
        let frame = Frame::new().ip6(source, [0x21; 16]).udp(5000, 53);
        frame.payload(b"data").build()
    };
    let mut judged = |name, text: &str, packet: &dyn Fn(u16) -> Vec<u8>| {
        let planned = filters::planned(text);
        rows.push((name, each(&mut machine(&planned.instance), DROP, packet)));
    };
    judged(
        "list of 1,000 IPv4 prefixes, drop",
        &list(false, 1000),
        &from4,
    );
    judged(
        "list of 1,000 IPv6 prefixes, drop",
        &list(true, 1000),
        &from6,
    );
}

fn balancer(rows: &mut Vec<Row>) {
    for (mode, name) in [
        ("ipip", "balancer ipip, known flow"),
        ("gue", "balancer gue, known flow"),
        ("nat", "balancer nat, known flow"),
        ("dsr", "balancer dsr, known flow"),
    ] {
        let text = format!(
            "source4 = \"10.99.0.0/16\"\nring = 1009\n[[service]]\naddress = \"192.0.2.1\"\nprotocol = \"tcp\"\nport = 80\nmode = \"{mode}\"\n\
             server = [{{ address = \"10.0.0.1\", mac = \"02:00:00:00:01:01\" }}]\n"
        );
        let planned = balancers::planned(&text, &[]).expect("planned");
        let mut machine = machine(&planned.instance);
        let ask = |flow: u16| {
            let frame = Frame::new().ip4([198, 51, 100, 1], [192, 0, 2, 1]);
            frame.tcp(1000 + flow, 80).flags(Frame::ACK).build()
        };
        each(&mut machine, TX, &ask);
        rows.push((name, each(&mut machine, TX, &ask)));
        if mode != "nat" {
            continue;
        }
        let from_server = |from: u16, to: u16| {
            let frame = Frame::new().ip4([10, 0, 0, 1], [198, 51, 100, 1]);
            frame.tcp(from, to).flags(Frame::ACK).build()
        };
        rows.push((
            "balancer nat, answer",
            each(&mut machine, PASS, &|flow| from_server(80, 1000 + flow)),
        ));
        rows.push((
            "balancer nat, answer to somebody else",
            each(&mut machine, PASS, &|flow| from_server(80, 10_000 + flow)),
        ));
        rows.push((
            "balancer nat, no server's port",
            each(&mut machine, PASS, &|flow| from_server(22, 1000 + flow)),
        ));
    }
}

fn datagram(from: [u8; 4], to: [u8; 4], source: u16, destination: u16) -> Vec<u8> {
    let frame = Frame::new().ip4(from, to).udp(source, destination);
    frame.payload(b"data").build()
}

/// The packet of each flow through the machine, one after the other.
fn each(machine: &mut Machine, wanted: u32, packet: &dyn Fn(u16) -> Vec<u8>) -> Vec<Cost> {
    (0..FLOWS)
        .map(|flow| run(machine, &packet(flow), wanted))
        .collect()
}

fn run(machine: &mut Machine, bytes: &[u8], wanted: u32) -> Cost {
    let mut frame = weir_vm::Frame::new(bytes);
    let verdict = machine.run_xdp(&mut frame, &Env::default()).expect("runs");
    assert_eq!(verdict, wanted);
    machine.take_cost().expect("counted")
}

fn machine(plan: &InstancePlan) -> Machine {
    let mut object = Object::parse(plan.object.bytes().expect("embedded")).expect("parses");
    for (symbol, bytes) in &plan.constants {
        object.set_rodata(symbol, bytes).expect("a constant");
    }
    for map in &plan.maps {
        object
            .set_map_entries(&map.name, map.max_entries)
            .expect("a map");
    }
    let mut machine = object.load(&plan.program).expect("loads");
    for map in &plan.maps {
        let target = machine.map_mut(&map.name).expect("a map");
        for (key, value) in map.entries() {
            target.update_all(key, value, BPF_ANY).expect("an update");
        }
    }
    machine.count_costs();
    machine
}

/// First line of the compiler's version, as the build uses it.
fn compiler() -> String {
    let clang = std::env::var("WEIR_CLANG").unwrap_or_else(|_| "clang".to_owned());
    let output = Command::new(clang).arg("--version").output();
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or_default().to_owned()
}
