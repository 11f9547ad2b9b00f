//! Lowering of targets: what each means, and what contradicts it in the same rule. Those that keep state are in `connections`.

use super::connections::Chosen;
use super::{Lower, Required, classes_of};
use crate::ast::{self, Action, Span};
use crate::field::{Field, Header, Kind};
use crate::model::{Answer, Classes, DropWhen, KindSet, Target};
use crate::reject;
use crate::value::{self, Domain, Form, Problem};

/// Longest value of a TCP option: 40 bytes of options less kind and length.
const MAX_OPTION_VALUE: usize = 38;

/// Longest prefix of a log line, in bytes.
const MAX_PREFIX: usize = 31;

/// What was seen so far in the targets of a rule, to refuse what contradicts it.
#[derive(Default)]
struct Seen {
    drop: Option<Span>,
    accept: Option<Span>,
    strip: Option<(StripForm, Span)>,
    /// Where the merged strip stands in the targets.
    strip_at: usize,
    added_bytes: usize,
    limited_logs: Vec<Span>,
    chosen: Chosen,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StripForm {
    These,
    AllBut,
    All,
}

impl Lower<'_> {
    /// The targets, and what among them is of the whole rule.
    pub(super) fn lower_targets(
        &mut self,
        written: &[ast::Target],
        stateful: bool,
        required: &mut Required,
    ) -> (Vec<Target>, Chosen) {
        let mut out = Vec::with_capacity(written.len());
        let mut seen = Seen::default();
        for target in written {
            let span = target.span;
            if !stateful && self.refuse_stateful(&target.action, span) {
                continue;
            }
            let lowered = match &target.action {
                Action::Mod(reference, value) => {
                    required.add(classes_of(reference.field), span);
                    self.modify(reference, *value, span)
                }
                Action::SetMeta(reference, value) => self.set_meta(reference, *value),
                Action::PushTag { id, pcp, dei } => self.push_tag(*id, *pcp, *dei),
                Action::DecrementTtl => Some(Target::DecrementTtl),
                Action::PopTag => {
                    required.add(Classes::VLAN, span);
                    Some(Target::PopTag)
                }
                Action::Add(reference, value) => {
                    required.add(Classes::TCP, span);
                    self.add(reference, *value, span, &mut seen)
                }
                Action::Strip(but, reference) => {
                    required.add(Classes::TCP, span);
                    self.strip(*but, reference, span, &mut seen, &mut out);
                    None
                }
                Action::StripAll => {
                    required.add(Classes::TCP, span);
                    self.merge_strip(StripForm::All, None, span, &mut seen, &mut out);
                    None
                }
                Action::Drop(rate) => self.drop_some(*rate, span, &mut seen),
                Action::DropOver(rate, burst, per) => {
                    self.one_drop(span, &mut seen);
                    self.drop_over((*rate, *burst, *per), span, stateful)
                }
                Action::Reject(with) => self.reject(*with, span, stateful, required, &mut seen),
                Action::Accept => self.accept(span, &mut seen),
                Action::DropQuota(bytes, burst, per) => {
                    self.one_drop(span, &mut seen);
                    self.drop_quota((*bytes, *burst, *per))
                }
                Action::DropConnections(most, burst, per) => {
                    self.one_drop(span, &mut seen);
                    self.drop_connections((*most, *burst, *per), span, stateful)
                }
                Action::Log(text, limit) => self.log(*text, *limit, span, &mut seen),
                Action::Map(reference, pool) => {
                    required.add(classes_of(reference.field), span);
                    self.map(reference, pool, span, &mut seen.chosen)
                }
                Action::Shuffle(reference) => {
                    required.add(classes_of(reference.field), span);
                    self.shuffle(reference, span, &mut seen.chosen)
                }
                Action::Timeout(duration) => {
                    self.rule_timeout(*duration, span, &mut seen.chosen);
                    None
                }
                Action::Mapping(word) => {
                    self.mapping(*word, span, &mut seen.chosen);
                    None
                }
                Action::Filtering(word) => {
                    self.filtering(*word, span, &mut seen.chosen);
                    None
                }
                Action::ChangeSet {
                    deletes,
                    set,
                    address,
                    timeout,
                } => self.change_set(*deletes, *set, address, *timeout, stateful, required),
                // Laid flat before: none is left in a rule that is lowered.
                Action::Jump(_) | Action::Choose(..) => None,
                Action::Helper(word) => {
                    if let Some(classes) = self.helper(*word, span, &mut seen.chosen) {
                        required.add(classes, span);
                    }
                    None
                }
            };
            out.extend(lowered);
        }
        self.judge_chosen(&seen.chosen, &out);
        self.judge_words(&out, &seen.limited_logs);
        (out, seen.chosen)
    }

