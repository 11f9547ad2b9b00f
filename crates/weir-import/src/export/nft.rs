//! Rules of weir as lines of nftables, hook ingress of the family netdev, where frames are whatever the wire brought.
//!
//! Every rule of weir is tried, and an accept overrides every drop: so all accepting rules come first, then all dropping ones,
//! and what is left passes. A rule becomes one line of matches. What nftables cannot say in one line (alternatives, and the
//! absence of something whose test ends a rule) is found by lines before it, which leave a bit in the packet mark.
//! Native names of fields are used wherever nftables has them. `weir-engine/tests/nftables_agrees.rs` compares the verdicts.

use std::net::{Ipv4Addr, Ipv6Addr};

use weir_policy::field::{Field, Header, Kind};
use weir_policy::model::{
    Classes, DropWhen, LogLimit, Match, PortName, Ranges, Rule, Target, Test,
};

/// EtherTypes that weir reads as VLAN tags.
const TAGS: &str = "{ 0x8100, 0x88a8, 0x9100 }";

/// Why a rule has no counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inexpressible(pub &'static str);

/// The rules as lines of a chain: accepts, then drops.
///
/// # Errors
/// nftables cannot say one of them.
pub fn chain(rules: &[Rule]) -> Result<Vec<String>, Inexpressible> {
    let mut lines = Vec::new();
    for wanted in ["accept", "drop"] {
        for rule in rules.iter().filter(|rule| verdict(rule) == wanted) {
            lines.extend(lines_of(rule)?);
        }
    }
    Ok(lines)
}

/// What a rule does to packets, if that is a verdict on every packet alone.
pub(super) fn verdict(rule: &Rule) -> &'static str {
    let is = |wanted: &Target| rule.targets.contains(wanted);
    match (is(&Target::Accept), is(&Target::Drop(DropWhen::Always))) {
        (true, _) => "accept",
        (_, true) => "drop",
        _ => "",
    }
}

/// A limit of log lines, in front of `log`. The token bucket of nftables is the same arithmetic.
pub(super) fn limit(limit: &LogLimit) -> String {
    let units = [("second", 1u64), ("minute", 60), ("hour", 3600)];
    let period = limit.period_ns.max(1);
    let of = |(unit, seconds): (&'static str, u64)| {
        let ns = seconds * 1_000_000_000;
        let count = ns / period;
        (count > 0 && ns / count == period).then_some((count, unit))
    };
    let (count, unit) = units.into_iter().find_map(of).unwrap_or((1, "hour"));
    format!("limit rate {count}/{unit} burst {} packets ", limit.burst)
}

/// In front of tests that leave bits in the mark, and behind the last of them.
pub(super) const NO_MARK: &str = "meta mark set 0";

/// One condition of a rule.
enum Term {
    /// All of these hold.
    All(Vec<String>),
    /// Whether one of these holds is as wanted.
    Any {
        alternatives: Vec<String>,
        wanted: bool,
    },
    /// No packet meets it.
    Never,
}

impl Term {
    fn none() -> Term {
        Term::All(Vec::new())
    }

    fn one(text: impl Into<String>) -> Term {
        Term::All(vec![text.into()])
    }
}

/// Either family.
const BOTH: &str = "meta protocol { ip, ip6 }";

/// The lines of one rule; none if it can match no packet.
///
/// # Errors
/// nftables cannot say it.
pub fn lines_of(rule: &Rule) -> Result<Vec<String>, Inexpressible> {
    statement(rule, verdict(rule))
}

