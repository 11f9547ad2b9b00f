//! Rules that never match: found by the decision procedure, explained by the fewest words of the rule that contradict each other.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::solve::{Demand, Known, satisfiable};
use crate::ast::{self, Cond, Span};
use crate::diagnostic::Report;
use crate::field::{Field, Header, Kind};
use crate::model::{Classes, Match, Ranges, Test};
use crate::value::{Domain, mac_text};

/// Something that a rule asks of packets, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(super) demand: Demand<'a>,
    pub(super) span: Span,
    /// The match as written; `None`: a target needs the header.
    pub(super) written: Option<&'a ast::Match>,
}

impl<'a> Asked<'a> {
    /// A match of the rule.
    pub(crate) fn of_match(one: &'a Match, written: &'a ast::Match) -> Asked<'a> {
        Asked {
            demand: Demand::Holds(one),
            span: written.span,
            written: Some(written),
        }
    }

    /// Headers that a target needs.
    pub(crate) fn of_target(classes: Classes, span: Span) -> Asked<'a> {
        Asked {
            demand: Demand::Has(classes),
            span,
            written: None,
        }
    }

    fn model(&self) -> Option<&'a Match> {
        match self.demand {
            Demand::Holds(one) => Some(one),
            _ => None,
        }
    }

    fn field(&self) -> Option<Field> {
        self.model().map(|one| one.subject.field)
    }

    fn is_named(&self, names: &[&str]) -> bool {
        self.field()
            .is_some_and(|field| names.contains(&field.info().name))
    }

    /// The L4 or other header that it asks for.
    fn header(&self) -> Option<&'static str> {
        const NAMES: &[(Header, Classes, &str)] = &[
            (Header::Tcp, Classes::TCP, "TCP"),
            (Header::Udp, Classes::UDP, "UDP"),
            (Header::Icmp, Classes::ICMP, "ICMP"),
            (Header::Icmp6, Classes::ICMP6, "ICMPv6"),
            (Header::Ip4, Classes::IP4, "IPv4"),
            (Header::Ip6, Classes::IP6, "IPv6"),
            (Header::Ip6Frag, Classes::IP6_FRAG, "IPv6 fragment"),
        ];
        let found = NAMES.iter().find(|(header, class, _)| match self.demand {
            Demand::Has(classes) => classes.contains(*class),
            Demand::Holds(one) => {
                one.subject.field.info().header == *header && !self.is_negated_presence()
            }
            Demand::Fails(_) => false,
        });
        found.map(|&(.., name)| name)
    }

    /// `! FIELD` of a field that is there whenever its header is: packets without that header.
    fn is_negated_presence(&self) -> bool {
        self.model().is_some_and(|one| {
            let kind = one.subject.field.info().kind;
            let of_header = matches!(
                kind,
                Kind::Number | Kind::Addr4 | Kind::Addr6 | Kind::Payload
            );
            one.negated && one.test == Test::Present && of_header
        })
    }
}

/// Reports a rule that never matches. Returns whether it did.
pub(crate) fn judge(text: &str, asked: &[Asked<'_>], report: &mut Report) -> bool {
    if satisfiable(&demands(asked), Known::PARSED) {
        return false;
    }
    let is_certain = !satisfiable(&demands(asked), Known::ANY);
    let known = match is_certain {
        true => Known::ANY,
        false => Known::PARSED,
    };
    let mut core: Vec<Asked<'_>> = asked.to_vec();
    let mut at = 0;
    while at < core.len() {
        let mut without = core.clone();
        without.remove(at);
        match satisfiable(&demands(&without), known) {
            true => at += 1,
            false => core = without,
        }
    }
    core.sort_by_key(|one| one.span.start);
    match is_certain {
        true => contradiction(text, &core, report),
        false => malformed(&core, report),
    }
    true
}

fn demands<'a>(asked: &[Asked<'a>]) -> Vec<Demand<'a>> {
    asked.iter().map(|one| one.demand).collect()
}

