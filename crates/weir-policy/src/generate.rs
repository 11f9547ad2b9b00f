//! Policy text for property tests, valid by construction.
//!
//! Every field, condition, value form, target and negation comes up; values are from small pools, so that generated packets
//! meet them: addresses of 10.0.0.0/24, 192.0.2.0/24 and 2001:db8::/64, a few ports, option kinds and low numbers. Interfaces are
//! `eth0` and `eth1`; `out` is left out, because replay cannot know it. A text is made from a tape of numbers: smaller
//! numbers make simpler text, which is what shrinking needs.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::field::{Field, Header, Kind};
use crate::names::{SERVICES, has_flags, names_of};
use crate::{NoFiles, Source};

mod chains;
mod stateful;

pub use stateful::stateful_policy_text;

/// Numbers a rule is made from; more are taken as 0.
const TAPE: usize = 64;

/// TCP option kinds that generated rules name.
pub const OPTION_KINDS: &[u8] = &[2, 3, 4, 5, 8, 30, 34, 253];

/// Ports that generated rules name.
pub const PORTS: &[u32] = &[
    80, 22, 53, 443, 8080, 1024, 1025, 1026, 1027, 1028, 1029, 1030,
];

const MACS: &[&str] = &[
    "02:00:00:00:00:01",
    "02:00:00:00:00:02",
    "x020000000001",
    "ff:ff:ff:ff:ff:ff",
];
const MAC_PREFIXES: &[&str] = &[
    "02:00:00:00:00:00/40",
    "02:00:00:00:00:00/24",
    "02:00:00:00:00:00-02:00:00:00:00:01",
    "ff:ff:ff:ff:ff:ff/1",
];
const FLAG_MASKS: &[&str] = &["syn/syn|ack", "ack/ack", "syn|ack/syn|ack|rst", "1-3"];
const ADDRESSES4: &[&str] = &[
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.3",
    "10.0.0.254",
    "192.0.2.1",
    "192.0.2.2",
    "192.0.2.9",
];
const PREFIXES4: &[&str] = &[
    "10.0.0.0/24",
    "10.0.0.0/30",
    "10.0.0.2/32",
    "192.0.2.0/28",
    "10.0.0.0/8",
    "0.0.0.0/0",
];
const ADDRESSES6: &[&str] = &[
    "2001:db8::1",
    "2001:db8::2",
    "2001:db8::3",
    "2001:DB8:0::ff",
    "fe80::1",
];
const PREFIXES6: &[&str] = &[
    "2001:db8::/64",
    "2001:db8::/126",
    "2001:db8::2/128",
    "2001:db8::/32",
    "::/0",
];
const BYTES: &[&str] = &[
    "x00",
    "x41",
    "x4142",
    "x1",
    "0x474554",
    "x000102030405060708",
    "xff",
];
const OFFSETS: &[u32] = &[0, 1, 2, 3, 4, 7, 8, 20, 60];
const IP_OPTIONS: &[u32] = &[7, 68, 131, 148, 130];

/// Times of day. Generated packets come in the first seconds of 1970, a Thursday: with the zones of [`TIMEZONES`] these are borders.
const TIMES: &[&str] = &[
    "00:00:01", "0:00", "05:30:01", "5:30", "18:29:59", "18:30:01", "12:00", "23:59:59",
];
const TIME_RANGES: &[&str] = &[
    "00:00-00:00:01",
    "5:30:01-18:30",
    "18:30:01-05:30:00",
    "23:00-00:00",
    "08:00-17:00",
];
const DAY_RANGES: &[&str] = &["mon-fri", "SAT-sun", "thu-wed", "4-5", "friday-2"];
const TIMEZONES: &[&str] = &[
    "",
    "timezone +05:30\n",
    "Timezone -5:30\n",
    "timezone utc\n",
];