/// The lines of one rule with this statement in the place of its verdict.
pub(super) fn statement(rule: &Rule, what: &str) -> Result<Vec<String>, Inexpressible> {
    let prefix = classes(rule.requires);
    let mut matches = prefix.clone();
    let mut lines = Vec::new();
    let mut bit = 1u32;
    let l4 = has_l4(rule.requires);
    for one in &rule.matches {
        for term in terms(one, l4, rule.requires)? {
            match term {
                Term::Never => return Ok(Vec::new()),
                Term::All(texts) => {
                    matches.extend(texts.into_iter().map(|text| known(rule.requires, text)))
                }
                Term::Any {
                    alternatives,
                    wanted,
                } => {
                    for alternative in alternatives {
                        if excluded(rule.requires, &alternative) {
                            continue;
                        }
                        lines.push(format!(
                            "{} {alternative} meta mark set meta mark or {bit:#x}",
                            prefix.join(" ")
                        ));
                    }
                    let value = if wanted { bit } else { 0 };
                    matches.push(format!("meta mark and {bit:#x} == {value:#x}"));
                    bit <<= 1;
                }
            }
        }
    }
    if bit > 1 {
        lines.insert(0, NO_MARK.to_owned());
    }
    matches.retain(|text| !text.is_empty());
    lines.push(
        format!("{} {what}", matches.join(" "))
            .trim_start()
            .to_owned(),
    );
    Ok(lines)
}

fn has_l4(requires: Classes) -> bool {
    let l4 = [
        Classes::TCP,
        Classes::UDP,
        Classes::ICMP,
        Classes::ICMP6,
        Classes::PORTS,
    ];
    l4.into_iter().any(|class| requires.contains(class))
}

/// The family that header classes leave, as a condition.
fn family_of(requires: Classes) -> Option<&'static str> {
    let has = |class| requires.contains(class);
    if has(Classes::IP4) || has(Classes::ICMP) {
        Some("meta protocol ip")
    } else if has(Classes::IP6) || has(Classes::ICMP6) || has(Classes::IP6_FRAG) {
        Some("meta protocol ip6")
    } else if has(Classes::TCP) || has(Classes::UDP) || has(Classes::PORTS) {
        Some(BOTH)
    } else {
        None
    }
}

/// A condition without the set of both families where one of them is asked for already: nft takes the last member of the set for the family
/// of the line, and refuses headers of the other.
fn known(requires: Classes, text: String) -> String {
    let one = family_of(requires).is_some_and(|family| family != BOTH);
    match text.strip_prefix(BOTH) {
        Some(rest) if one => rest.trim_start().to_owned(),
        _ => text,
    }
}

/// nft refuses a line that asks for two families.
fn excluded(requires: Classes, alternative: &str) -> bool {
    let four = requires.contains(Classes::IP4) || requires.contains(Classes::ICMP);
    let six = requires.contains(Classes::IP6) || requires.contains(Classes::ICMP6);
    four && alternative.starts_with("meta protocol ip6")
        || six && alternative.starts_with("meta protocol ip ")
}

/// What a packet needs to have the header classes.
fn classes(requires: Classes) -> Vec<String> {
    let mut out = Vec::new();
    let has = |class| requires.contains(class);
    if has(Classes::VLAN) || has(Classes::VLAN2) {
        out.push(header(Header::Vlan));
    }
    if has(Classes::VLAN2) {
        out.push(header(Header::Vlan2));
    }
    let l4 = [
        (Classes::TCP, Header::Tcp),
        (Classes::UDP, Header::Udp),
        (Classes::ICMP, Header::Icmp),
        (Classes::ICMP6, Header::Icmp6),
    ];
    let Some(family) = family_of(requires) else {
        return out;
    };
    out.push(family.to_owned());
    if has(Classes::IP6_FRAG) {
        out.push("exthdr frag exists".to_owned());
    }
    let present = l4.into_iter().filter(|&(class, _)| has(class));
    let known = out.len();
    out.extend(present.map(|(_, l4)| transport(l4).to_owned()));
    // Each of the others has ports, or nothing has both.
    if out.len() == known && has(Classes::PORTS) {
        out.push(transport(Header::Ports).to_owned());
    }
    out
}

/// Presence of a header, by itself.
fn header(of: Header) -> String {
    match of {
        Header::Meta | Header::Skb | Header::Clock | Header::Ether | Header::EtherAddr => {
            String::new()
        }
        Header::Vlan => format!("@ll,96,16 {TAGS}"),
        Header::Vlan2 => format!("@ll,96,16 {TAGS} @ll,128,16 {TAGS}"),
        Header::Ip4 => "meta protocol ip".to_owned(),
        Header::Ip6 => "meta protocol ip6".to_owned(),
        Header::Ip6Frag => "meta protocol ip6 exthdr frag exists".to_owned(),
        Header::Icmp => format!("meta protocol ip {}", transport(of)),
        Header::Icmp6 => format!("meta protocol ip6 {}", transport(of)),
        Header::Udp | Header::Tcp | Header::Ports => {
            format!("meta protocol {{ ip, ip6 }} {}", transport(of))
        }
    }
}

