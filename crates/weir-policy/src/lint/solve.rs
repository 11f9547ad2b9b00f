//! Is there a packet that meets all of some demands?
//!
//! The procedure goes through all shapes of packets. In one shape every field has its values, and the tests of one field, or of fields that share
//! bits, are decided exactly. Between fields only what docs/semantics.md section 1 states is known: lengths, options, extension headers.
//! Invariant: the answer "none" is right for the reference semantics; "some" may be too generous.

use std::sync::Arc;

use super::headers::{Extensions, HeaderOptions, TcpOptions};
use super::shape::{Least, Part, SHAPES, Shape, first_in, points};
use crate::field::{Field, Header, Kind};
use crate::model::{Classes, Match, PortName, Ranges, Subject, Test};

/// Something that a packet is to meet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Demand<'a> {
    /// It has these header classes.
    Has(Classes),
    /// The match holds.
    Holds(&'a Match),
    /// The match does not hold.
    Fails(&'a Match),
}

/// What is known about packets beside the demands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Packets that parsing drops reach no rule.
    pub(super) strict: bool,
    /// Nor do those with TCP flags that no stack sends together: the policy has stateful rules.
    pub(super) stateful: bool,
}

impl Known {
    /// Every packet, well formed or not.
    pub(super) const ANY: Known = Known {
        strict: false,
        stateful: false,
    };
    /// Packets that reach rules.
    pub(super) const PARSED: Known = Known {
        strict: true,
        stateful: false,
    };
}