/// Sets a generated policy may use, with the widths they fit.
const SETS: &[(&str, &str)] = &[
    ("ports", "set ports = { 80, 443, 1024-1027, x1f90 }"),
    ("few", "set few = { 0, 2, 3-4, x06 }"),
    (
        "hosts4",
        "set hosts4 = { 10.0.0.1, 10.0.0.4-10.0.0.9, 192.0.2.0/28 }",
    ),
    (
        "hosts6",
        "set hosts6 = { 2001:db8::1, 2001:db8::4-2001:db8::9, fe80::/10 }",
    ),
    ("lan", "set lan = { eth0, eth1 }"),
    (
        "night",
        "set night = { 22:00-00:00, 5:30-05:30:00, 18:30-18:30:00 }",
    ),
    ("weekend", "set weekend = { sat-sun, wednesday }"),
    ("seen", "set seen = dynamic size 6 timeout 900ms"),
    ("bans", "set bans = Dynamic size 300"),
    ("full", "set full = dynamic timeout 1m size 1"),
];

/// Those of them that packets fill.
const FILLED: &[&str] = &["seen", "bans", "full", "full"];

/// A policy of 1 to 12 rules, with the sets it uses, comments and continued lines; of one in three some rules stand in a chain.
pub fn policy_text() -> impl Strategy<Value = String> {
    let tapes = vec(vec(any::<u16>(), TAPE), 1..=12);
    (tapes, vec(any::<u16>(), TAPE)).prop_map(|(tapes, ways)| {
        let made = tapes.iter().enumerate().map(|(i, tape)| {
            let mut text = String::new();
            rule(
                &mut Tape {
                    numbers: tape,
                    at: 0,
                },
                i,
                &mut text,
            );
            text
        });
        let mut ways = Tape {
            numbers: &ways,
            at: 0,
        };
        let rules = chains::moved(made.collect(), &mut ways, Tape::below, tests);
        with_sets(&rules)
    })
}

/// Rules behind the sets that they use.
fn with_sets(rules: &str) -> String {
    let used = SETS
        .iter()
        .filter(|(name, _)| rules.contains(&format!("@{name}")));
    let sets: String = used.map(|(_, line)| format!("{line}\n")).collect();
    // A small table, so that limits displace what they count.
    let limits = match rules.matches(" per ").count() {
        0 => "",
        n if n % 2 == 1 => "limits 1\n",
        _ => "limits 5\n",
    };
    let times = rules.matches(['y', 'Y']).count();
    let zone = match tests_time(rules) {
        true => TIMEZONES[times % TIMEZONES.len()],
        false => "",
    };
    limits.to_owned() + zone + &sets + rules
}

/// Whether rules name a field of the time, in any spelling.
fn tests_time(rules: &str) -> bool {
    let mut words = rules.split(|c: char| c.is_whitespace() || c == '!');
    words.any(|word| crate::words::field(word).is_some_and(|f| f.info().header == Header::Clock))
}

/// Numbers that decide what comes next.
struct Tape<'a> {
    numbers: &'a [u16],
    at: usize,
}

impl Tape<'_> {
    fn below(&mut self, limit: usize) -> usize {
        let number = self.numbers.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(number) % limit.max(1)
    }

    /// True one time in `n`; false on an empty tape.
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Headers that the packets of one rule have; fields of others are not named in it.
struct Headers {
    four: bool,
    six: bool,
    l4: Option<Header>,
}

impl Headers {
    fn choose(tape: &mut Tape<'_>) -> Headers {
        let l4 = match tape.below(8) {
            0..=3 => Some(Header::Tcp),
            4 | 5 => Some(Header::Udp),
            6 => Some(if tape.one_in(2) {
                Header::Icmp6
            } else {
                Header::Icmp
            }),
            _ => None,
        };
        let family = tape.below(4);
        Headers {
            four: family != 2 && l4 != Some(Header::Icmp6),
            six: family >= 2
                && l4 != Some(Header::Icmp)
                && (l4 == Some(Header::Icmp6) || family == 2),
            l4,
        }
    }