/// The protocol, and a test of its header that always holds: `meta l4proto` is also true of later fragments. The test reads
/// eight bytes, because shorter reads of a transport header at this hook take the payload of a later fragment for one (kernel 6.18).
fn transport(of: Header) -> &'static str {
    match of {
        Header::Tcp => "meta l4proto tcp @th,0,64 >= 0",
        Header::Ports => "meta l4proto { 6, 17, 33, 132, 136 } @th,0,64 >= 0",
        Header::Udp => "meta l4proto udp @th,0,64 >= 0",
        Header::Icmp => "meta l4proto icmp @th,0,64 >= 0",
        Header::Icmp6 => "meta l4proto ipv6-icmp @th,0,64 >= 0",
        _ => "",
    }
}

/// `l4`: the rule asks for a transport protocol already, and nft refuses a line in which the IP header's field disagrees with it.
fn terms(one: &Match, l4: bool, requires: Classes) -> Result<Vec<Term>, Inexpressible> {
    let info = one.subject.field.info();
    if info.kind == Kind::CtState {
        return Err(Inexpressible("ct-state"));
    }
    if info.header == Header::Skb {
        return Err(Inexpressible(
            "marks and priorities: exported rules need the mark themselves",
        ));
    }
    if info.kind == Kind::L4Proto {
        return l4_proto(one, requires);
    }
    if let Test::Present = one.test {
        return presence(one, l4).map(|term| vec![term]);
    }
    match (&one.test, info.kind) {
        (Test::Always, _) => Ok(Vec::new()),
        (Test::Port(ports), Kind::InPort) => ports_of(ports, one.negated).map(|term| vec![term]),
        (Test::In(set), Kind::Is(_)) => {
            let wanted = |value| set.contains(value) != one.negated;
            Ok(vec![bits(one.subject.field, wanted)?])
        }
        (Test::In(set), Kind::NetProto) => {
            Ok(vec![family(|version| set.contains(version) != one.negated)])
        }
        (Test::In(set), Kind::TcpOption(_)) => option_number(one, set),
        (Test::In(set), _) if info.name == "eth-type" => Ok(vec![ether_type(set, one.negated)]),
        (Test::In(set), _) => {
            let expression = match info.name {
                "ip-proto" if l4 => "@nh,72,8".to_owned(),
                "ip6-next" if l4 => "@nh,48,8".to_owned(),
                _ => number(one.subject.field)?,
            };
            let write = match info.kind {
                Kind::Addr4 => address4,
                Kind::Addr6 => address6,
                Kind::Mac => address_mac,
                _ => decimal,
            };
            let max = match info.name {
                "hour" => 86_399,
                "day" => 6,
                _ => u128::MAX >> (128 - u32::from(info.bits)),
            };
            Ok(vec![membership(&expression, set, one.negated, max, write)])
        }
        (Test::Bytes(bytes), Kind::Payload) => payload(one, bytes).map(|term| vec![term]),
        (Test::Bytes(bytes), Kind::TcpOption(_)) => option_bytes(one, bytes),
        (Test::Dynamic(_), _) => Err(Inexpressible("dynamic sets are not exported")),
        _ => Err(Inexpressible("out")),
    }
}

