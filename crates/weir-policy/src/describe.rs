//! `weir explain` without a packet: one plain sentence about a rule.
//!
//! Reads the typed policy, not the text, so the sentence says what weir understood.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::dynamic::{Address, Change};
use crate::field::{Field, Header, Kind};
use crate::model::{
    Classes, DropWhen, Filtering, Helper, KindSet, Match, Per, PortName, Ranges, Rule, Subject,
    Target, Test,
};
use crate::names::{DAYS, name_of};
use crate::reject;
use crate::value::{Domain, class_text, mac_text, time_of_day_text};

/// More intervals than this are counted instead of listed.
const LISTED: usize = 8;

/// One sentence about a rule: which packets, and what happens to them.
pub fn describe(rule: &Rule) -> String {
    let name = rule
        .name
        .as_ref()
        .map_or(String::new(), |n| format!(" ({n})"));
    let mut conditions: Vec<String> = rule.matches.iter().filter_map(condition).collect();
    let packets = packets(rule.requires);
    if !conditions.is_empty() {
        conditions = vec![format!(" {}", and(&conditions))];
    }
    let mut actions: Vec<String> = (rule.targets.iter())
        .map(|target| action(target, rule.requires))
        .collect();
    if let Some(ns) = rule.timeout_ns {
        actions.push(format!(
            "keeps its connection for {} without packets",
            duration(ns)
        ));
    }
    if let Some(filtering) = rule.mapping {
        let who = match filtering {
            Filtering::AddressAndPortDependent => "",
            Filtering::AddressDependent => {
                ", to which the addresses that were sent to may send from any port"
            }
            Filtering::EndpointIndependent => ", to which everybody may send",
        };
        actions.push(format!(
            "keeps one address and port outside for each of its own{who}"
        ));
    }
    if let Some(Helper::Tftp) = rule.helper {
        actions.push(
            "lets in the answer to a TFTP request, from any port of the server that was asked"
                .to_owned(),
        );
    }
    if rule.stateful && actions.is_empty() {
        actions.push("is counted".to_owned());
    }
    let whose = if rule.stateful {
        let an = if packets.starts_with('I') { "an" } else { "a" };
        format!("every packet of a connection opened by {an}")
    } else {
        "every".to_owned()
    };
    format!(
        "Rule {}{name}: {whose} {packets}{} {}.",
        rule.id,
        conditions.concat(),
        and(&actions)
    )
}