    fn have(&self, header: Header) -> bool {
        match header {
            Header::Meta
            | Header::Clock
            | Header::Ether
            | Header::EtherAddr
            | Header::Vlan
            | Header::Vlan2 => true,
            // Hooks have it or not: tests add rules of their own for it.
            Header::Skb => false,
            Header::Ports => self
                .l4
                .is_none_or(|l4| matches!(l4, Header::Tcp | Header::Udp)),
            Header::Ip4 => self.four,
            Header::Ip6 | Header::Ip6Frag => self.six,
            other => self.l4 == Some(other),
        }
    }
}

fn rule(tape: &mut Tape<'_>, index: usize, out: &mut String) {
    let headers = Headers::choose(tape);
    match tape.below(12) {
        9 => out.push_str("# a comment\n"),
        10 => out.push('\n'),
        11 => out.push_str("   \t# indented\n\n"),
        _ => {}
    }
    let mut start = String::new();
    if tape.one_in(4) {
        start.push_str(&format!("Rule-{index}: "));
    }
    start.push_str(["", "", "", "mmb add ", "add ", "ADD-stateless "][tape.below(6)]);
    let mut matches = Vec::new();
    if tape.one_in(12) {
        matches.push("all".to_owned());
    } else {
        for i in 0..=tape.below(4) {
            let mut text = match i {
                0 => "",
                _ if tape.one_in(10) => " \\\n  ",
                _ => " ",
            }
            .to_owned();
            one_match(tape, &headers, i == 0, &mut text);
            matches.push(text);
        }
    }
    let mut end = if tape.one_in(10) { " \\\n\t" } else { " " }.to_owned();
    targets(tape, &headers, &mut end);
    out.push_str(&possible(&start, &matches, &end));
    if tape.one_in(6) {
        out.push_str("   # why");
    }
    out.push('\n');
}

/// The tests of a rule that could have any target.
fn tests(tape: &mut Tape<'_>) -> String {
    let headers = Headers::choose(tape);
    let mut matches = vec![String::new()];
    one_match(tape, &headers, true, &mut matches[0]);
    let rule = possible("", &matches, " log");
    rule.strip_suffix(" log").unwrap_or("all").to_owned()
}

/// A rule with as many of the matches, from the first on, as do not contradict each other or the targets.
fn possible(start: &str, matches: &[String], end: &str) -> String {
    let is_valid =
        |rule: &String| crate::parse(&Source::new("rule", with_sets(rule)), &NoFiles).is_ok();
    (1..=matches.len())
        .rev()
        .map(|n| format!("{start}{}{end}", matches[..n].concat()))
        .find(is_valid)
        .unwrap_or_else(|| format!("{start}all{end}"))
}