/// The protocol behind the IP headers, of a packet that has them.
fn l4_proto(one: &Match, requires: Classes) -> Result<Vec<Term>, Inexpressible> {
    let known = [
        (Classes::TCP, 6),
        (Classes::UDP, 17),
        (Classes::ICMP, 1),
        (Classes::ICMP6, 58),
    ];
    let known = known
        .into_iter()
        .find(|(class, _)| requires.contains(*class));
    let families = [Classes::IP4, Classes::IP6, Classes::IP6_FRAG];
    // nft refuses a second family in a line.
    let says_family =
        has_l4(requires) || families.into_iter().any(|class| requires.contains(class));
    let set = match &one.test {
        Test::In(set) => set,
        _ if says_family => {
            return Ok(vec![if one.negated {
                Term::Never
            } else {
                Term::none()
            }]);
        }
        _ if one.negated => return Ok(vec![Term::one("meta protocol != { ip, ip6 }")]),
        _ => return Ok(vec![Term::one(BOTH)]),
    };
    // nft refuses a second protocol in a line.
    if let Some((_, number)) = known {
        let holds = set.contains(number) != one.negated;
        return Ok(vec![if holds { Term::none() } else { Term::Never }]);
    }
    let mut terms = Vec::new();
    if !says_family {
        terms.push(Term::one(BOTH));
    }
    terms.push(membership("meta l4proto", set, one.negated, 255, decimal));
    Ok(terms)
}

fn presence(one: &Match, l4: bool) -> Result<Term, Inexpressible> {
    let info = one.subject.field.info();
    let any = |alternatives: &[&str]| Term::Any {
        alternatives: alternatives.iter().map(|&text| text.to_owned()).collect(),
        wanted: !one.negated,
    };
    let exists = if one.negated { "missing" } else { "exists" };
    Ok(match info.kind {
        Kind::Is(wanted) => bits(one.subject.field, |value| {
            (value == u128::from(wanted)) != one.negated
        })?,
        Kind::TcpOption(kind) => match one.subject.option.or(kind) {
            Some(kind) => Term::one(format!("tcp option {kind} {exists}")),
            None => return Err(Inexpressible("tcp-opt without a kind")),
        },
        Kind::Ip4Option(kind) => match one.subject.option.or(kind) {
            Some(7) => Term::one(format!("ip option rr {exists}")),
            Some(131) => Term::one(format!("ip option lsrr {exists}")),
            Some(137) => Term::one(format!("ip option ssrr {exists}")),
            Some(148) => Term::one(format!("ip option ra {exists}")),
            _ => return Err(Inexpressible("IPv4 options but four")),
        },
        Kind::ExtHeader(number) => match one.subject.option.or(number) {
            None => Term::one(format!(
                "{} {}{{ 0, 43, 44, 50, 51, 60, 135, 139, 140 }}",
                if l4 { "@nh,48,8" } else { "ip6 nexthdr" },
                if one.negated { "!= " } else { "" }
            )),
            Some(0) => Term::one(format!("exthdr hbh {exists}")),
            Some(43) => Term::one(format!("exthdr rt {exists}")),
            Some(44) => Term::one(format!("exthdr frag {exists}")),
            Some(60) => Term::one(format!("exthdr dst {exists}")),
            Some(50) => any(&["meta l4proto esp @th,0,8 0-255"]),
            Some(_) => return Err(Inexpressible("ip6-eh of AH, mobility, HIP and Shim6")),
        },
        Kind::Exists => match info.name {
            "frag" => any(&[
                "meta protocol ip ip frag-off & 0x3fff != 0",
                "meta protocol ip6 frag frag-off != 0",
                "meta protocol ip6 frag more-fragments 1",
            ]),
            "frag-first" => any(&[
                "meta protocol ip ip frag-off & 0x3fff == 0x2000",
                "meta protocol ip6 frag frag-off 0 frag more-fragments 1",
            ]),
            "frag-later" => any(&[
                "meta protocol ip ip frag-off & 0x1fff != 0",
                "meta protocol ip6 frag frag-off != 0",
            ]),
            // Its class says so.
            _ if !one.negated => Term::none(),
            _ => any(&[&header(info.header)]),
        },
        Kind::NetProto => {
            let not = if one.negated { "!= " } else { "" };
            Term::one(format!("meta protocol {not}{{ ip, ip6 }}"))
        }
        Kind::OutPort => return Err(Inexpressible("out")),
        // There in every frame, or required by the rule.
        _ if !one.negated => Term::none(),
        _ if matches!(
            info.header,
            Header::Meta | Header::Skb | Header::Clock | Header::Ether | Header::EtherAddr
        ) =>
        {
            Term::Never
        }
        _ => any(&[&header(info.header)]),
    })
}