    fn modify(
        &mut self,
        reference: &ast::FieldRef,
        value: Option<Span>,
        span: Span,
    ) -> Option<Target> {
        let info = reference.field.info();
        let subject = self.subject(reference)?;
        if !info.writable {
            let why = match info.kind {
                Kind::All => "it stands for every packet".to_owned(),
                Kind::InPort | Kind::OutPort | Kind::NetProto => {
                    "it is not a field of the packet".to_owned()
                }
                Kind::Ip4Option(_) => "IPv4 options can be matched, not changed".to_owned(),
                Kind::ExtHeader(_) => "extension headers can be matched, not changed".to_owned(),
                Kind::Exists => "it says what the packet is, and has no value".to_owned(),
                _ if info.header == Header::Skb => {
                    format!(
                        "the kernel keeps it, not the packet; write `{} set VALUE`",
                        info.name
                    )
                }
                _ if info.name.starts_with("ip6-") => {
                    "the fragment header can be matched, not changed".to_owned()
                }
                _ if info.name == "eth-type" => {
                    "it says what follows the Ethernet header".to_owned()
                }
                _ => format!("it is the {}", info.text),
            };
            self.report.error(
                0,
                reference.span,
                format!("`{}` cannot be written: {why}", info.name),
            );
            return None;
        }
        match info.kind {
            Kind::Is(own) => {
                let value = match value {
                    None => u128::from(own),
                    Some(at) if info.bits != 1 => {
                        self.report
                            .error(0, at, format!("`{}` takes no value", info.name))
                            .help(format!(
                                "`mod {}` writes {own}; for another value write `mod ip-ecn N`",
                                info.name
                            ));
                        return None;
                    }
                    Some(at) => self.one_value(at, reference.field, Domain::Number(1, &[]))?,
                };
                Some(Target::Set {
                    field: reference.field,
                    value,
                })
            }
            Kind::Number | Kind::Addr4 | Kind::Addr6 => {
                let at = self.needs_value(value, span, info.name)?;
                let value = self.one_value(at, reference.field, Domain::of(reference.field)?)?;
                Some(Target::Set {
                    field: reference.field,
                    value,
                })
            }
            Kind::Payload => {
                let at = self.needs_value(value, span, info.name)?;
                match value::bytes(self.of(at)) {
                    Ok(bytes) => Some(Target::SetPayload { subject, bytes }),
                    Err(problem) => {
                        self.problem(at, problem);
                        None
                    }
                }
            }
            Kind::TcpOption(_) => {
                let kind = self.kind_of(reference, "mod")?;
                if kind == 4 {
                    self.report.error(
                        0,
                        span,
                        "the option SACK permitted (kind 4) has no value to change",
                    );
                    return None;
                }
                let at = self.needs_value(value, span, info.name)?;
                let value = self.option_value(kind, at)?;
                Some(Target::SetOption { kind, value })
            }
            _ => None,
        }
    }

    /// `vlan push ID [pcp N] [dei]`.
    fn push_tag(&mut self, id: Span, pcp: Option<Span>, dei: bool) -> Option<Target> {
        let mut field = |span: Span, max: u16, what: &str| {
            let read = value::number(self.of(span), 16, &[]);
            let found = read.ok().and_then(|number| u16::try_from(number).ok());
            if let Some(number) = found.filter(|number| *number <= max) {
                return Some(number);
            }
            let word = self.of(span);
            self.report
                .error(0, span, format!("`{word}` is not a {what}"))
                .help(format!("it is a number from 0 to {max}"));
            None
        };
        // 4,095 is reserved (IEEE 802.1Q, table 9-2).
        let id = field(id, 4094, "VLAN identifier");
        let pcp = match pcp {
            Some(span) => field(span, 7, "VLAN priority"),
            None => Some(0),
        };
        let tci = pcp? << 13 | u16::from(dei) << 12 | id?;
        Some(Target::PushTag { tci })
    }