fn one_match(tape: &mut Tape<'_>, headers: &Headers, first: bool, out: &mut String) {
    let fields: Vec<Field> = Field::all()
        .filter(|f| {
            headers.have(f.info().header)
                && !matches!(f.info().kind, Kind::All | Kind::OutPort | Kind::CtState)
        })
        .collect();
    let field = pick_field(tape, headers, &fields);
    let negated = tape.one_in(4);
    if negated {
        out.push_str(if tape.one_in(2) { "!" } else { "! " });
    }
    let name = spelling(tape, field);
    out.push_str(&name);
    match field.info().kind {
        Kind::InPort => {
            let form = tape.below(6);
            // Behind a field without a value, `in {` would be that field's set.
            let set = if first { "" } else { " in" };
            out.push_str(&match form {
                4 => format!("{set} {{eth0, eth1}}"),
                5 => format!("{set} @lan"),
                _ => [" eth0", " eth1", " == eth1", " != eth0"][form].to_owned(),
            });
        }
        // Only what agrees with the family of the rule.
        Kind::NetProto => out.push_str(match (headers.four && !headers.six, negated) {
            (true, false) => " ip4",
            (true, true) => " != ip4",
            (false, false) if headers.six => " == IP6",
            (false, false) => " in { ip4, ip6 }",
            (false, true) => "",
        }),
        Kind::Is(_) if field.info().bits == 1 && tape.one_in(3) => {
            out.push_str(tape.pick(&[" 1", " == 0", " != 1", " == 1", " != 0"]));
        }
        Kind::All
        | Kind::OutPort
        | Kind::CtState
        | Kind::Is(_)
        | Kind::Exists
        | Kind::ExtHeader(_) => {}
        Kind::Ip4Option(Some(_)) => {}
        Kind::Ip4Option(None) => {
            if tape.one_in(2) {
                out.push_str(&format!(" {}", tape.pick(IP_OPTIONS)));
            }
        }
        Kind::Payload => {
            if tape.below(4) > 0 {
                let at = tape.pick(OFFSETS);
                if at > 0 || tape.one_in(2) {
                    out.push_str(&format!("[{at}]"));
                }
                out.push_str([" == ", " != ", " "][tape.below(3)]);
                out.push_str(tape.pick(BYTES));
            }
        }
        Kind::TcpOption(named) => option_test(tape, named, out),
        Kind::Number | Kind::Addr4 | Kind::Addr6 | Kind::Mac | Kind::L4Proto => {
            if tape.below(6) < 5 {
                number_test(tape, field, out);
            }
        }
    }
}

/// Fields of the rule's own headers come up more often than those that every frame has.
fn pick_field(tape: &mut Tape<'_>, headers: &Headers, fields: &[Field]) -> Field {
    let own: Vec<Field> = fields
        .iter()
        .copied()
        .filter(|f| headers.l4 == Some(f.info().header))
        .collect();
    if !own.is_empty() && tape.below(2) == 0 {
        return tape.pick(&own);
    }
    tape.pick(fields)
}

fn spelling(tape: &mut Tape<'_>, field: Field) -> String {
    let info = field.info();
    let mut spellings = vec![info.name];
    spellings.extend(info.aliases);
    let name = (tape.pick(&spellings)).to_owned();
    if tape.one_in(12) {
        name.to_ascii_uppercase()
    } else {
        name
    }
}

fn option_test(tape: &mut Tape<'_>, named: Option<u8>, out: &mut String) {
    let kind = match named {
        Some(kind) => Some(kind),
        None if tape.one_in(3) => None,
        None => {
            let kind = tape.pick(OPTION_KINDS);
            out.push_str(&if tape.one_in(4) {
                format!(" x{kind:x}")
            } else {
                format!(" {kind}")
            });
            Some(kind)
        }
    };
    let Some(kind) = kind else { return };
    if kind == 4 || tape.below(3) == 0 {
        return;
    }
    let fixed: &[&str] = match kind {
        2 => &["1460", "1452", "x05b4", "536", "65535", "1000-1460"],
        3 => &["7", "8", "0", "14", "x07", "2-8"],
        8 => &["x0000000100000002", "0", "1", "4294967298", "0-4294967298"],
        _ => &["x01", "x0102", "1", "258", "0", "x", "1-300"],
    };
    let mut value = tape.pick(fixed).to_owned();
    if value == "x" {
        value = "x00000000000000000001".to_owned();
    }
    let long_hex = value.len() > 17;
    match tape.below(8) {
        0 | 1 => out.push_str(&format!(" == {value}")),
        2 => out.push_str(&format!(" {value}")),
        3 => out.push_str(&format!(" != {value}")),
        4 if !long_hex => out.push_str(&format!(" in {{ {value}, 3, x10 }}")),
        5 if kind != 3 => out.push_str(" in @ports"),
        _ if value.contains('-') || long_hex => out.push_str(&format!(" == {value}")),
        form => {
            let cond = if form == 6 { ["<=", ">="] } else { ["<", ">"] };
            out.push_str(&format!(" {} {value}", cond[tape.below(2)]));
        }
    }
}

