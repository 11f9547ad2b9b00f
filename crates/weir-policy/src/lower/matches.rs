//! Lowering of matches: every spelling of a test becomes one of the few tests of `model`.

use std::sync::Arc;

use super::{Lower, Required, classes_of};
use crate::ast::{self, Cond, Span};
use crate::field::{Field, FieldInfo, Header, Kind};
use crate::model::{Classes, Match, PortName, Ranges, Subject, Test};
use crate::names::has_flags;
use crate::sets::port;
use crate::value::{self, Domain, Form, Interval, Problem};

/// Longest value of a TCP option that is compared as a number, in bits.
const OPTION_BITS: u16 = 64;

impl Lower<'_> {
    /// Appends what a match means. `count` is the number of matches in its rule.
    pub(super) fn lower_match(
        &mut self,
        m: &ast::Match,
        count: usize,
        out: &mut Vec<Match>,
        required: &mut Required,
    ) {
        let Some(subject) = self.subject(&m.field) else {
            return;
        };
        let present = matches!(m.test, ast::Test::Present);
        let kind = subject.field.info().kind;
        // The presence of such a field is that of its header: without the header, `! FIELD` holds.
        let header_only = matches!(
            kind,
            Kind::Number | Kind::Addr4 | Kind::Addr6 | Kind::Payload | Kind::Exists
        );
        if !(present && m.negated && header_only) {
            required.add(classes_of(subject.field), m.span);
        }
        if let Some(membership) = self.membership(m, subject) {
            out.extend(membership);
            return;
        }
        let lowered = match kind {
            Kind::All => self.all(m, subject, count),
            Kind::InPort | Kind::OutPort => self.ports(m, subject),
            Kind::Exists | Kind::ExtHeader(_) | Kind::Ip4Option(_) => {
                self.presence_only(m, subject)
            }
            Kind::Is(value) => {
                self.one_bit(m, subject, value, out);
                return;
            }
            Kind::NetProto => self.family(m, subject, required),
            Kind::Number if self.masked_flags(m, subject.field, out) => return,
            Kind::Number if self.has_mask(m, subject.field) => self.masked(m, subject),
            Kind::Number
            | Kind::Addr4
            | Kind::Addr6
            | Kind::Mac
            | Kind::L4Proto
            | Kind::CtState => self.number(m, subject),
            Kind::Payload => self.payload(m, subject),
            Kind::TcpOption(_) => self.tcp_option(m, subject),
        };
        out.extend(lowered);
    }

    fn all(&mut self, m: &ast::Match, subject: Subject, count: usize) -> Option<Match> {
        if m.negated {
            self.report
                .error(0, m.span, "`! all` would match no packet")
                .help("remove this rule");
            return None;
        }
        if !matches!(m.test, ast::Test::Present) {
            self.report.error(0, m.span, "`all` takes no value");
            return None;
        }
        if count > 1 {
            self.report
                .error(0, m.span, "`all` stands alone")
                .help("remove it: the other matches say which packets are meant");
            return None;
        }
        Some(Match {
            negated: false,
            subject,
            test: Test::Always,
        })
    }

    fn ports(&mut self, m: &ast::Match, subject: Subject) -> Option<Match> {
        let name = subject.field.info().name;
        let mut negated = m.negated;
        let words: &[Span] = match &m.test {
            ast::Test::Present => {
                self.report
                    .error(0, m.span, format!("`{name}` needs an interface"))
                    .help(format!(
                        "write `{name} eth0`, `{name} 3` or `{name} {{ eth0, eth1 }}`"
                    ));
                return None;
            }
            ast::Test::Compare(Cond::Eq, span) => std::slice::from_ref(span),
            ast::Test::Compare(Cond::Ne, span) => {
                negated = !negated;
                std::slice::from_ref(span)
            }
            ast::Test::Compare(cond, span) => {
                self.report
                    .error(
                        0,
                        *span,
                        format!(
                            "interfaces have no order: `{}` makes no sense here",
                            cond.text()
                        ),
                    )
                    .help("use `==`, `!=` or a set");
                return None;
            }
            ast::Test::List(spans) => spans,
            ast::Test::Set(set) => {
                let ports = self.sets.ports(*set, self.loader, self.report)?;
                return Some(Match {
                    negated,
                    subject,
                    test: Test::Port(ports),
                });
            }
        };
        let mut ports: Vec<PortName> = Vec::with_capacity(words.len());
        let mut ok = true;
        for &span in words {
            match port(self.of(span)) {
                Ok(port) if ports.contains(&port) => {}
                Ok(port) => ports.push(port),
                Err(problem) => {
                    ok = false;
                    self.problem(span, problem);
                }
            }
        }
        ok.then_some(Match {
            negated,
            subject,
            test: Test::Port(ports),
        })
    }

    fn presence_only(&mut self, m: &ast::Match, subject: Subject) -> Option<Match> {
        if let Some(span) = value_span(&m.test) {
            let name = subject.field.info().name;
            let help = presence_help(name, value_span(&m.test).map(|span| self.of(span)));
            self.report
                .error(0, span, format!("`{name}` takes no value"))
                .help(help);
            return None;
        }
        Some(Match {
            negated: m.negated,
            subject,
            test: Test::Present,
        })
    }

    /// Flags compare with 0 and 1; all that can mean is set, not set, any, or never.
    fn one_bit(&mut self, m: &ast::Match, subject: Subject, value: u32, out: &mut Vec<Match>) {
        let present = |negated| Match {
            negated,
            subject,
            test: Test::Present,
        };
        let Some(span) = value_span(&m.test) else {
            out.push(present(m.negated));
            return;
        };
        let info = subject.field.info();
        if info.bits != 1 {
            let number = if info.name.starts_with("ip-") {
                "ip-ecn"
            } else {
                info.name
            };
            self.report
                .error(0, span, format!("`{}` takes no value", info.name))
                .help(format!(
                    "it means `{number} == {value}`; to test for another value use `{number}`"
                ));
            return;
        }
        let Some((ranges, inverted)) = self.values(m, subject.field, Domain::Number(1, &[])) else {
            return;
        };
        let negated = m.negated != inverted;
        match (ranges.contains(0) != negated, ranges.contains(1) != negated) {
            (true, false) => out.push(present(true)),
            (false, true) => out.push(present(false)),
            // Every packet with the header: the required class says so.
            (true, true) => {}
            (false, false) => out.extend([present(true), present(false)]),
        }
    }

    fn family(
        &mut self,
        m: &ast::Match,
        subject: Subject,
        required: &mut Required,
    ) -> Option<Match> {
        if matches!(m.test, ast::Test::Present) {
            return Some(Match {
                negated: m.negated,
                subject,
                test: Test::Present,
            });
        }
        if let ast::Test::Compare(cond, span) = m.test
            && !matches!(cond, Cond::Eq | Cond::Ne)
        {
            self.report
                .error(
                    0,
                    span,
                    format!(
                        "IP versions have no order: `{}` makes no sense here",
                        cond.text()
                    ),
                )
                .help("use `==` or `!=`");
            return None;
        }
        let (ranges, inverted) = self.values(m, subject.field, Domain::of(subject.field)?)?;
        let (four, six) = (ranges.contains(4), ranges.contains(6));
        if ranges.intervals().iter().any(|&(lo, hi)| lo < 4 || hi > 6) || (!four && !six) {
            let span = value_span(&m.test).unwrap_or(m.span);
            self.report.error(0, span, "`net-proto` is `ip4` or `ip6`");
            return None;
        }
        let negated = m.negated != inverted;
        match (four, six) {
            (true, false) if !negated => required.add(Classes::IP4, m.span),
            (false, true) if !negated => required.add(Classes::IP6, m.span),
            _ => {}
        }
        Some(Match {
            negated,
            subject,
            test: Test::In(ranges),
        })
    }

    fn number(&mut self, m: &ast::Match, subject: Subject) -> Option<Match> {
        if matches!(m.test, ast::Test::Present) {
            return Some(Match {
                negated: m.negated,
                subject,
                test: Test::Present,
            });
        }
        let domain = Domain::of(subject.field)?;
        let (ranges, inverted) = self.values(m, subject.field, domain)?;
        let negated = m.negated != inverted;
        self.warn_if_constant(m.span, subject.field, &ranges, domain.max(), negated);
        Some(Match {
            negated,
            subject,
            test: Test::In(ranges),
        })
    }

    /// `tcp-flags syn/syn,ack` is a test of each flag of the mask, which the classifier finds by its key.
    fn masked_flags(&mut self, m: &ast::Match, field: Field, out: &mut Vec<Match>) -> bool {
        let ast::Test::Compare(cond @ (Cond::Eq | Cond::Ne), span) = m.test else {
            return false;
        };
        if !has_flags(field) || m.negated != (cond == Cond::Ne) {
            return false;
        }
        let found = Domain::of(field).and_then(|d| value::interval(self.of(span), d).ok());
        let Some(Interval {
            lo,
            form: Form::Mask(mask @ 1..),
            ..
        }) = found
        else {
            return false;
        };
        let bit_of = |flag: &Field| match flag.info() {
            FieldInfo {
                header: Header::Tcp,
                kind: Kind::Is(1),
                ..
            } => Some(1u8 << (field.info().offset + 7).saturating_sub(flag.info().offset)),
            _ => None,
        };
        for flag in Field::all() {
            let Some(bit) = bit_of(&flag).filter(|bit| mask & bit != 0) else {
                continue;
            };
            out.push(Match {
                negated: lo & u128::from(bit) == 0,
                subject: Subject {
                    field: flag,
                    option: None,
                    at: 0,
                },
                test: Test::Present,
            });
        }
        true
    }

    /// `mark x10/xff`.
    fn has_mask(&self, m: &ast::Match, field: Field) -> bool {
        let of_masks = |span: &Span| self.of(*span).contains('/');
        field.info().header == Header::Skb
            && match &m.test {
                ast::Test::Compare(_, span) => of_masks(span),
                ast::Test::List(spans) => spans.iter().any(of_masks),
                ast::Test::Present | ast::Test::Set(_) => false,
            }
    }

    fn masked(&mut self, m: &ast::Match, subject: Subject) -> Option<Match> {
        let name = subject.field.info().name;
        let (span, inverted) = match &m.test {
            ast::Test::Compare(Cond::Eq, span) if name == "mark" => (*span, false),
            ast::Test::Compare(Cond::Ne, span) if name == "mark" => (*span, true),
            other => {
                let span = value_span(other).unwrap_or(m.span);
                let draft = self
                    .report
                    .error(0, span, format!("`{name}` takes no mask here"));
                draft.help(match (name, other) {
                    ("mark", ast::Test::List(_)) => {
                        "a mask goes with one value: write a rule for each, `mark x10/xff`"
                    }
                    ("mark", _) => "a mask goes with `==` and `!=`: `mark x10/xff`",
                    _ => "a priority is tested as a whole: `priority 1:10`",
                });
                return None;
            }
        };
        let negated = m.negated != inverted;
        match value::masked_number(self.of(span))? {
            Ok((_, 0)) => {
                self.report
                    .error(0, span, "a mask of no bits says nothing of the mark")
                    .help("write the bits that are meant behind the `/`: `mark x10/xff`");
                None
            }
            Ok((value, mask)) => Some(Match {
                negated,
                subject,
                test: Test::Masked { value, mask },
            }),
            Err(problem) => {
                self.value_problem(span, subject.field, problem);
                None
            }
        }
    }

    fn payload(&mut self, m: &ast::Match, subject: Subject) -> Option<Match> {
        let name = subject.field.info().name;
        let (cond, span) = match &m.test {
            ast::Test::Present => {
                if let Some(arg) = m.field.arg {
                    self.report
                        .error(0, arg, "an offset needs bytes to compare")
                        .help(format!("write `{name}[{}] == x0102`", subject.at));
                    return None;
                }
                return Some(Match {
                    negated: m.negated,
                    subject,
                    test: Test::Present,
                });
            }
            ast::Test::Compare(cond @ (Cond::Eq | Cond::Ne), span) => (*cond, *span),
            other => {
                let span = value_span(other).unwrap_or(m.span);
                self.report
                    .error(
                        0,
                        span,
                        format!("`{name}` is bytes: it takes `==` and `!=` with one value"),
                    )
                    .help(format!("write `{name}[0] == x0102`"));
                return None;
            }
        };
        match value::bytes(self.of(span)) {
            Ok(bytes) => Some(Match {
                negated: m.negated != (cond == Cond::Ne),
                subject,
                test: Test::Bytes(bytes),
            }),
            Err(problem) => {
                self.problem(span, problem);
                None
            }
        }
    }

    fn tcp_option(&mut self, m: &ast::Match, subject: Subject) -> Option<Match> {
        let Some(value) = value_span(&m.test) else {
            return Some(Match {
                negated: m.negated,
                subject,
                test: Test::Present,
            });
        };
        let name = subject.field.info().name;
        let Some(kind) = subject.option else {
            self.report
                .error(
                    0,
                    value,
                    "which option? `tcp-opt` without a kind stands for any",
                )
                .help("write the kind behind it: `tcp-opt 30 == x01`");
            return None;
        };
        let bits = match kind {
            2 => 16,
            3 => 8,
            8 => 64,
            4 => {
                self.report
                    .error(0, value, "the option SACK permitted (kind 4) has no value")
                    .help(format!("it is there or not: write `{name}` or `! {name}`"));
                return None;
            }
            _ => {
                if let ast::Test::Compare(cond @ (Cond::Eq | Cond::Ne), span) = m.test
                    && value::is_hex(self.of(span))
                    && !self.of(span).contains('-')
                {
                    return match value::bytes(self.of(span)) {
                        Ok(bytes) => Some(Match {
                            negated: m.negated != (cond == Cond::Ne),
                            subject,
                            test: Test::Bytes(bytes),
                        }),
                        Err(problem) => {
                            self.problem(span, problem);
                            None
                        }
                    };
                }
                OPTION_BITS
            }
        };
        let domain = Domain::Number(bits, &[]);
        let (ranges, inverted) = self.values(m, subject.field, domain)?;
        let negated = m.negated != inverted;
        self.warn_if_constant(m.span, subject.field, &ranges, domain.max(), negated);
        Some(Match {
            negated,
            subject,
            test: Test::In(ranges),
        })
    }

    /// The values of a test as a set of numbers, and whether the condition inverts it.
    fn values(
        &mut self,
        m: &ast::Match,
        field: Field,
        domain: Domain,
    ) -> Option<(Arc<Ranges>, bool)> {
        match &m.test {
            ast::Test::Present => None,
            ast::Test::Set(set) => {
                let ranges = self
                    .sets
                    .numbers(*set, field, domain, self.loader, self.report)?;
                Some((ranges, false))
            }
            ast::Test::List(spans) => {
                let mut intervals = Vec::with_capacity(spans.len());
                let mut read = 0;
                for &span in spans {
                    match value::interval(self.of(span), domain) {
                        Ok(found) => {
                            intervals.extend(found.intervals());
                            read += 1;
                        }
                        Err(problem) => self.value_problem(span, field, problem),
                    }
                }
                (read == spans.len()).then(|| (Arc::new(Ranges::new(intervals)), false))
            }
            &ast::Test::Compare(cond, span) => {
                let word = self.of(span);
                let found = match value::interval(word, domain) {
                    Ok(found) => found,
                    Err(problem) => {
                        self.value_problem(span, field, problem);
                        return None;
                    }
                };
                if !matches!(cond, Cond::Eq | Cond::Ne) && found.form != Form::Single {
                    let what = match found.form {
                        Form::Range | Form::Around(_) => "a range",
                        Form::Mask(_) => "a mask",
                        _ => "a prefix",
                    };
                    self.report
                        .error(
                            0,
                            span,
                            format!("`{}` takes one value, not {what}", cond.text()),
                        )
                        .help("ranges and prefixes go with `==`, `!=` and `in`");
                    return None;
                }
                let ranges = match cond {
                    Cond::Eq | Cond::Ne
                        if matches!(found.form, Form::Mask(_) | Form::Around(_)) =>
                    {
                        Arc::new(Ranges::new(found.intervals()))
                    }
                    Cond::Eq | Cond::Ne => self.range(found.lo, found.hi),
                    Cond::Le => self.range(0, found.lo),
                    Cond::Ge => self.range(found.lo, domain.max()),
                    Cond::Lt => match found.lo.checked_sub(1) {
                        Some(below) => self.range(0, below),
                        None => Arc::new(Ranges::default()),
                    },
                    Cond::Gt if found.lo == domain.max() => Arc::new(Ranges::default()),
                    Cond::Gt => self.range(found.lo + 1, domain.max()),
                };
                Some((ranges, cond == Cond::Ne))
            }
        }
    }

    pub(super) fn value_problem(&mut self, span: Span, field: Field, problem: Problem) {
        let info = field.info();
        let draft = self.report.error(0, span, problem.message);
        draft.label(match (info.kind, info.bits) {
            (Kind::Number, bits) if info.header != Header::Clock => {
                format!("`{}` has {bits} bits", info.name)
            }
            _ => format!("for `{}`", info.name),
        });
        if let Some(help) = problem.help {
            draft.help(help);
        }
    }

    fn warn_if_constant(
        &mut self,
        span: Span,
        field: Field,
        ranges: &Ranges,
        max: u128,
        negated: bool,
    ) {
        let full = ranges.intervals() == [(0, max)];
        let empty = ranges.intervals().is_empty();
        // What is never true is said of the whole rule.
        if full && !negated || empty && negated {
            let name = field.info().name;
            self.report
                .warning(
                    0,
                    span,
                    format!("this is true for every packet that has `{name}`"),
                )
                .help(format!("write `{name}` alone if that is meant"));
        }
    }
}

/// Where the value of a test stands; `None` if it has none.
fn value_span(test: &ast::Test) -> Option<Span> {
    match test {
        ast::Test::Present => None,
        ast::Test::Compare(_, span) | ast::Test::Set(span) => Some(*span),
        ast::Test::List(spans) => Some(spans.first()?.to(*spans.last()?)),
    }
}

/// What to write for a header with a value behind it.
fn presence_help(name: &str, value: Option<&str>) -> String {
    let value = value.unwrap_or("VALUE");
    match name {
        "tcp" | "udp" => {
            format!("for a port write `{name}-dport {value}` or `{name}-sport {value}`")
        }
        "vlan" | "vlan2" => format!("write `{name}-id {value}`"),
        _ => format!("it is there or not: write `{name}` or `! {name}`"),
    }
}