/// A field of one or two bits, by the values that are wanted.
fn bits(field: Field, wanted: impl Fn(u128) -> bool) -> Result<Term, Inexpressible> {
    let info = field.info();
    let values: Vec<u128> = (0..1 << info.bits).filter(|&value| wanted(value)).collect();
    let Some(first) = values.first() else {
        return Ok(Term::Never);
    };
    if values.len() == 1 << info.bits {
        return Ok(Term::none());
    }
    let masked = |name: &str, mask: u32| {
        let value = if values == [1] { mask } else { 0 };
        Term::one(format!("{name} & {mask:#x} == {value:#x}"))
    };
    Ok(match info.header {
        Header::Tcp => masked("tcp flags", 0x80 >> (info.offset - 104)),
        Header::Ip4 if info.offset >= 48 => masked("ip frag-off", 0x8000 >> (info.offset - 48)),
        Header::Ip4 => Term::one(format!("ip ecn {}", choice(&values))),
        Header::Ip6Frag => Term::one(format!("frag more-fragments {}", first)),
        Header::Vlan | Header::Vlan2 => {
            let tag = if info.header == Header::Vlan {
                112
            } else {
                144
            };
            Term::one(format!("@ll,{},1 == {}", tag + info.offset, first))
        }
        _ => return Err(Inexpressible("a bit that nftables has no name for")),
    })
}

fn choice(values: &[u128]) -> String {
    let texts: Vec<String> = values.iter().map(u128::to_string).collect();
    format!("{{ {} }}", texts.join(", "))
}

fn family(wanted: impl Fn(u128) -> bool) -> Term {
    match (wanted(4), wanted(6)) {
        (true, true) => Term::one(BOTH),
        (true, false) => Term::one("meta protocol ip"),
        (false, true) => Term::one("meta protocol ip6"),
        (false, false) => Term::Never,
    }
}

/// EtherType behind the last tag: one alternative for each number of tags.
fn ether_type(set: &Ranges, negated: bool) -> Term {
    let alternatives = (0..=4).filter_map(|tags| {
        let at = 96 + 32 * tags;
        let walked = (0..tags).map(|tag| format!("@ll,{},16 {TAGS}", 96 + 32 * tag));
        let behind = format!("@ll,{at},16 != {TAGS}");
        let value = match membership(&format!("@ll,{at},16"), set, false, 0xffff, decimal) {
            Term::All(texts) => texts,
            _ => return None,
        };
        let all: Vec<String> = walked.chain([behind]).chain(value).collect();
        Some(all.join(" "))
    });
    Term::Any {
        alternatives: alternatives.collect(),
        wanted: !negated,
    }
}

fn ports_of(ports: &[PortName], negated: bool) -> Result<Term, Inexpressible> {
    let names: Result<Vec<String>, Inexpressible> = (ports.iter())
        .map(|port| match port {
            PortName::Name(name) => Ok(format!("\"{name}\"")),
            PortName::Index(_) => Err(Inexpressible("interfaces by index")),
        })
        .collect();
    let not = if negated { "!= " } else { "" };
    Ok(Term::one(format!(
        "iifname {not}{{ {} }}",
        names?.join(", ")
    )))
}