fn number_test(tape: &mut Tape<'_>, field: Field, out: &mut String) {
    let info = field.info();
    match tape.below(10) {
        0..=2 => out.push_str(&format!(" {}", value(tape, field))),
        3 => out.push_str(&format!(" == {}", value(tape, field))),
        4 => out.push_str(&format!(" != {}", value(tape, field))),
        5 => {
            let cond = tape.pick(&["<=", ">=", "<", ">"]);
            out.push_str(&format!(" {cond} {}", value(tape, field)));
        }
        6 => {
            let cond = tape.pick(&["", " ==", " !="]);
            out.push_str(&format!("{cond} {}", interval(tape, field)));
        }
        7 | 8 => {
            let count = 1 + tape.below(3);
            let mut elements: Vec<String> = (0..count).map(|_| value(tape, field)).collect();
            elements.push(interval(tape, field));
            out.push_str(&format!(" in {{{}}}", elements.join(", ")));
        }
        _ => out.push_str(match (info.kind, info.bits) {
            (Kind::Addr4 | Kind::Addr6 | Kind::Mac, _) if tape.below(3) > 0 => {
                tape.pick(&[" in @seen", " in @bans", " in @full"])
            }
            (Kind::Addr4, _) => " in @hosts4",
            (Kind::Addr6, _) => " in @hosts6",
            (Kind::Mac, _) => " in { 02:00:00:00:00:02, ff:ff:ff:ff:ff:ff, 1:0:5e:0:0:0/25 }",
            _ if info.name == "hour" => " in @night",
            _ if info.name == "day" => " in @weekend",
            (_, 13..) => " in @ports",
            (_, 3..) => " in @few",
            _ => " in { 0, 1 }",
        }),
    }
}

/// One value that fits the field.
fn value(tape: &mut Tape<'_>, field: Field) -> String {
    let info = field.info();
    let names = names_of(field);
    // Packets are of few ports: names of all services would seldom match one.
    let often = if names.len() == SERVICES.len() { 8 } else { 2 };
    if !names.is_empty() && tape.below(often) == 0 {
        return tape.pick(names).0.to_owned();
    }
    let pool: &[u32] = match info.name {
        "hour" => return tape.pick(TIMES).to_owned(),
        "day" => &[3, 4, 5, 0, 6],
        _ if matches!(info.kind, Kind::Addr4) => return tape.pick(ADDRESSES4).to_owned(),
        _ if matches!(info.kind, Kind::Addr6) => return tape.pick(ADDRESSES6).to_owned(),
        _ if matches!(info.kind, Kind::Mac) => return tape.pick(MACS).to_owned(),
        name if name.ends_with("port") => PORTS,
        "l4-proto" => &[6, 17, 1, 58, 47, 132, 136, 33, 50, 0],
        "eth-type" => &[0x0800, 0x86dd, 0x0806, 0x88cc],
        "ip-ver" | "ip6-ver" => &[4, 6, 5],
        "ip-ihl" | "tcp-offset" => &[5, 6, 8, 10, 15],
        "ip-proto" | "ip6-next" => &[6, 17, 1, 58, 47, 50, 0, 44],
        "ip-ttl" | "ip6-hop-limit" => &[64, 1, 2, 3, 63, 255, 0],
        "tcp-flags" => &[2, 16, 18, 24, 17, 4, 0],
        name if name.ends_with("len") => &[40, 20, 28, 60, 8, 1500],
        name if name.ends_with("checksum") => &[0, 0xffff, 1, 0x1234],
        "tcp-win" => &[0, 1024, 8192, 65535],
        "tcp-seq-num" | "tcp-ack-num" | "ip6-frag-id" => &[0, 1, 1000, 0xffff_ffff, 0x8000_0000],
        "icmp-type" => &[8, 0, 3, 11],
        "icmp6-type" => &[128, 129, 135, 136, 2],
        "vlan-id" | "vlan2-id" => &[1, 2, 100, 4095, 0],
        _ => &[0, 1, 2, 3, 5, 46, 255, 0xf_ffff],
    };
    let max = if info.bits >= 32 {
        u32::MAX
    } else {
        (1 << info.bits) - 1
    };
    let number = tape.pick(pool) & max;
    match tape.below(6) {
        4 => format!("x{number:x}"),
        5 => format!("0x{number:04X}"),
        _ => number.to_string(),
    }
}