/// In the largest unit that keeps it whole.
fn duration(ns: u64) -> String {
    for (unit, size) in [
        ("h", 3_600_000_000_000),
        ("min", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
    ] {
        if ns.is_multiple_of(size) {
            return format!("{} {unit}", ns / size);
        }
    }
    format!("{ns} ns")
}

fn packets(classes: Classes) -> String {
    let mut words = Vec::new();
    for (class, word) in [
        (Classes::VLAN2, "double-tagged"),
        (Classes::VLAN, "VLAN-tagged"),
        (Classes::IP4, "IPv4"),
        (Classes::IP6, "IPv6"),
        (Classes::TCP, "TCP"),
        (Classes::UDP, "UDP"),
        (Classes::ICMP, "ICMP"),
        (Classes::ICMP6, "ICMPv6"),
    ] {
        if classes.contains(class) {
            words.push(word);
        }
    }
    words.push("packet");
    words.join(" ")
}

fn condition(m: &Match) -> Option<String> {
    let info = m.subject.field.info();
    let not = if m.negated { "not " } else { "" };
    let with = if m.negated { "without" } else { "with" };
    Some(match (&m.test, info.kind) {
        (Test::Always, _) => return None,
        (Test::Masked { value, mask }, _) => format!(
            "whose {} has {not}x{value:x} in the bits x{mask:x}",
            phrase(m.subject.field)
        ),
        (Test::Dynamic(set), _) => {
            let article = if m.negated { "is not" } else { "is" };
            format!(
                "whose {} {article} in the {} {}",
                phrase(m.subject.field),
                if set.group { "group" } else { "set" },
                set.name
            )
        }
        (Test::Port(ports), kind) => {
            let ports: Vec<String> = ports
                .iter()
                .map(|p| match p {
                    PortName::Name(name) => name.clone(),
                    PortName::Index(index) => format!("interface {index}"),
                })
                .collect();
            let verb = if matches!(kind, Kind::OutPort) {
                "leaves by"
            } else {
                "came in by"
            };
            let verb = match (m.negated, kind) {
                (true, Kind::OutPort) => "does not leave by",
                (true, _) => "did not come in by",
                _ => verb,
            };
            format!("that {verb} {}", or(&ports))
        }
        (Test::Present, Kind::Is(value)) if info.bits == 1 => {
            let state = if (value == 1) != m.negated {
                "set"
            } else {
                "clear"
            };
            format!("with the {} bit {state}", phrase(m.subject.field))
        }
        (Test::Present, Kind::Is(value)) => format!("whose ECN is {not}{value}"),
        (Test::Present, Kind::NetProto | Kind::L4Proto | Kind::CtState) => {
            format!("that is {not}IPv4 or IPv6")
        }
        // The class that the rule requires has said so.
        (Test::Present, Kind::Exists) if !m.negated && is_transport(info.header) => return None,
        (Test::Present, Kind::Exists) => match info.name {
            "vlan" => format!("{with} a VLAN tag"),
            "vlan2" => format!("{with} a second VLAN tag"),
            _ => format!("that is {not}{}", info.text),
        },
        (Test::Present, Kind::TcpOption(_) | Kind::Ip4Option(_)) => {
            format!("{with} {}", option(m.subject))
        }
        (Test::Present, Kind::ExtHeader(None)) => format!("{with} any extension header"),
        (Test::Present, Kind::ExtHeader(_)) => {
            let name = info.name.trim_start_matches("ip6-eh-");
            format!("{with} a {name} extension header")
        }
        (Test::Present, _) => format!("{with} {}", article(m.subject.field)),
        (Test::In(ranges), Kind::TcpOption(_)) => {
            format!(
                "whose {} is {not}{}",
                option(m.subject),
                values(m.subject.field, ranges)
            )
        }
        // The class that the rule requires has said so.
        (Test::In(ranges), Kind::NetProto) if !m.negated && ranges.intervals().len() == 1 => {
            return None;
        }
        (Test::In(ranges), Kind::NetProto) => {
            let versions: Vec<String> = [4u8, 6]
                .iter()
                .filter(|&&v| ranges.contains(v.into()))
                .map(|v| format!("IPv{v}"))
                .collect();
            format!("that is {not}{}", or(&versions))
        }
        (Test::In(ranges), _) => {
            format!(
                "whose {} is {not}{}",
                phrase(m.subject.field),
                values(m.subject.field, ranges)
            )
        }
        (Test::Bytes(bytes), Kind::Payload) => {
            let verb = if m.negated { "does not have" } else { "has" };
            format!(
                "whose {} {verb} {} at byte {}",
                payload(m.subject.field),
                hex(bytes),
                m.subject.at
            )
        }
        (Test::Bytes(bytes), _) => {
            let verb = if m.negated {
                "does not begin"
            } else {
                "begins"
            };
            format!("whose {} {verb} with {}", option(m.subject), hex(bytes))
        }
    })
}

fn is_transport(header: Header) -> bool {
    matches!(
        header,
        Header::Tcp | Header::Udp | Header::Icmp | Header::Icmp6
    )
}

/// What a target does to packets of these classes.
fn action(target: &Target, classes: Classes) -> String {
    match target {
        Target::Set { field, value } => {
            let value = number(*field, *value);
            format!("gets its {} set to {value}", phrase(*field))
        }
        Target::PushTag { tci } => {
            let (id, pcp) = (tci & 0xfff, tci >> 13);
            let dei = if tci & 0x1000 == 0 {
                ""
            } else {
                ", drop eligible"
            };
            match (pcp, dei) {
                (0, "") => format!("gets a tag of VLAN {id} put on"),
                _ => format!("gets a tag of VLAN {id} put on (priority {pcp}{dei})"),
            }
        }
        Target::PopTag => "loses its outermost VLAN tag".to_owned(),
        Target::DecrementTtl => "has its TTL or hop limit decremented".to_owned(),
        Target::SetMeta {
            field,
            value,
            mask: u32::MAX,
        } => {
            let value = number(*field, u128::from(*value));
            format!("gets its {} set to {value}", phrase(*field))
        }
        Target::SetMeta { field, value, mask } => {
            let name = phrase(*field);
            format!("gets the bits x{mask:x} of its {name} set to x{value:x}")
        }
        Target::SetPayload { subject, bytes } => {
            format!(
                "gets {} written into its {} at byte {}",
                hex(bytes),
                payload(subject.field),
                subject.at
            )
        }
        Target::SetOption { kind, value } => {
            format!(
                "gets its {}, if it has one, set to {}",
                option_name(*kind),
                option_value(*kind, value)
            )
        }
        Target::AddOption { kind, value } if value.is_empty() => {
            format!("gets the {} appended", option_name(*kind))
        }
        Target::AddOption { kind, value } => {
            format!(
                "gets the {} {} appended",
                option_name(*kind),
                option_value(*kind, value)
            )
        }
        Target::Strip(kinds) => strip(kinds),
        Target::Drop(DropWhen::Always) => "is dropped unless a matching rule accepts it".to_owned(),
        Target::Drop(DropWhen::Answered(answer)) => {
            format!(
                "is dropped unless a matching rule accepts it, and answered {}",
                reject::phrase(*answer, classes)
            )
        }
        Target::Drop(DropWhen::Random { below }) => {
            let thousandths = (u128::from(*below) * 100_000).div_ceil(1 << 32);
            let percent = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
            format!(
                "is dropped with a chance of {} %",
                percent.trim_end_matches('0').trim_end_matches('.')
            )
        }
        Target::Drop(DropWhen::Over { period_ns, burst }) => {
            let (rate, unit) = rate((*period_ns).max(1));
            format!("is dropped above {rate} packets a {unit} (burst {burst})")
        }
        Target::Drop(DropWhen::OverEach {
            period_ns,
            burst,
            per,
        }) => {
            let (rate, unit) = rate((*period_ns).max(1));
            let whose = counted(*per, classes);
            format!("is dropped above {rate} packets a {unit} (burst {burst}) {whose}")
        }
        Target::Drop(DropWhen::OverConnections { most, per }) => {
            let whose = match per {
                Some(per) => format!(" {}", counted(*per, classes)),
                None => String::new(),
            };
            format!(
                "is dropped if it would open a connection while {most} such {} open{whose}",
                if *most == 1 { "is" } else { "are" }
            )
        }
        Target::Drop(DropWhen::Quota { bytes }) => {
            format!("is dropped once {bytes} bytes of such packets have come")
        }
        Target::Accept => "is accepted whatever other rules drop".to_owned(),
        Target::Map { field, pool } if pool.size() == 1 => {
            format!(
                "gets its {} translated to {} (answers back)",
                phrase(*field),
                values(*field, pool)
            )
        }
        Target::Map { field, pool } => {
            format!(
                "gets its {} translated to one that is {}, chosen for the connection (answers back)",
                phrase(*field),
                values(*field, pool)
            )
        }
        Target::Shuffle { field } if field.info().name.ends_with("port") => {
            format!(
                "gets its {} translated to a random one from 49152, chosen for the connection (answers back)",
                phrase(*field)
            )
        }
        Target::Shuffle { field } => {
            format!(
                "gets its {} moved by a random offset, chosen for the connection",
                phrase(*field)
            )
        }
        Target::ChangeSet(change) => {
            let address = address(change.address, classes);
            let set = &change.set.name;
            match change.change {
                Change::Add {
                    timeout_ns: Some(ns),
                } => {
                    format!(
                        "has its {address} put into the set {set} for {}",
                        duration(ns)
                    )
                }
                Change::Add { timeout_ns: None } => {
                    format!("has its {address} put into the set {set} for good")
                }
                Change::Delete => format!("has its {address} taken out of the set {set}"),
            }
        }
        Target::Log { prefix, limit } => {
            let prefix = match prefix.as_str() {
                "" => String::new(),
                prefix => format!(" as \"{prefix}\""),
            };
            let limit = limit.map(|limit| {
                let (rate, unit) = rate(limit.period_ns.max(1));
                format!(", at most {rate} times a {unit} (burst {})", limit.burst)
            });
            format!("is logged{prefix}{}", limit.unwrap_or_default())
        }
    }
}

/// What an address of packets with these headers is called.
fn address(address: Address, classes: Classes) -> &'static str {
    let one_family = classes.contains(Classes::IP4) || classes.contains(Classes::IP6);
    match address {
        Address::Source if one_family => "source address",
        Address::Destination if one_family => "destination address",
        Address::Source => "source address (IPv4 or IPv6)",
        Address::Destination => "destination address (IPv4 or IPv6)",
        Address::EthSource => "source MAC address",
        Address::EthDestination => "destination MAC address",
    }
}