    /// `mark set VALUE[/MASK]`, `priority set VALUE`.
    fn set_meta(&mut self, reference: &ast::FieldRef, at: Span) -> Option<Target> {
        let field = reference.field;
        let whole = |value| (value, u32::MAX);
        let masked = match field.info().name {
            "mark" => value::masked_number(self.of(at)),
            _ => None,
        };
        let read = match masked {
            Some(read) => read,
            None => {
                let value = self.one_value(at, field, Domain::of(field)?)?;
                Ok(whole(value as u32))
            }
        };
        match read {
            Ok((_, 0)) => {
                self.report
                    .error(0, at, "a mask of no bits sets nothing")
                    .help("write the bits that are meant behind the `/`: `mark set x10/xff`");
                None
            }
            Ok((value, mask)) => Some(Target::SetMeta { field, value, mask }),
            Err(problem) => {
                self.value_problem(at, field, problem);
                None
            }
        }
    }

    fn add(
        &mut self,
        reference: &ast::FieldRef,
        value: Option<Span>,
        span: Span,
        seen: &mut Seen,
    ) -> Option<Target> {
        let kind = self.kind_of(reference, "add")?;
        let value = match (kind, value) {
            (4, None) => Vec::new(),
            (4, Some(at)) => {
                self.report
                    .error(0, at, "the option SACK permitted (kind 4) takes no value");
                return None;
            }
            (2 | 3 | 8, None) => {
                self.needs_value(None, span, reference.field.info().name)?;
                return None;
            }
            (_, None) => Vec::new(),
            (_, Some(at)) => self.option_value(kind, at)?,
        };
        let before = seen.added_bytes;
        seen.added_bytes += value.len() + 2;
        if before <= 40 && seen.added_bytes > 40 && before > 0 {
            self.report
                .warning(
                    0,
                    span,
                    "the options added by this rule are longer than the 40 bytes there are",
                )
                .help("an option that finds no room is left out, and counted as `no_room`");
        }
        Some(Target::AddOption { kind, value })
    }

    fn strip(
        &mut self,
        but: bool,
        reference: &ast::FieldRef,
        span: Span,
        seen: &mut Seen,
        out: &mut Vec<Target>,
    ) {
        let Some(kind) = self.kind_of(reference, "strip") else {
            return;
        };
        let form = if but {
            StripForm::AllBut
        } else {
            StripForm::These
        };
        self.merge_strip(form, Some(kind), span, seen, out);
    }

    /// All strips of a rule act as one, at the place of the first.
    fn merge_strip(
        &mut self,
        form: StripForm,
        kind: Option<u8>,
        span: Span,
        seen: &mut Seen,
        out: &mut Vec<Target>,
    ) {
        match seen.strip {
            None => {
                seen.strip = Some((form, span));
                seen.strip_at = out.len();
                out.push(Target::Strip(match form {
                    StripForm::These => KindSet::EMPTY,
                    StripForm::AllBut | StripForm::All => KindSet::ALL,
                }));
            }
            Some((first, at)) if first != form => {
                self.report
                    .error(
                        0,
                        span,
                        "`strip OPTION`, `strip ! OPTION` and `strip all` do not go together",
                    )
                    .also(0, at, "the first strip of this rule")
                    .help("name what goes, or with `!` name what stays, in all strips of a rule");
                return;
            }
            Some(_) => {}
        }
        if let (Some(kind), Some(Target::Strip(kinds))) = (kind, out.get_mut(seen.strip_at)) {
            match form {
                StripForm::These => kinds.insert(kind),
                StripForm::AllBut => kinds.remove(kind),
                StripForm::All => {}
            }
        }
    }