/// A range or a prefix that fits the field.
fn interval(tape: &mut Tape<'_>, field: Field) -> String {
    match field.info().kind {
        Kind::Addr4 if tape.one_in(3) => "10.0.0.2-10.0.0.20".to_owned(),
        Kind::Addr4 => tape.pick(PREFIXES4).to_owned(),
        Kind::Addr6 if tape.one_in(3) => "2001:db8::2-2001:db8::ff".to_owned(),
        Kind::Addr6 => tape.pick(PREFIXES6).to_owned(),
        Kind::Mac => tape.pick(MAC_PREFIXES).to_owned(),
        Kind::Number if field.info().name == "hour" => tape.pick(TIME_RANGES).to_owned(),
        Kind::Number if field.info().name == "day" => tape.pick(DAY_RANGES).to_owned(),
        Kind::Number if has_flags(field) => tape.pick(FLAG_MASKS).to_owned(),
        _ => match field.info().bits {
            16.. => tape
                .pick(&["80-443", "1024-1027", "0-1", "x400-x0402", "0-65535"])
                .to_owned(),
            6.. => tape.pick(&["1-3", "2-x10", "0-63"]).to_owned(),
            bits => format!("1-{}", (1u32 << bits) - 1),
        },
    }
}

fn targets(tape: &mut Tape<'_>, headers: &Headers, out: &mut String) {
    let verdict = match tape.below(16) {
        0 | 1 => "drop",
        2 => rejection(tape, headers),
        3 => "accept",
        4 => "drop 50%",
        5 => "drop 0.1",
        6 => "drop over 2/s burst 3",
        7 => limit(tape),
        8 => tape.pick(&[
            "log \"seen \"",
            "log \"some \" limit 2/s burst 2",
            "LOG Limit 1/S",
            "log limit 1/s drop",
        ]),
        _ => "",
    };
    let rewrites = if verdict.is_empty() {
        1 + tape.below(3)
    } else {
        tape.below(2)
    };
    let strip = tape.below(3);
    let mut all: Vec<String> = (0..rewrites)
        .map(|_| rewrite(tape, headers, strip))
        .collect();
    if !verdict.is_empty() {
        let at = tape.below(all.len() + 1);
        all.insert(at, verdict.to_owned());
    }
    if tape.below(3) == 2 {
        let at = tape.below(all.len() + 1);
        all.insert(at, change_of_set(tape, headers));
    }
    out.push_str(&all.join(" "));
}