fn strip(kinds: &KindSet) -> String {
    let listed = |want: bool| -> Vec<String> {
        (2..=255u8)
            .filter(|&k| kinds.contains(k) == want)
            .map(option_name)
            .collect()
    };
    if *kinds == KindSet::ALL {
        return "loses all TCP options".to_owned();
    }
    let (gone, kept) = (listed(true), listed(false));
    if gone.len() <= kept.len() {
        format!("loses the {}", and(&gone))
    } else {
        format!("loses all TCP options but the {}", and(&kept))
    }
}

/// Whose packets a limit counts together, of packets of these classes.
fn counted(per: Per, classes: Classes) -> String {
    let network = match (per.len4, per.len6) {
        (32, 128) => "address".to_owned(),
        (four, _) if classes.contains(Classes::IP4) => format!("network of /{four}"),
        (_, six) if classes.contains(Classes::IP6) => format!("network of /{six}"),
        (four, six) => format!("network of /{four} (IPv6: /{six})"),
    };
    match (per.source, per.destination) {
        (true, true) => "from one source address to one destination address".to_owned(),
        (true, false) => format!("from one source {network}"),
        _ => format!("to one destination {network}"),
    }
}

/// Packets a unit of time, in the largest unit that keeps the number whole enough.
fn rate(period_ns: u64) -> (u64, &'static str) {
    for (unit, seconds) in [("second", 1u64), ("minute", 60), ("hour", 3600)] {
        let ns = seconds * 1_000_000_000;
        let count = (ns + period_ns / 2) / period_ns;
        if count >= 1 && ns / count.max(1) == period_ns {
            return (count, unit);
        }
    }
    (3_600_000_000_000 / period_ns, "hour")
}

