//! Policies that keep connections, for property tests: most of their rules are wide, so that packets open connections, and
//! map or shuffle whatever can be; pools are of one value, of a few and of many. Valid by construction, from a tape, as all that
//! `generate` makes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Headers, TAPE, Tape, one_match, possible, rewrite, rule, with_sets};
use crate::field::Header;

const POOLS4: &[&str] = &[
    "192.0.2.1",
    "192.0.2.1",
    "10.0.0.9",
    "192.0.2.8-192.0.2.9",
    "{ 192.0.2.1, 10.0.0.7-10.0.0.9, 203.0.113.0/30 }",
    "192.0.2.16/28",
    "@hosts4",
    "100.64.0.0/10",
    "0.0.0.0/0",
];
const POOLS6: &[&str] = &[
    "2001:db8::9",
    "2001:db8::90-2001:db8::91",
    "{ 2001:db8::1, 2001:db8:0:1:ffff:ffff:ffff:fffe-2001:db8:0:2::1 }",
    "2001:db8:9::/124",
    "2001:db8:9::/96",
    "{ 2001:db8:7::ffff:ffff:ffff:fff0-2001:db8:7:1::f, fe80::1 }",
];
const POOLS_PORT: &[&str] = &[
    "1024",
    "80",
    "1024-1025",
    "{ 80, 443, 1030-1033 }",
    "1024-1035",
    "@ports",
    "1024-65535",
    "0-65535",
];
const POOLS_NUMBER: &[&str] = &["0", "7", "1-3", "@few", "0-65535"];
// Most are none: what they drop or answer never meets a connection.
const STATE_RULES: &[&str] = &[
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "ct-state established log \"est\"\n",
    "ct-state in { established, related } accept\n",
    "ct-state new log \"new\"\n",
    "ct-state invalid drop\n",
    "! ct-state new log \"old\"\n",
    "ct-state != established drop 30%\n",
    "ct-state related log \"rel\"\n",
    "ct-state untracked log \"un\"\n",
    "ct-state log \"any\"\n! ct-state log \"none\"\n",
    "ct-state invalid reject\n",
    "tcp-dport 1-2000 reject\n",
    "ip-ttl 1-40 reject with icmpx no-route log \"rej\"\n",
    "ct-state new-untracked tcp drop over 3/s burst 4\n",
    "ct-state new udp drop over 5/s burst 4 per pair\n",
    "all drop over 2 connections per source\n",
    "tcp drop over 3 connections\nnet-proto ip4 drop over 1 connections per pair\n",
    "ct-state new drop over 1 connections per destination/20/60\n",
    "udp drop over 4 connections log \"many\"\n",
];
const TIMES: &[&str] = &["1s", "2s", "5s", "10s", "1m", "500ms", "2m"];
const STATES: &[&str] = &[
    "tcp-syn-sent",
    "tcp-syn-recv",
    "tcp-established",
    "tcp-fin-wait",
    "tcp-close-wait",
    "tcp-last-ack",
    "tcp-time-wait",
    "tcp-close",
    "tcp-retrans",
    "tcp-unack",
    "expectation",
    "udp-unreplied",
    "udp-stream",
    "icmp",
    "fragment",
    "generic-new",
    "generic",
    "mapping",
];

/// A policy of 1 to 8 rules, most of them stateful. Its table is small: large ones cost time.
pub fn stateful_policy_text() -> impl Strategy<Value = String> {
    let rules = vec(vec(any::<u16>(), TAPE), 1..=8);
    (vec(any::<u16>(), 14), rules).prop_map(|(settings, tapes)| {
        let mut text = "connections 200\n".to_owned();
        timeouts(
            &mut Tape {
                numbers: &settings,
                at: 0,
            },
            &mut text,
        );
        if settings[11] % 8 == 1 {
            text.push_str("loose tcp\n");
        }
        if settings[11] % 16 == 2 {
            text.push_str("min-pmtu 68\n");
        }
        // Accepted by name, by what is not a name, and by one that is not theirs.
        let accept = match settings[10] % 16 {
            0 | 1 => "icmp-type in { 4, 5 } accept\n",
            2 => "icmp-type > 8 accept\n",
            3 | 4 => "icmp6-type 137 accept\n",
            5 => "! icmp-type 8 accept\n",
            6 => "icmp6-type != 128 log accept\n",
            _ => "",
        };
        text.push_str(accept);
        for number in [settings[12], settings[13]] {
            text.push_str(STATE_RULES[usize::from(number) % STATE_RULES.len()]);
        }
        let mut rules = String::new();
        for (i, tape) in tapes.iter().enumerate() {
            let mut tape = Tape {
                numbers: tape,
                at: 0,
            };
            if i > 0 && tape.one_in(4) {
                rule(&mut tape, i, &mut rules);
            } else {
                stateful_rule(&mut tape, &mut rules);
            }
        }
        text + &with_sets(&rules)
    })
}