/// The name of a number.
fn number(field: Field) -> Result<String, Inexpressible> {
    let info = field.info();
    Ok(match info.name {
        "eth-saddr" => "ether saddr".to_owned(),
        "eth-daddr" => "ether daddr".to_owned(),
        // As numbers, which nft takes for UTC: texts it takes for local time of the host that loads them.
        "hour" => "meta hour".to_owned(),
        "day" => "meta day".to_owned(),
        "sport" => "th sport".to_owned(),
        "dport" => "th dport".to_owned(),
        "vlan-id" | "vlan-pcp" => format!("@ll,{},{}", 112 + info.offset, info.bits),
        "vlan2-id" | "vlan2-pcp" => format!("@ll,{},{}", 144 + info.offset, info.bits),
        "ip-ver" => "ip version".to_owned(),
        "ip-ihl" => "ip hdrlength".to_owned(),
        "ip-dscp" => "ip dscp".to_owned(),
        "ip-ecn" => "ip ecn".to_owned(),
        "ip-len" => "ip length".to_owned(),
        "ip-id" => "ip id".to_owned(),
        "ip-flags" => "@nh,48,3".to_owned(),
        "ip-frag-offset" => "ip frag-off & 0x1fff".to_owned(),
        "ip-ttl" => "ip ttl".to_owned(),
        "ip-proto" => "ip protocol".to_owned(),
        "ip-checksum" => "ip checksum".to_owned(),
        "ip-saddr" => "ip saddr".to_owned(),
        "ip-daddr" => "ip daddr".to_owned(),
        "ip6-ver" => "ip6 version".to_owned(),
        "ip6-traffic-class" => "@nh,4,8".to_owned(),
        "ip6-dscp" => "ip6 dscp".to_owned(),
        "ip6-ecn" => "ip6 ecn".to_owned(),
        "ip6-flow-label" => "ip6 flowlabel".to_owned(),
        "ip6-len" => "ip6 length".to_owned(),
        "ip6-next" => "ip6 nexthdr".to_owned(),
        "ip6-hop-limit" => "ip6 hoplimit".to_owned(),
        "ip6-saddr" => "ip6 saddr".to_owned(),
        "ip6-daddr" => "ip6 daddr".to_owned(),
        "ip6-frag-offset" => "frag frag-off".to_owned(),
        "ip6-frag-id" => "frag id".to_owned(),
        "icmp-type" => "icmp type".to_owned(),
        "icmp-code" => "icmp code".to_owned(),
        "icmp-checksum" => "icmp checksum".to_owned(),
        "icmp6-type" => "icmpv6 type".to_owned(),
        "icmp6-code" => "icmpv6 code".to_owned(),
        "icmp6-checksum" => "icmpv6 checksum".to_owned(),
        "udp-sport" => "udp sport".to_owned(),
        "udp-dport" => "udp dport".to_owned(),
        "udp-len" => "udp length".to_owned(),
        "udp-checksum" => "udp checksum".to_owned(),
        "tcp-sport" => "tcp sport".to_owned(),
        "tcp-dport" => "tcp dport".to_owned(),
        "tcp-seq-num" => "tcp sequence".to_owned(),
        "tcp-ack-num" => "tcp ackseq".to_owned(),
        "tcp-offset" => "tcp doff".to_owned(),
        "tcp-reserved" => "tcp reserved".to_owned(),
        "tcp-flags" => "tcp flags".to_owned(),
        "tcp-win" => "tcp window".to_owned(),
        "tcp-checksum" => "tcp checksum".to_owned(),
        "tcp-urg-ptr" => "tcp urgptr".to_owned(),
        "queue" => return Err(Inexpressible("queue")),
        _ => return Err(Inexpressible("a field that nftables has not got")),
    })
}

/// A number in a set of intervals. `max` is the largest value the expression can have.
fn membership(
    expression: &str,
    set: &Ranges,
    negated: bool,
    max: u128,
    write: fn(u128) -> String,
) -> Term {
    let possible: Vec<(u128, u128)> = (set.intervals().iter())
        .filter(|(lo, _)| *lo <= max)
        .map(|&(lo, hi)| (lo, hi.min(max)))
        .collect();
    let interval = |&(lo, hi): &(u128, u128)| {
        if lo == hi {
            write(lo)
        } else {
            format!("{}-{}", write(lo), write(hi))
        }
    };
    let cond = if negated { "!=" } else { "==" };
    match possible[..] {
        [] if negated => Term::none(),
        [] => Term::Never,
        // nft refuses an interval that holds everything.
        [(0, hi)] if hi == max && negated => Term::Never,
        [(0, hi)] if hi == max => Term::none(),
        // As an interval also if it is one value: nft 1.0.6 makes one comparison of two `!=` on neighbouring bytes.
        [(lo, hi)] if negated => Term::one(format!("{expression} != {}-{}", write(lo), write(hi))),
        [one] => Term::one(format!("{expression} == {}", interval(&one))),
        _ => {
            let elements: Vec<String> = possible.iter().map(interval).collect();
            Term::one(format!("{expression} {cond} {{ {} }}", elements.join(", ")))
        }
    }
}