fn phrase(field: Field) -> &'static str {
    let info = field.info();
    match info.name {
        "ip-proto" => "protocol",
        "ip6-next" => "next header",
        "ip-ect0" | "ip-ect1" | "ip-ce" | "ip-non-ect" => "ECN",
        _ => info
            .text
            .split([',', ':'])
            .next()
            .unwrap_or(info.text)
            .trim_end_matches(" or prefix")
            .trim_start_matches("the "),
    }
}

fn article(field: Field) -> String {
    match field.info().kind {
        Kind::Payload => format!("a {}", payload(field)),
        _ => format!("a {}", phrase(field)),
    }
}

fn payload(field: Field) -> &'static str {
    match field.info().header {
        Header::Ip4 => "IPv4 payload",
        Header::Ip6 => "IPv6 payload",
        Header::Icmp => "ICMP payload",
        Header::Icmp6 => "ICMPv6 payload",
        Header::Udp => "UDP payload",
        _ => "TCP payload",
    }
}

fn option(subject: Subject) -> String {
    match (subject.field.info().kind, subject.option) {
        (Kind::Ip4Option(_), None) => "any IPv4 option".to_owned(),
        (Kind::Ip4Option(Some(_)), _) => format!("IPv4 option {}", subject.field.info().text),
        (Kind::Ip4Option(None), Some(number)) => format!("IPv4 option {number}"),
        (_, None) => "any TCP option".to_owned(),
        (_, Some(kind)) => option_name(kind),
    }
}