fn timeouts(tape: &mut Tape<'_>, out: &mut String) {
    let mut states = STATES.to_vec();
    for _ in 0..tape.below(4) {
        let state = states.remove(tape.below(states.len()));
        out.push_str(&format!("timeout {state} {}\n", tape.pick(TIMES)));
    }
}

fn stateful_rule(tape: &mut Tape<'_>, out: &mut String) {
    let headers = Headers::choose(tape);
    let start = ["add-stateful ", "add-stateful ", "mmb add-stateful "][tape.below(3)];
    let mut matches = String::new();
    match tape.below(8) {
        0 if tape.one_in(4) => matches.push_str("ct-state new"),
        0..=2 => matches.push_str("all"),
        3 if headers.four => matches.push_str("ip-saddr 10.0.0.0/24"),
        3 if headers.six => matches.push_str("ip6-saddr 2001:db8::/64"),
        3 | 4 if headers.l4 == Some(Header::Tcp) => matches.push_str("tcp-dport 80-443"),
        5 if headers.l4 == Some(Header::Udp) => matches.push_str("udp-dport 53-80"),
        3..=5 => matches.push_str("! frag"),
        _ => one_match(tape, &headers, true, &mut matches),
    }
    let mut targets = Vec::new();
    let mut fields = choosable(&headers);
    // One outer address, and few ports or those of the hosts behind it: what is chosen is taken soon.
    if tape.one_in(3) && fields.len() > 3 && fields[0].0.ends_with("saddr") {
        let (name, pools) = fields.remove(0);
        targets.push(format!("map {name} {}", pools[0]));
        if tape.one_in(2) && fields.len() > 2 {
            let (name, pools) = fields.remove(2);
            targets.push(format!("map {name} {}", tape.pick(&pools[..3])));
        }
    }
    for _ in 0..tape.below(5) {
        if fields.is_empty() {
            break;
        }
        let (name, pools) = fields.remove(tape.below(fields.len()));
        targets.push(chosen(tape, name, pools));
    }
    let maps_source = |target: &String| target.starts_with("map") && target.contains("-saddr");
    if targets.iter().any(maps_source) && tape.one_in(2) {
        targets.push("mapping endpoint-independent".to_owned());
        match tape.below(4) {
            0 => {}
            1 => targets.push("filtering endpoint-independent".to_owned()),
            _ => targets.push("filtering address-dependent".to_owned()),
        }
    }
    if headers.l4 == Some(Header::Udp) && tape.one_in(2) {
        targets.push("helper tftp".to_owned());
    }
    if tape.one_in(3) {
        let strip = tape.below(3);
        targets.push(rewrite(tape, &headers, strip));
    }
    match tape.below(24) {
        0 => targets.push("drop".to_owned()),
        1 => targets.push("drop 30%".to_owned()),
        2 => targets.push("drop over 2/s burst 3".to_owned()),
        3..=6 => targets.push("accept".to_owned()),
        7 | 8 => targets.push("log \"flow \"".to_owned()),
        9 | 10 => targets.push(format!("timeout {}", tape.pick(TIMES))),
        _ => {}
    }
    if targets.is_empty() {
        targets.push("accept".to_owned());
    }
    let end = format!(" {}\n", targets.join(" "));
    out.push_str(&possible(start, &[matches], &end));
}

/// What rules for these headers can choose, with the pools it is chosen from; without: it is shuffled.
fn choosable(headers: &Headers) -> Vec<(&'static str, &'static [&'static str])> {
    let mut fields: Vec<(&str, &[&str])> = Vec::new();
    if headers.four {
        fields.extend([
            ("ip-saddr", POOLS4),
            ("ip-daddr", POOLS4),
            ("ip-id", POOLS_NUMBER),
        ]);
    } else if headers.six {
        fields.extend([
            ("ip6-saddr", POOLS6),
            ("ip6-daddr", POOLS6),
            ("ip6-flow-label", POOLS_NUMBER),
        ]);
    }
    match headers.l4 {
        Some(Header::Tcp) => fields.extend([
            ("tcp-sport", POOLS_PORT),
            ("tcp-dport", POOLS_PORT),
            ("tcp-seq-num", &[]),
            ("tcp-ack-num", &[]),
        ] as [(&str, &[&str]); 4]),
        Some(Header::Udp) => fields.extend([("udp-sport", POOLS_PORT), ("udp-dport", POOLS_PORT)]),
        _ => {}
    }
    fields
}

fn chosen(tape: &mut Tape<'_>, name: &str, pools: &[&str]) -> String {
    let is_address = name.ends_with("addr");
    if pools.is_empty() || !is_address && tape.one_in(3) {
        return format!("shuffle {name}");
    }
    let pool = tape.pick(pools);
    let word = if pool.starts_with(['{', '@']) && tape.one_in(2) {
        " in"
    } else {
        ""
    };
    format!("map {name}{word} {pool}")
}