    fn drop_some(&mut self, rate: Option<Span>, span: Span, seen: &mut Seen) -> Option<Target> {
        self.one_drop(span, seen);
        let Some(at) = rate else {
            return Some(Target::Drop(DropWhen::Always));
        };
        let word = self.of(at);
        let Some(thousandths) = percentage(word) else {
            self.report
                .error(0, at, format!("`{word}` is not a percentage"))
                .help(
                    "write a number above 0 and up to 100 with at most three decimals: `drop 0.1%`",
                );
            return None;
        };
        if thousandths == 100_000 {
            return Some(Target::Drop(DropWhen::Always));
        }
        Some(Target::Drop(DropWhen::Random {
            below: (thousandths << 32) / 100_000,
        }))
    }

    fn reject(
        &mut self,
        with: Option<(Span, Option<Span>)>,
        span: Span,
        stateful: bool,
        required: &mut Required,
        seen: &mut Seen,
    ) -> Option<Target> {
        self.one_drop(span, seen);
        if stateful {
            self.report
                .error(0, span, "a stateful rule says which packets open connections, and cannot reject them")
                .help("write the `reject` in a rule without `add-stateful`: connections do not open for its packets");
            return None;
        }
        let Some((kind, code)) = with else {
            return Some(Target::Drop(DropWhen::Answered(Answer::USUAL)));
        };
        let word = self.of(kind);
        match reject::answer(word, code.map(|code| self.of(code))) {
            Ok((answer, classes)) => {
                required.add(classes, span);
                Some(Target::Drop(DropWhen::Answered(answer)))
            }
            Err(problem) => {
                let at = code.filter(|_| problem.is_code).unwrap_or(kind);
                self.report.error(0, at, problem.message).help(problem.help);
                None
            }
        }
    }

    fn one_drop(&mut self, span: Span, seen: &mut Seen) {
        if let Some(first) = seen.drop {
            self.report
                .error(0, span, "a rule has one `drop` or `reject`")
                .also(0, first, "the first is here")
                .help("write a rule for each");
        } else if let Some(accept) = seen.accept {
            self.drop_and_accept(span, accept);
        }
        seen.drop.get_or_insert(span);
    }

    fn accept(&mut self, span: Span, seen: &mut Seen) -> Option<Target> {
        if seen.accept.is_some() {
            self.report
                .error(0, span, "`accept` is written twice")
                .help("remove one of them");
        } else if let Some(drop) = seen.drop {
            self.drop_and_accept(span, drop);
        }
        seen.accept.get_or_insert(span);
        Some(Target::Accept)
    }

    fn drop_and_accept(&mut self, span: Span, other: Span) {
        self.report
            .error(0, span, "a rule that drops and accepts contradicts itself")
            .also(0, other, "the other is here")
            .help("accept overrides drop, so this rule would never drop: remove one of them");
    }

    fn log(
        &mut self,
        text: Option<Span>,
        limit: Option<(Span, Option<Span>)>,
        span: Span,
        seen: &mut Seen,
    ) -> Option<Target> {
        let limit = match limit {
            Some(written) => Some(self.log_limit(written)?),
            None => None,
        };
        if limit.is_some() {
            seen.limited_logs.push(span);
        }
        let Some(at) = text else {
            return Some(Target::Log {
                prefix: String::new(),
                limit,
            });
        };
        let prefix = self.of(at).trim_matches('"');
        if prefix.len() > MAX_PREFIX {
            self.report
                .error(0, at, format!("this prefix has {} bytes", prefix.len()))
                .help(format!("a log prefix has at most {MAX_PREFIX}"));
            return None;
        }
        if prefix.chars().any(char::is_control) {
            self.report
                .error(0, at, "a log prefix holds no control characters");
            return None;
        }
        Some(Target::Log {
            prefix: prefix.to_owned(),
            limit,
        })
    }

