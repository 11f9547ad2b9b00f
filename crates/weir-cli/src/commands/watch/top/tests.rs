//! The screen at two sizes, and keys, on readings that are made up.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::draw::lines;
use super::screen::{Screen, Wanted};
use super::source::{Reading, What};
use super::terminal::Key;

/// A graph of a port, two functions and a network, after so many seconds.
fn graph(seconds: u64) -> Value {
    let node = |id: &str, kind: &str, name: &str, packets: u64, drops: u64| {
        let reasons = match drops {
            0 => json!([]),
            _ => {
                json!([{ "reason": "rule_drop", "packets": drops, "text": "a rule drops the packet" }])
            }
        };
        json!({
            "id": id, "kind": kind, "name": name, "detail": "eth0, native", "packets": packets, "bytes": packets * 125,
            "drops": drops, "verdicts": { "pass": packets - drops, "drop": drops }, "reasons": reasons,
        })
    };
    let at = 1000 * seconds;
    json!({
        "edge": "office", "generation": 7,
        "nodes": [
            node("function:firewall", "function", "firewall", at, at / 10),
            node("port:wan", "port", "wan", at, 0),
            node("function:count", "function", "count", at, 0),
            node("network:shop/web", "network", "web", 0, 0),
        ],
        "networks": [
            { "name": "shop", "packets": at, "bytes": at * 125, "drops": at / 10, "reasons": [{ "reason": "no_route", "packets": at / 10, "text": "" }] },
        ],
        "links": [
            { "from": "port:wan", "to": "function:count", "out": "" },
            { "from": "function:count", "to": "function:firewall", "out": "" },
            { "from": "function:firewall", "to": "end:stack", "out": "next" },
        ],
    })
}

/// A screen with two readings, two seconds apart.
fn screen(what: What, read: impl Fn(u64) -> Value) -> Screen {
    let mut screen = Screen::new("office".to_owned(), "https://192.0.2.1:9479".to_owned());
    let tab = match what {
        What::Rules => '2',
        What::Connections => '3',
        What::Children => '5',
        _ => '1',
    };
    assert_eq!(screen.press(Key::Char(tab)), Wanted::Read(what));
    let begin = Instant::now();
    for seconds in [2, 4] {
        screen.take(Reading {
            what,
            at: begin + Duration::from_secs(seconds),
            value: Ok(read(seconds)),
        });
    }
    screen
}

#[test]
fn the_graph_fits_80_by_24() {
    let mut screen = screen(What::Graph, graph);
    let lines = lines(&mut screen, 80, 24);
    assert_eq!(
        lines[..9],
        [
            "weir top  edge office  at https://192.0.2.1:9479",
            "generation 7  in: 1000 packets/s, 1000k bits/s  dropped: 100/s  over 2.0 s",
            " 1 Graph  2 Rules  3 Connections  4 Drops  5 Workers",
            "node                      packets/s    bits/s  drops/s leads to",
            "wan                            1000     1000k        0 count",
            "  count                        1000     1000k        0 firewall",
            "    firewall                   1000     1000k      100 next: stack",
            "shop                           1000     1000k      100",
            "  web                             0         0        0",
        ]
    );
    assert_eq!(lines[9], "");
    assert_eq!(
        lines[21],
        "port wan, eth0, native: 4,000 packets, 0 dropped; pass 1000"
    );
    assert!(lines[23].starts_with("q quit  1-5 tab"), "{}", lines[23]);
}

#[test]
fn a_large_screen_has_more_columns_and_rows() {
    let many = |seconds: u64| {
        let mut graph = graph(seconds);
        graph["networks"] = json!([]);
        let nodes = graph["nodes"].as_array_mut().expect("nodes");
        nodes.pop();
        for number in 0..100 {
            let mut node = nodes[2].clone();
            node["id"] = json!(format!("function:f{number:03}"));
            node["name"] = json!(format!("f{number:03}"));
            nodes.push(node);
        }
        graph
    };
    let mut screen = screen(What::Graph, many);
    let shown = lines(&mut screen, 200, 50);
    assert!(shown[3].ends_with("verdicts/s"), "{}", shown[3]);
    assert!(
        shown[6].ends_with("drop 100, pass 900 (rule_drop 100)"),
        "{}",
        shown[6]
    );
    let rows = |lines: &[String]| lines.iter().filter(|line| line.starts_with('f')).count();
    assert_eq!(rows(&shown[4..47]), 40);
    // The last row, and back by a page.
    screen.press(Key::End);
    let shown = lines(&mut screen, 200, 50);
    assert!(shown[46].starts_with("f099"), "{}", shown[46]);
    screen.press(Key::PageUp);
    let shown = lines(&mut screen, 200, 50);
    assert!(shown[46].starts_with("f056"), "{}", shown[46]);
    assert_eq!(lines(&mut screen, 30, 5)[0], "50x10 at least");
}