/// What no packet is, well formed or not.
fn contradiction(text: &str, core: &[Asked<'_>], report: &mut Report) {
    let Some((last, others)) = core.split_last() else {
        return;
    };
    // One word of the text may have become two tests: `tcp-syn > 1`.
    let is_one = others.iter().all(|other| other.span == last.span);
    let said = if is_one {
        alone(last)
    } else if let Some(field) = same_field(core) {
        of_one_field(text, field, core)
    } else {
        together(core)
    };
    let (at, others): (usize, Vec<usize>) = match said.at {
        Some(at) => (at, (0..core.len()).filter(|&n| n != at).collect()),
        None => (core.len() - 1, (0..core.len() - 1).collect()),
    };
    let draft = report.error(0, core[at].span, said.message);
    draft.label(said.label);
    for other in others {
        if core[other].span != core[at].span {
            draft.also(0, core[other].span, said.other.clone());
        }
    }
    draft.help(said.help);
}

/// A message about a contradiction.
#[derive(Default)]
struct Said {
    message: String,
    label: String,
    /// At the other places.
    other: String,
    help: String,
    /// Which of them is to blame; the last unless given.
    at: Option<usize>,
}

fn alone(one: &Asked<'_>) -> Said {
    let Some(field) = one.field() else {
        return Said::default();
    };
    let info = field.info();
    let name = info.name;
    if matches!(
        name,
        "queue" | "mark" | "priority" | "hour" | "day" | "eth-type" | "eth-saddr" | "eth-daddr"
    ) && one.model().is_some_and(|m| m.test == Test::Present)
    {
        return Said {
            message: format!("every packet has `{name}`, so this rule never matches"),
            help: "remove the rule".to_owned(),
            ..Said::default()
        };
    }
    let range = match (Domain::of(field), info.kind, info.bits) {
        (_, Kind::Is(_), _) => "0 or 1".to_owned(),
        (Some(domain), ..) => format!("from 0 to {}", number(field, domain.max())),
        (None, _, bits @ 1..128) => format!("from 0 to {}", (1u128 << bits) - 1),
        _ => "any value".to_owned(),
    };
    Said {
        message: "this can never be true, so the rule never matches".to_owned(),
        label: format!("`{name}` is {range}"),
        help: "write a value that is left, or remove the rule".to_owned(),
        ..Said::default()
    }
}

/// The field of all, if it is one.
fn same_field(core: &[Asked<'_>]) -> Option<Field> {
    let subject = core.first()?.model()?.subject;
    core.iter()
        .all(|one| one.model().is_some_and(|m| m.subject == subject))
        .then_some(subject.field)
}

fn of_one_field(text: &str, field: Field, core: &[Asked<'_>]) -> Said {
    let name = field.info().name;
    let models = || core.iter().filter_map(Asked::model);
    if models().any(|one| one.test == Test::Present) {
        return Said {
            message: format!(
                "`{name}` is to be there and not to be there, so this rule never matches"
            ),
            other: "this contradicts it".to_owned(),
            help: "remove one of the two".to_owned(),
            ..Said::default()
        };
    }
    if models().any(|one| one.negated) {
        return Said {
            message: format!("these tests of `{name}` leave no value, so this rule never matches"),
            label: "this excludes what the other tests allow".to_owned(),
            other: "all of this is excluded".to_owned(),
            help: "remove one of them, or write one rule for each".to_owned(),
            at: core
                .iter()
                .rposition(|one| one.model().is_some_and(|m| m.negated)),
        };
    }
    let (message, what) = match field.info().kind {
        Kind::InPort => (
            "a packet comes in by one interface, so this rule never matches".to_owned(),
            "interfaces",
        ),
        Kind::OutPort => (
            "a packet leaves by one interface, so this rule never matches".to_owned(),
            "interfaces",
        ),
        Kind::Payload | Kind::TcpOption(_)
            if models().any(|m| matches!(m.test, Test::Bytes(_))) =>
        {
            (
                format!(
                    "these bytes of `{name}` contradict each other, so this rule never matches"
                ),
                "",
            )
        }
        _ => (
            format!("no value of `{name}` passes both tests, so this rule never matches"),
            "values",
        ),
    };
    let help = match union(text, field, core) {
        Some(union) if what == "interfaces" => format!(
            "all tests of a rule must hold; for any of these interfaces write `{name} {{ {union} }}`"
        ),
        Some(union) if !what.is_empty() => {
            format!(
                "all tests of a rule must hold; for any of these {what} write `{name} in {{ {union} }}`"
            )
        }
        _ => "all tests of a rule must hold: write one rule for each".to_owned(),
    };
    Said {
        message,
        other: "and this test must hold, too".to_owned(),
        help,
        ..Said::default()
    }
}

/// The elements of a set that holds what any of the tests allows: in the user's words where they are values.
fn union(text: &str, field: Field, core: &[Asked<'_>]) -> Option<String> {
    const MOST: usize = 8;
    let mut words: Vec<&str> = Vec::new();
    let mut plain = true;
    for one in core {
        match &one.written?.test {
            ast::Test::Compare(Cond::Eq, span) => words.push(span.of(text)),
            ast::Test::List(spans) => words.extend(spans.iter().map(|span| span.of(text))),
            _ => plain = false,
        }
    }
    if plain && words.len() <= MOST {
        return Some(words.join(", "));
    }
    let mut intervals = Vec::new();
    for one in core {
        let Test::In(set) = &one.model()?.test else {
            return None;
        };
        intervals.extend_from_slice(set.intervals());
    }
    let all = Ranges::new(intervals);
    if all.intervals().len() > MOST {
        return None;
    }
    let write = |&(lo, hi): &(u128, u128)| match lo == hi {
        true => number(field, lo),
        false => format!("{}-{}", number(field, lo), number(field, hi)),
    };
    Some(
        all.intervals()
            .iter()
            .map(write)
            .collect::<Vec<_>>()
            .join(", "),
    )
}

/// A value as it is written.
fn number(field: Field, value: u128) -> String {
    match field.info().kind {
        Kind::Addr4 => Ipv4Addr::from(value as u32).to_string(),
        Kind::Addr6 => Ipv6Addr::from(value).to_string(),
        Kind::Mac => mac_text(value),
        _ => value.to_string(),
    }
}

/// Fields whose values say which header follows.
const PROTOCOLS: &[&str] = &["ip-proto", "ip6-next", "l4-proto", "eth-type", "net-proto"];

/// Tests of several fields.
fn together(core: &[Asked<'_>]) -> Said {
    let position = |wanted: &dyn Fn(&Asked<'_>) -> bool| core.iter().position(wanted);
    let header = || core.iter().find_map(Asked::header);
    if let Some(at) = position(&|one| one.is_negated_presence()) {
        let name = core[at].field().map_or("FIELD", |field| field.info().name);
        let header = core[at].field().and_then(|field| {
            let of = |one: &Asked<'_>| one.field().map(|f| f.info().header);
            core.iter()
                .find(|one| of(one) == Some(field.info().header) && !one.is_negated_presence())
                .and_then(Asked::header)
        });
        let (message, other) = match header {
            Some(header) => (
                format!(
                    "`! {name}` without a value is for packets without {header}, so this rule never matches"
                ),
                format!("this is {header}"),
            ),
            None => (
                format!(
                    "`! {name}` without a value is for packets that have no such field, so this rule never matches"
                ),
                "these packets have it".to_owned(),
            ),
        };
        return Said {
            message,
            other,
            help: format!(
                "to exclude a value write it, as in `! {name} VALUE`; or remove this test"
            ),
            at: Some(at),
            ..Said::default()
        };
    }
    if let (Some(at), Some(header)) = (position(&|one| one.is_named(&["frag-later"])), header())
        && ["TCP", "UDP", "ICMP", "ICMPv6"].contains(&header)
    {
        return Said {
            message: format!("a later fragment has no {header} header, so this rule never matches"),
            label: "only these fragments".to_owned(),
            other: format!("this is {header}"),
            help: "only the first fragment has ports: match later ones by addresses and `ip-proto`"
                .to_owned(),
            at: Some(at),
        };
    }
    if let Some(at) = position(&|one| one.is_named(PROTOCOLS)) {
        // The next protocol of an IP header says nothing of the header itself.
        let is_told = |header: &&str| {
            !core[at].is_named(&["ip-proto", "ip6-next", "l4-proto"]) || !header.starts_with("IPv")
        };
        let others = core.iter().enumerate().filter(|&(n, _)| n != at);
        let header = others.filter_map(|(_, one)| one.header()).find(is_told);
        return match header {
            Some(header) => Said {
                message: format!("this rule never matches: its other fields are those of {header}"),
                label: format!("this excludes {header}"),
                other: format!("this is {header}"),
                help: "remove this match: a rule covers the protocol of the fields it names"
                    .to_owned(),
                at: Some(at),
            },
            None => Said {
                message: "no packet has these protocols and headers, so this rule never matches"
                    .to_owned(),
                other: "this contradicts it".to_owned(),
                help: "remove one of them, or write one rule for each".to_owned(),
                ..Said::default()
            },
        };
    }
    let fragments = [
        "frag",
        "frag-first",
        "frag-later",
        "ip-frag-offset",
        "ip-mf",
        "ip-flags",
        "ip6-frag-offset",
        "ip6-mf",
        "ip6-eh-fragment",
    ];
    let help = if core.iter().all(|one| one.is_named(&fragments)) {
        "a packet is whole, a first fragment (offset 0, more to come) or a later one (offset above 0)"
    } else if core
        .iter()
        .filter_map(Asked::field)
        .any(|field| super::solve::group(field) != own_group(field))
    {
        "these fields share bits: remove one of the tests"
    } else {
        "all tests of a rule must hold: remove one of them, or write one rule for each"
    };
    Said {
        message: "no packet passes all of these tests, so this rule never matches".to_owned(),
        other: "this contradicts it".to_owned(),
        help: help.to_owned(),
        ..Said::default()
    }
}

fn own_group(field: Field) -> (Header, u16, u16) {
    let info = field.info();
    (info.header, info.offset, info.bits)
}

/// What parsing drops, so that rules never see it.
fn malformed(core: &[Asked<'_>], report: &mut Report) {
    let Some((last, others)) = core.split_last() else {
        return;
    };
    let single = match (last.field(), others) {
        (Some(field), []) => Some(field.info().name),
        _ => None,
    };
    if single == Some("eth-type") {
        report
            .warning(
                0,
                last.span,
                "`eth-type` lies behind VLAN tags, so this rule never matches",
            )
            .label("this is the EtherType of a VLAN tag")
            .help("for tagged frames write `vlan`, or `vlan-id N`");
        return;
    }
    let reason = match single {
        Some("ip-ttl" | "ip6-hop-limit") => "ttl_zero",
        Some("ip-ver") => "ip4_bad_version",
        Some("ip6-ver") => "ip6_bad_version",
        Some("ip-ihl") => "ip4_bad_ihl",
        Some("ip-len") => "ip4_bad_len",
        Some("tcp-offset") => "tcp_bad_offset",
        Some("udp-len") => "udp_bad_len",
        _ => "",
    };
    let message = match others.is_empty() {
        true => "no packet that reaches a rule has this value, so this rule never matches",
        false => "no well-formed packet is like this, so this rule never matches",
    };
    let draft = report.warning(0, last.span, message);
    for other in others {
        draft.also(0, other.span, "and like this");
    }
    draft.help(match reason {
        "" => "malformed packets are dropped before rules see them, each with its reason: remove the rule".to_owned(),
        reason => format!("such packets are dropped before rules see them, and counted as `{reason}`: remove the rule"),
    });
}