    /// The kind that an option target names.
    fn kind_of(&mut self, reference: &ast::FieldRef, keyword: &str) -> Option<u8> {
        let info = reference.field.info();
        if !matches!(info.kind, Kind::TcpOption(_)) {
            let draft = self.report.error(
                0,
                reference.span,
                format!("`{keyword}` is for TCP options, not `{}`", info.name),
            );
            if keyword == "add" && info.writable {
                draft.help(format!("to change it write `mod {} VALUE`", info.name));
            } else {
                draft.help("TCP options are `tcp-opt-mss`, `tcp-opt-wscale` ... or `tcp-opt KIND`");
            }
            return None;
        }
        let subject = self.subject(reference)?;
        if subject.option.is_none() {
            let help = if keyword == "strip" {
                "write `strip all`, or the kind: `strip tcp-opt 30`".to_owned()
            } else {
                format!("write the kind: `{keyword} tcp-opt 30 x01`")
            };
            self.report
                .error(
                    0,
                    reference.span,
                    format!("`{keyword} tcp-opt` needs a kind"),
                )
                .help(help);
        }
        subject.option
    }

    fn needs_value(&mut self, value: Option<Span>, span: Span, name: &str) -> Option<Span> {
        if value.is_none() {
            self.report
                .error(
                    0,
                    Span {
                        start: span.end,
                        end: span.end,
                    },
                    format!("expected a value for `{name}`"),
                )
                .also(0, span, "this target needs one");
        }
        value
    }

    fn one_value(&mut self, at: Span, field: Field, domain: Domain) -> Option<u128> {
        match value::interval(self.of(at), domain) {
            Ok(found) if found.form == Form::Single => Some(found.lo),
            Ok(_) => {
                self.report
                    .error(0, at, "a target takes one value, not a range or a prefix")
                    .label(format!("for `{}`", field.info().name));
                None
            }
            Err(problem) => {
                self.value_problem(at, field, problem);
                None
            }
        }
    }

    /// The bytes of an option's value. MSS, window scale and timestamps have a fixed length.
    fn option_value(&mut self, kind: u8, at: Span) -> Option<Vec<u8>> {
        let word = self.of(at);
        let fixed = match kind {
            2 => Some(2),
            3 => Some(1),
            8 => Some(8),
            _ => None,
        };
        let bytes = match fixed {
            Some(length) => value::number(word, length * 8, &[])
                .map(|number| number.to_be_bytes()[16 - usize::from(length)..].to_vec()),
            None if value::is_hex(word) => value::bytes(word).and_then(|bytes| {
                if bytes.len() > MAX_OPTION_VALUE {
                    return Err(Problem::with_help(
                        format!(
                            "an option with {} bytes of value does not fit a TCP header",
                            bytes.len()
                        ),
                        format!(
                            "there are 40 bytes for options: at most {MAX_OPTION_VALUE} of value"
                        ),
                    ));
                }
                Ok(bytes)
            }),
            None => value::number(word, 64, &[]).map(|number| {
                let bytes = number.to_be_bytes();
                let zeros = bytes.iter().take(15).take_while(|&&b| b == 0).count();
                bytes[zeros..].to_vec()
            }),
        };
        match bytes {
            Ok(bytes) => Some(bytes),
            Err(mut problem) => {
                if let Some(length) = fixed {
                    problem.help = Some(match problem.help.take() {
                        Some(help) => {
                            format!("option {kind} has a value of {length} bytes; {help}")
                        }
                        None => format!("option {kind} has a value of {length} bytes"),
                    });
                }
                self.problem(at, problem);
                None
            }
        }
    }
}

/// A percentage above 0 and up to 100, in thousandths.
fn percentage(word: &str) -> Option<u64> {
    let number = word.strip_suffix('%').unwrap_or(word);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.is_empty() || part.len() > 3 || whole.len() > 3 {
        return None;
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let thousandths = part.parse::<u64>().ok()? * 10u64.pow(3 - part.len() as u32);
    let rate = whole * 1000 + thousandths;
    (1..=100_000).contains(&rate).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        assert_eq!(percentage("0.1"), Some(100));
        assert_eq!(percentage("0.001%"), Some(1));
        assert_eq!(percentage("100%"), Some(100_000));
        assert_eq!(percentage(".5"), Some(500));
        for bad in [
            "0", "0.000", "100.001", "101", "0.0001", "%", "", "-1", "5.", "1e1",
        ] {
            assert_eq!(percentage(bad), None, "{bad}");
        }
    }
}