/// A limit; most count addresses apart.
fn limit(tape: &mut Tape<'_>) -> &'static str {
    tape.pick(&[
        "drop over 100/M",
        "drop over 1k bytes",
        "drop over 300 BYTES",
        "drop over 3/s burst 2 per source",
        "drop over 2/s per destination",
        "drop over 1/s per pair burst 2",
        "drop over 5/s burst 2 per source/30",
        "drop over 5/s per destination/24/126",
        "drop over 2 connections",
        "drop over 1 connections per SOURCE",
        "drop over 2 connections per pair",
        "drop over 3 connections per destination/24/126",
    ])
}

/// A target that puts an address of packets with these headers into a set, or takes it out.
fn change_of_set(tape: &mut Tape<'_>, headers: &Headers) -> String {
    let set = tape.pick(FILLED);
    let address = match tape.below(8) {
        3 => "destination",
        4 => "ETH-saddr",
        5 => "eth-daddr",
        6 if headers.four => "ip-saddr",
        6 if headers.six => "ip6-daddr",
        _ => "source",
    };
    match tape.below(8) {
        0 | 1 => format!("delete @{set} {address}"),
        2 => format!("add @{set} {address} 300ms"),
        3 => format!("ADD @{set} {address} 1H"),
        _ => format!("add @{set} {address}"),
    }
}

/// A rejection that packets with these headers can have.
fn rejection(tape: &mut Tape<'_>, headers: &Headers) -> &'static str {
    match tape.below(4) {
        0 if headers.l4 == Some(Header::Tcp) => "reject with tcp-reset",
        1 if headers.four => "reject with icmp host-prohibited",
        1 if headers.six => "reject with icmp6 policy-fail",
        2 => "reject with icmpx port-unreachable",
        _ => "reject",
    }
}

/// One rewrite. `strip` is the form that all strips of the rule take.
fn rewrite(tape: &mut Tape<'_>, headers: &Headers, strip: usize) -> String {
    if headers.l4 == Some(Header::Tcp) && tape.below(2) == 1 {
        return option_target(tape, strip);
    }
    let writable: Vec<Field> = Field::all()
        .filter(|f| {
            headers.have(f.info().header)
                && f.info().writable
                && !matches!(f.info().kind, Kind::TcpOption(_))
        })
        .collect();
    let field = pick_field(tape, headers, &writable);
    let name = spelling(tape, field);
    match field.info().kind {
        Kind::Is(_) if field.info().bits == 1 => {
            format!("mod {name}{}", tape.pick(&["", " 0", " 1"]))
        }
        Kind::Is(_) => format!("mod {name}"),
        Kind::Payload => {
            let at = tape.pick(OFFSETS);
            let bytes = tape.pick(BYTES);
            if at == 0 {
                format!("mod {name} {bytes}")
            } else {
                format!("mod {name}[{at}] {bytes}")
            }
        }
        _ => format!("mod {name} {}", value(tape, field)),
    }
}

fn option_target(tape: &mut Tape<'_>, strip: usize) -> String {
    let kind = tape.pick(OPTION_KINDS);
    let named = Field::all().find(|f| f.info().kind == Kind::TcpOption(Some(kind)));
    let name = match named {
        Some(field) if tape.below(2) == 0 => spelling(tape, field),
        _ => format!("tcp-opt {kind}"),
    };
    let value = match kind {
        2 => tape.pick(&["1460", "1452", "x0200"]),
        3 => tape.pick(&["7", "8", "x0e"]),
        8 => tape.pick(&["x0000000100000002", "1"]),
        _ => tape.pick(&[
            "x0102",
            "x000102030405060708090a0b",
            "5",
            "1000",
            "x0000000000000000000000000000000000000000",
        ]),
    };
    match tape.below(4) {
        0 | 1 => match strip {
            0 => format!("strip {name}"),
            1 => format!("strip ! {name}"),
            _ => "strip all".to_owned(),
        },
        2 if kind != 4 => format!("mod {name} {value}"),
        _ if kind == 4 => format!("add {name}"),
        _ => format!("add {name} {value}"),
    }
}

/// Mutations of a valid text, for tests of error handling: a stretch removed, doubled or replaced.
pub fn broken_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(String::new()),
        "[ -~]{0,6}",
        Just("\\\n".to_owned()),
        Just("\"".to_owned()),
        Just(" in { ".to_owned()),
        Just(" @ ".to_owned()),
        Just(" ! ! ".to_owned()),
        Just("\u{feff}é\0".to_owned()),
        Just(" 99999999999999999999999999999999999999999999 ".to_owned()),
    ];
    (
        policy_text(),
        vec((any::<prop::sample::Index>(), 0usize..12, piece), 1..6),
    )
        .prop_map(|(text, edits)| {
            let mut chars: Vec<char> = text.chars().collect();
            for (index, length, piece) in edits {
                let start = index.index(chars.len() + 1);
                let end = (start + length).min(chars.len());
                chars.splice(start..end, piece.chars());
            }
            chars.into_iter().collect()
        })
}