#[test]
fn keys_sort_filter_and_pause() {
    let mut screen = screen(What::Graph, graph);
    let first = |screen: &mut Screen| lines(screen, 80, 24)[4].trim_start().to_owned();
    // By name, packets, bits, drops.
    for _ in 0..4 {
        screen.press(Key::Char('s'));
    }
    assert!(first(&mut screen).starts_with("firewall"));
    assert!(lines(&mut screen, 80, 24)[2].ends_with("by drops/s"));
    screen.press(Key::Char('r'));
    assert!(first(&mut screen).starts_with("web"));
    for key in "/COUNT".chars() {
        screen.press(Key::Char(key));
    }
    assert!(lines(&mut screen, 80, 24)[23].starts_with("filter: COUNT_"));
    // `q` is a letter there.
    assert_eq!(screen.press(Key::Char('q')), Wanted::Nothing);
    screen.press(Key::Backspace);
    screen.press(Key::Enter);
    let shown = lines(&mut screen, 80, 24);
    assert!(
        shown[4].contains("wan") || shown[4].contains("count"),
        "{shown:#?}"
    );
    assert!(shown[6].is_empty(), "{shown:#?}");
    screen.press(Key::Escape);
    assert!(!lines(&mut screen, 80, 24)[6].is_empty());
    screen.press(Key::Char('p'));
    assert!(lines(&mut screen, 80, 24)[0].ends_with("paused"));
    assert_eq!(screen.press(Key::Char('q')), Wanted::End);
    assert_eq!(screen.press(Key::Ctrl('c')), Wanted::End);
}

#[test]
fn rules_connections_and_workers_have_tabs() {
    let status = |seconds: u64| {
        json!({ "edges": [{ "functions": [
            { "name": "guard", "rules": [
                { "number": 1, "rule": "udp-dport 53 limit 10/s", "packets": 5 * seconds, "bytes": 500, "dropped": seconds },
            ] },
            { "name": "empty" },
        ] }] })
    };
    let mut rules = screen(What::Rules, status);
    let shown = lines(&mut rules, 80, 24);
    assert!(
        shown[4].starts_with("udp-dport 53 limit 10/s")
            && shown[4].ends_with("guard                 5            20             4"),
        "{shown:#?}"
    );
    let table = |_: u64| {
        json!({ "tables": [{ "function": "nat", "capacity": 100, "counted": 1, "connections": [{
            "protocol": "tcp", "state": "tcp-established", "idle_ms": 1500, "expires_ms": 60000, "age_ms": 9000,
            "original": { "source": "10.0.0.2", "source_port": 4000, "destination": "2001:db8::1", "destination_port": 443 },
            "translated": null,
        }] }] })
    };
    let mut connections = screen(What::Connections, table);
    let shown = lines(&mut connections, 80, 24);
    assert!(
        shown[4].starts_with("10.0.0.2:4000 > [2001:db8::1"),
        "{shown:#?}"
    );
    let detail = format!("{} {}", shown[21], shown[22]);
    assert!(
        detail.contains("open for 9 s; of 1 of at most 100 connections of nat"),
        "{shown:#?}"
    );
    let children = |_: u64| json!({ "children": [{ "edge": "office", "command": "route follow", "process": null, "restarts": 3, "privileges": null }, { "edge": null, "command": "sensor --confine", "process": 7, "restarts": 0, "privileges": { "user": 998, "capabilities": [], "no_new_privs": true, "seccomp": true, "memory": 1 << 30 } }] });
    let mut workers = screen(What::Children, children);
    let shown = lines(&mut workers, 80, 24);
    assert!(
        shown[4].starts_with("route follow") && shown[4].ends_with("3"),
        "{shown:#?}"
    );
    workers.press(Key::Down);
    let shown = lines(&mut workers, 80, 24);
    let detail = format!("{} {}", shown[21], shown[22]);
    assert!(
        detail.contains("user 998, no capabilities, system calls filtered, at most 1024 MiB"),
        "{shown:#?}"
    );
}

#[test]
fn drops_say_why() {
    let mut screen = screen(What::Graph, graph);
    screen.press(Key::Char('4'));
    let shown = lines(&mut screen, 80, 24);
    assert_eq!(
        shown[4],
        "firewall         rule_drop                 100           400 a rule drops the pa"
    );
    assert_eq!(shown[21], "firewall: rule_drop: a rule drops the packet");
    let wanted = screen.press(Key::Char('w'));
    assert_eq!(wanted, Wanted::Read(What::Drops(5)));
    assert_eq!(
        screen.press(Key::Char('w')),
        Wanted::Nothing,
        "one at a time"
    );
    assert!(lines(&mut screen, 80, 24)[23].starts_with("watching why packets are dropped"));
    let report = json!({ "drops": [{
        "packets": 12, "stage": "firewall", "why": ["no-telnet: udp-dport 23 drop"], "example": "wan: 10.0.0.2 > 10.0.0.1 udp 23",
    }] });
    screen.take(Reading {
        what: What::Drops(5),
        at: Instant::now(),
        value: Ok(report),
    });
    let shown = lines(&mut screen, 200, 50);
    assert!(
        shown[4].contains("no-telnet: udp-dport 23 drop") && shown[4].contains("wan: 10.0.0.2"),
        "{shown:#?}"
    );
    screen.press(Key::Escape);
    assert!(lines(&mut screen, 80, 24)[4].contains("rule_drop"));
}

#[test]
fn an_error_is_shown_until_the_next_reading() {
    let mut screen = screen(What::Graph, graph);
    let mut read = |value: Result<Value, String>| {
        screen.take(Reading {
            what: What::Graph,
            at: Instant::now() + Duration::from_secs(9),
            value,
        });
        lines(&mut screen, 80, 24)
    };
    let shown = read(Err("cannot reach the agent: start it".to_owned()));
    assert_eq!(shown[21], "cannot reach the agent: start it");
    assert!(shown[4].starts_with("wan"), "what was read last stays");
    assert!(read(Ok(graph(6)))[21].starts_with("port wan"));
}