/// Whether some packet meets all demands. `false` is certain.
pub(super) fn satisfiable(demands: &[Demand<'_>], known: Known) -> bool {
    SHAPES.iter().any(|shape| fits(shape, demands, known))
}

/// Whether every packet that meets the demands has these classes. `true` is certain.
pub(super) fn always_has(demands: &[Demand<'_>], classes: Classes, known: Known) -> bool {
    SHAPES
        .iter()
        .filter(|shape| !shape.classes.contains(classes))
        .all(|shape| !fits(shape, demands, known))
}

/// A test with its negation resolved.
#[derive(Clone, Copy)]
struct Literal<'a> {
    subject: Subject,
    test: &'a Test,
    negated: bool,
}

fn fits(shape: &Shape, demands: &[Demand<'_>], known: Known) -> bool {
    let mut literals: Vec<Literal<'_>> = Vec::with_capacity(demands.len());
    let (mut with_state, mut without_state) = (false, false);
    for demand in demands {
        let (one, negated) = match *demand {
            Demand::Has(classes) => {
                if !shape.classes.contains(classes) {
                    return false;
                }
                continue;
            }
            Demand::Holds(one) => (one, one.negated),
            Demand::Fails(one) => match fails(shape, one) {
                Failing::Always => continue,
                Failing::Never => return false,
                Failing::If(negated) => (one, negated),
            },
        };
        let literal = Literal {
            subject: one.subject,
            test: &one.test,
            negated,
        };
        if one.subject.field.info().kind == Kind::CtState {
            // A value test holds of packets with a state only, negated or not.
            let has_state = literal.test != &Test::Present || !negated;
            with_state |= has_state;
            without_state |= !has_state;
        }
        match at_once(shape, literal) {
            Some(true) => {}
            Some(false) => return false,
            None => literals.push(literal),
        }
    }
    let Some((least, extensions)) = headers(shape, &literals, known.strict) else {
        return false;
    };
    let around = Around {
        shape,
        least,
        extensions,
        known,
    };
    !(with_state && without_state) && ports_agree(&literals) && around.numbers_agree(&literals)
}

/// What it takes for a match not to hold.
enum Failing {
    /// Nothing: it may always fail, as far as is known here.
    Always,
    Never,
    /// The test, negated so, holds.
    If(bool),
}

fn fails(shape: &Shape, one: &Match) -> Failing {
    let info = one.subject.field.info();
    if one.test == Test::Always {
        return Failing::Never;
    }
    let is_absent = !shape.has(info.header)
        || matches!(info.kind, Kind::NetProto | Kind::L4Proto | Kind::CtState)
            && !shape.exists(one.subject.field);
    match (&one.test, info.kind) {
        (
            Test::Present,
            Kind::Is(_) | Kind::TcpOption(_) | Kind::Ip4Option(_) | Kind::ExtHeader(_),
        ) if is_absent => Failing::Always,
        (Test::Present, _) => Failing::If(!one.negated),
        _ if is_absent => Failing::Always,
        // The option may be missing, too, or have another length; the interface may be unknown.
        (_, Kind::TcpOption(_) | Kind::InPort | Kind::OutPort | Kind::CtState) => Failing::Always,
        _ => Failing::If(!one.negated),
    }
}

/// What the shape alone says of a literal; `None`: more must be looked at.
fn at_once(shape: &Shape, literal: Literal<'_>) -> Option<bool> {
    let info = literal.subject.field.info();
    match (literal.test, info.kind) {
        (Test::Always, _) => Some(true),
        // Policies without stateful rules know no states.
        (Test::Present, Kind::CtState) => {
            Some(literal.negated || shape.exists(literal.subject.field))
        }
        (
            Test::Present,
            Kind::Exists
            | Kind::Number
            | Kind::Addr4
            | Kind::Addr6
            | Kind::Mac
            | Kind::Payload
            | Kind::NetProto
            | Kind::L4Proto,
        ) => Some(shape.exists(literal.subject.field) != literal.negated),
        (Test::In(_), Kind::NetProto | Kind::L4Proto | Kind::CtState)
            if !shape.exists(literal.subject.field) =>
        {
            Some(false)
        }
        _ if !shape.has(info.header) => Some(false),
        _ => None,
    }
}

/// Options, extension headers and payloads; the fewest bytes that they take, `None` if they contradict each other.
fn headers(shape: &Shape, literals: &[Literal<'_>], strict: bool) -> Option<(Least, Extensions)> {
    let mut tcp = TcpOptions::default();
    let mut ip4 = HeaderOptions::default();
    let mut extensions = Extensions::of(shape);
    let mut has_payload = false;
    for literal in literals {
        let kind = literal.subject.option;
        match (literal.subject.field.info().kind, literal.test) {
            (Kind::TcpOption(_), Test::Present) => tcp.present(kind, literal.negated),
            (Kind::TcpOption(_), Test::In(set)) => tcp.number(kind?, set, literal.negated),
            (Kind::TcpOption(_), Test::Bytes(bytes)) => tcp.bytes(kind?, bytes, literal.negated),
            (Kind::Ip4Option(_), _) => ip4.present(kind, literal.negated),
            (Kind::ExtHeader(number), _) => extensions.present(kind.or(number), literal.negated),
            (Kind::Payload, _) => has_payload = true,
            _ => {}
        }
    }
    let mut least = Least {
        tcp_options: tcp.least()?,
        ip4_options: ip4.least()?,
        extensions: extensions.least(strict)?,
        ..Least::default()
    };
    if strict && (least.tcp_options > 40 || least.ip4_options > 40) {
        return None;
    }
    if has_payload {
        payloads(shape, literals, &mut least)?;
    }
    Some((least, extensions))
}

/// Bytes of payloads: what two tests say of one byte must agree.
fn payloads(shape: &Shape, literals: &[Literal<'_>], least: &mut Least) -> Option<()> {
    /// As far as data planes look.
    const REACH: u128 = 65_535;
    let tests = |field: Field, negated: bool| {
        literals
            .iter()
            .filter_map(move |literal| match literal.test {
                Test::Bytes(bytes)
                    if literal.subject.field == field && literal.negated == negated =>
                {
                    Some((usize::from(literal.subject.at), bytes))
                }
                _ => None,
            })
    };
    let mut done: Vec<Field> = Vec::new();
    for literal in literals {
        let field = literal.subject.field;
        if field.info().kind != Kind::Payload || done.contains(&field) {
            continue;
        }
        done.push(field);
        let mut known = std::collections::BTreeMap::new();
        for (at, bytes) in tests(field, false) {
            for (place, &byte) in (at..).zip(bytes) {
                if *known.entry(place).or_insert(byte) != byte {
                    return None;
                }
            }
            let header = field.info().header;
            if shape.in_front(header, &Least::default()) + at as u128 > REACH {
                return None;
            }
            let need = (at + bytes.len()) as u128;
            let of = match header {
                Header::Ip4 | Header::Ip6 => &mut least.ip_payload,
                _ => &mut least.l4_payload,
            };
            *of = (*of).max(need);
        }
        // Other bytes, or a payload that ends before: only what is known to be there contradicts.
        for (at, bytes) in tests(field, true) {
            if (at..)
                .zip(bytes)
                .all(|(place, byte)| known.get(&place) == Some(byte))
            {
                return None;
            }
        }
    }
    Some(())
}

/// One interface must be in all lists. A name and an index may be the same one.
fn ports_agree(literals: &[Literal<'_>]) -> bool {
    let lists = |field: Field, negated: bool| {
        literals
            .iter()
            .filter_map(move |literal| match literal.test {
                Test::Port(names)
                    if literal.subject.field == field && literal.negated == negated =>
                {
                    Some(names)
                }
                _ => None,
            })
    };
    let is_name = |port: &PortName| matches!(port, PortName::Name(_));
    literals.iter().all(|literal| {
        let field = literal.subject.field;
        let Some(first) = lists(field, false).next() else {
            return true;
        };
        if !matches!(literal.test, Test::Port(_)) {
            return true;
        }
        first.iter().any(|port| {
            let may_be = |names: &Vec<PortName>| {
                names.contains(port) || names.iter().any(|other| is_name(other) != is_name(port))
            };
            lists(field, false).all(may_be) && !lists(field, true).any(|names| names.contains(port))
        })
    })
}

/// Fields of at most 8 bits in one group share bits with each other; every other field is a group by itself.
const SHARED: &[(Header, u16, u16)] = &[
    (Header::Tcp, 104, 8),
    (Header::Ip4, 48, 3),
    (Header::Ip4, 14, 2),
    (Header::Ip6, 4, 8),
];

/// The group of a field: header, first bit, width.
pub(super) fn group(field: Field) -> (Header, u16, u16) {
    let info = field.info();
    let shared = SHARED.iter().find(|&&(header, first, width)| {
        header == info.header && (first..first + width).contains(&info.offset) && info.bits > 0
    });
    shared
        .copied()
        .unwrap_or((info.header, info.offset, info.bits))
}

fn is_number(literal: &Literal<'_>) -> bool {
    let kind = literal.subject.field.info().kind;
    match literal.test {
        Test::In(_) => !matches!(kind, Kind::TcpOption(_)),
        Test::Present => matches!(kind, Kind::Is(_)),
        _ => false,
    }
}

/// What is known of a packet besides the tests of one field.
struct Around<'s> {
    shape: &'s Shape,
    least: Least,
    extensions: Extensions,
    known: Known,
}

impl Around<'_> {
    fn numbers_agree(&self, literals: &[Literal<'_>]) -> bool {
        let numbers = || literals.iter().filter(|literal| is_number(literal));
        numbers().enumerate().all(|(n, literal)| {
            let field = literal.subject.field;
            let of = group(field);
            // `queue` and `net-proto` are no bits of a header.
            let is_same = |other: &&Literal<'_>| {
                let other = other.subject.field;
                match field.info().header {
                    Header::Meta => other == field,
                    _ => group(other) == of,
                }
            };
            if numbers().take(n).any(|other| is_same(&other)) {
                return true;
            }
            let same: Vec<&Literal<'_>> = numbers().filter(is_same).collect();
            let is_plain = same.iter().all(|l| l.subject.field == field)
                && !matches!(field.info().kind, Kind::Is(_))
                && !SHARED.contains(&of);
            match is_plain {
                true => self.has_value(field, &same),
                false => self.has_bits(of, &same),
            }
        })
    }

    /// Whether a field has a value for which all tests hold.
    fn has_value(&self, field: Field, tests: &[&Literal<'_>]) -> bool {
        let mut values = self.shape.values(field, &self.least, self.known.strict);
        if field.info().name == "ip6-next" {
            let (numbers, negated) = self.extensions.next(self.shape);
            values.set = Some((points(numbers), negated));
        }
        let of_tests = tests.iter().filter_map(|literal| match literal.test {
            Test::In(set) => Some((set.as_ref(), literal.negated)),
            _ => None,
        });
        let own = values.set.iter().map(|(set, negated)| (set, *negated));
        let sets: Vec<(&Ranges, bool)> = own.chain(of_tests).collect();
        first_in(values.lo, values.hi, &sets).is_some()
    }

    /// Whether the bits of a group have a value for which all tests of its fields hold.
    fn has_bits(&self, (header, first, width): (Header, u16, u16), tests: &[&Literal<'_>]) -> bool {
        let part = |all: u32, field: Field| {
            let info = field.info();
            let behind = u32::from(first + width - info.offset - info.bits);
            all >> behind & ((1 << info.bits) - 1)
        };
        let is_possible = |all: u32| match (header, first) {
            // More fragments: of the only or last one none, of the first some.
            (Header::Ip4, 48) | (Header::Ip6Frag, 31) => match self.shape.part {
                Part::Whole => all & 1 == 0,
                Part::First => all & 1 == 1,
                Part::Later => true,
            },
            (Header::Tcp, 104) if self.known.stateful => crate::reference::is_sent(all as u8),
            _ => true,
        };
        let holds = |all: u32, literal: &Literal<'_>| {
            let value = part(all, literal.subject.field);
            let holds = match (literal.test, literal.subject.field.info().kind) {
                (Test::Present, Kind::Is(own)) => value == own,
                (Test::In(set), _) => set.contains(u128::from(value)),
                _ => true,
            };
            holds != literal.negated
        };
        (0..1u32 << width)
            .filter(|&all| is_possible(all))
            .any(|all| tests.iter().all(|literal| holds(all, literal)))
    }
}

/// A match made for a question.
pub(super) fn made(name: &str, negated: bool, test: Test) -> Option<Match> {
    let field = Field::find(name)?;
    Some(Match {
        negated,
        subject: Subject {
            field,
            option: None,
            at: 0,
        },
        test,
    })
}

/// `NAME in { ... }`, made for a question.
pub(super) fn among(name: &str, numbers: impl IntoIterator<Item = u128>) -> Option<Match> {
    made(name, false, Test::In(Arc::new(points(numbers))))
}