fn option_name(kind: u8) -> String {
    let named = Field::all().find(|f| f.info().kind == Kind::TcpOption(Some(kind)));
    match named {
        Some(field) => format!("TCP option {}", phrase(field)),
        None => format!("TCP option {kind}"),
    }
}

fn option_value(kind: u8, value: &[u8]) -> String {
    match (kind, value) {
        (2, [high, low]) => u16::from_be_bytes([*high, *low]).to_string(),
        (3, [shift]) => shift.to_string(),
        _ => hex(value),
    }
}

fn values(field: Field, ranges: &Ranges) -> String {
    let intervals = ranges.intervals();
    if intervals.is_empty() {
        return "never a value".to_owned();
    }
    if intervals.len() > LISTED {
        return format!("in a set of {} ranges", intervals.len());
    }
    let max = match field.info().bits {
        _ if field.info().header == Header::Clock => Domain::of(field).map_or(0, Domain::max),
        0 => u128::from(u64::MAX),
        bits => u128::MAX >> (128 - u32::from(bits.min(128))),
    };
    let words: Vec<String> = intervals
        .iter()
        .map(|&(lo, hi)| match prefix_length(field, lo, hi) {
            _ if lo == hi => number(field, lo),
            Some(length) => format!("in {}/{length}", number(field, lo)),
            _ if lo == 0 => format!("at most {}", number(field, hi)),
            _ if hi == max => format!("at least {}", number(field, lo)),
            None => format!("from {} to {}", number(field, lo), number(field, hi)),
        })
        .collect();
    or(&words)
}

fn prefix_length(field: Field, lo: u128, hi: u128) -> Option<u32> {
    let bits = match field.info().kind {
        Kind::Addr4 => 32,
        Kind::Addr6 => 128,
        Kind::Mac => 48,
        _ => return None,
    };
    let host = lo ^ hi;
    let is_prefix = host & host.wrapping_add(1) == 0 && lo & host == 0;
    is_prefix.then(|| bits - (128 - host.leading_zeros()))
}

fn number(field: Field, value: u128) -> String {
    let info = field.info();
    match info.kind {
        Kind::Addr4 => Ipv4Addr::from(value as u32).to_string(),
        Kind::Addr6 => Ipv6Addr::from(value).to_string(),
        Kind::Mac => mac_text(value),
        _ if info.header == Header::Skb => match info.name {
            "mark" => format!("x{value:x}"),
            _ => class_text(value),
        },
        _ if info.name == "hour" => time_of_day_text(value),
        _ if info.name == "day" => day_text(value),
        Kind::CtState => name_of(field, value).unwrap_or_else(|| value.to_string()),
        _ => match name_of(field, value) {
            Some(name) => format!("{value} ({name})"),
            None => value.to_string(),
        },
    }
}

/// A day of the week as it is written in a sentence.
fn day_text(day: u128) -> String {
    let long = DAYS.iter().rfind(|&&(_, number)| u128::from(number) == day);
    let name = long.map_or("", |(name, _)| name);
    let (first, rest) = name.split_at(name.len().min(1));
    first.to_ascii_uppercase() + rest
}

fn hex(bytes: &[u8]) -> String {
    let mut out = "x".to_owned();
    for byte in bytes {
        out.push_str(&format!("{byte:02x}"));
    }
    out
}

fn and(words: &[String]) -> String {
    join(words, "and")
}

fn or(words: &[String]) -> String {
    join(words, "or")
}

fn join(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., tail] => format!("{} {last} {tail}", head.join(", ")),
    }
}