fn decimal(value: u128) -> String {
    value.to_string()
}

fn address4(value: u128) -> String {
    Ipv4Addr::from(value as u32).to_string()
}

fn address6(value: u128) -> String {
    Ipv6Addr::from(value).to_string()
}

fn address_mac(value: u128) -> String {
    let bytes = value.to_be_bytes();
    let digits: Vec<String> = bytes.iter().skip(10).map(|b| format!("{b:02x}")).collect();
    digits.join(":")
}

/// Bytes at a byte offset behind a base (`@th`, `tcp option @30`), in pieces that fit a register.
fn bytes_at(base: &str, at: usize, bytes: &[u8]) -> String {
    let pieces = bytes.chunks(4).enumerate().map(|(i, piece)| {
        let digits: String = piece.iter().map(|byte| format!("{byte:02x}")).collect();
        let from = 8 * (at + 4 * i);
        format!("{base},{from},{} 0x{digits}", 8 * piece.len())
    });
    pieces.collect::<Vec<_>>().join(" ")
}

fn payload(one: &Match, bytes: &[u8]) -> Result<Term, Inexpressible> {
    let at = usize::from(one.subject.at);
    let alternatives = match one.subject.field.info().header {
        Header::Tcp => vec![bytes_at("@ih", at, bytes)],
        Header::Udp | Header::Icmp | Header::Icmp6 => vec![bytes_at("@th", 8 + at, bytes)],
        Header::Ip6 => vec![bytes_at("@th", at, bytes)],
        // A later fragment has no transport base, so the payload is counted from the network header.
        Header::Ip4 => (5..=15)
            .map(|words| {
                let found = bytes_at("@nh", words * 4 + at, bytes);
                format!("ip hdrlength {words} {found}")
            })
            .collect(),
        _ => return Err(Inexpressible("payload")),
    };
    Ok(Term::Any {
        alternatives,
        wanted: !one.negated,
    })
}

/// The length in bytes that a value of the kind has, if only that is comparable.
fn prescribed(kind: u8) -> Option<usize> {
    match kind {
        2 => Some(2),
        3 => Some(1),
        8 => Some(8),
        _ => None,
    }
}

fn option_number(one: &Match, set: &Ranges) -> Result<Vec<Term>, Inexpressible> {
    let Some(kind) = one.subject.option else {
        return Err(Inexpressible("tcp-opt without a kind"));
    };
    let lengths = match prescribed(kind) {
        Some(len) => len..=len,
        None => 1..=8,
    };
    let alternatives = lengths.filter_map(|len| {
        let value = match kind {
            2 => "tcp option maxseg size".to_owned(),
            3 => "tcp option window count".to_owned(),
            _ => format!("tcp option @{kind},16,{}", 8 * len),
        };
        let max = u128::MAX >> (128 - 8 * len);
        match membership(&value, set, one.negated, max, decimal) {
            Term::All(texts) => Some(format!(
                "tcp option @{kind},8,8 {} {}",
                len + 2,
                texts.join(" ")
            )),
            _ => None,
        }
    });
    let alternatives: Vec<String> = alternatives.collect();
    Ok(match &alternatives[..] {
        [] => vec![Term::Never],
        [only] => vec![Term::one(only.clone())],
        _ => vec![Term::Any {
            alternatives,
            wanted: true,
        }],
    })
}

fn option_bytes(one: &Match, bytes: &[u8]) -> Result<Vec<Term>, Inexpressible> {
    let Some(kind) = one.subject.option else {
        return Err(Inexpressible("tcp-opt without a kind"));
    };
    let exists = match prescribed(kind) {
        Some(len) => format!("tcp option @{kind},8,8 {}", len + 2),
        None => format!("tcp option {kind} exists"),
    };
    let equal = bytes_at(&format!("tcp option @{kind}"), 2, bytes);
    Ok(vec![
        Term::one(exists),
        Term::Any {
            alternatives: vec![equal],
            wanted: !one.negated,
        },
    ])
}
