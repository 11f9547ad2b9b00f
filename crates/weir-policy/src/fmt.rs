//! `weir fmt`: one way to write a policy.
//!
//! Writes canonical names and spellings, keeps comments, continued lines and (single) blank lines, and aligns names, targets
//! and comments of neighbouring rules. What it writes means the same and is left as it is by a second run. It reads
//! only the syntax tree, so it needs no set files.

use std::net::Ipv6Addr;

use crate::Parsed;
use crate::ast::{
    Action, Choice, Cond, FieldRef, File, Item, Key, Match, Pool, Rule, Set, SetBody, Setting,
    SettingKind, Span, Target, Test,
};
use crate::diagnostic::{Diagnostics, Report};
use crate::field::{Header, Kind};
use crate::flat::Flat;
use crate::names::is_named;
use crate::parse::{parse_text, takes_values};
use crate::reject;
use crate::source::Source;
use crate::value::{canonical_time_of_day, is_hex, timezone, timezone_text};
use crate::words::looks_like_literal;
use crate::words::{LB, TARGETS, field, is_one_of};

/// Matches longer than this do not push the targets of their neighbours to the right.
const ALIGNED: usize = 56;

/// Indentation of continued lines.
const INDENT: &str = "    ";

/// One rule in its canonical spelling, on one line and without its comment.
pub fn one_line(text: &str, rule: &Rule) -> String {
    let pieces = rule_pieces(text, rule);
    let mut out = String::new();
    for piece in [&pieces.name, &pieces.matches, &pieces.targets] {
        if !out.is_empty() && !piece.is_empty() {
            out.push(' ');
        }
        out.push_str(piece);
    }
    out.replace(&format!("\\\n{INDENT}"), "")
}

/// A set on one line, as it stands in the policy itself.
pub fn set_line(file: &File, set: &Set) -> String {
    set_text(file, set, 0).replace(&format!("\\\n{INDENT}"), "")
}

impl Parsed {
    /// Each rule of the policy in its canonical spelling on one line. Behind those of chains a comment names them.
    pub fn texts(&self) -> Box<dyn Iterator<Item = String> + '_> {
        let text = &self.ast.text;
        match &self.flat {
            Some(flat) => Box::new(flat.iter().map(|one| flat_text(text, one))),
            None => Box::new(self.written().map(|rule| one_line(text, rule))),
        }
    }
}

fn flat_text(text: &str, flat: &Flat) -> String {
    let called = match (&flat.name, flat.chain) {
        (Some(name), None) if flat.choice.is_some() => name.clone(),
        (_, None) => return one_line(text, &flat.rule),
        (Some(name), Some(_)) if flat.rule.name.is_some() => name.clone(),
        // Its number would make another rule of it when one is added in front of it.
        (_, Some(chain)) => format!("chain {}", chain.of(text)),
    };
    let rule = Rule {
        name: None,
        ..flat.rule.clone()
    };
    format!("{}  # {called}", one_line(text, &rule))
}

/// Writes a tree.
pub fn format(file: &File) -> String {
    let text = &file.text;
    let mut out = String::with_capacity(text.len());
    let mut items = file.items.as_slice();
    let mut inside = false;
    // One blank line stands where there were some, but not at the ends of a file or a chain.
    let mut blank = false;
    let mut begins = true;
    while let Some(first) = items.first() {
        let is_edge = |item: &Item| matches!(item, Item::Blank | Item::Chain(_) | Item::End(_));
        let lines = items.iter().take_while(|item| !is_edge(item)).count();
        let mut separate = |out: &mut String| {
            if std::mem::take(&mut blank) && !std::mem::take(&mut begins) {
                out.push('\n');
            }
            begins = false;
        };
        match first {
            Item::Blank => blank = true,
            Item::Chain(chain) => {
                separate(&mut out);
                let line = format!("chain {} {{", chain.name.of(text));
                edge(text, &line, chain.comment, &mut out);
                inside = true;
                begins = true;
            }
            Item::End(end) => {
                blank = false;
                begins = false;
                edge(text, "}", end.comment, &mut out);
                inside = false;
            }
            _ => {
                separate(&mut out);
                let mut lines_of = String::new();
                block(file, &items[..lines], &mut lines_of);
                for line in lines_of.split_inclusive('\n') {
                    if inside {
                        out.push_str(INDENT);
                    }
                    out.push_str(line);
                }
            }
        }
        items = &items[lines.max(1)..];
    }
    out
}

/// The first or last line of a chain.
fn edge(text: &str, line: &str, comment: Option<Span>, out: &mut String) {
    out.push_str(line);
    if let Some(comment) = comment {
        out.push_str("  ");
        out.push_str(comment.of(text));
    }
    out.push('\n');
}

/// Formats a text.
///
/// # Errors
/// The text has syntax errors. Errors of meaning (a value too wide, an unknown set) are not looked for.
pub fn format_source(source: &Source) -> Result<String, Diagnostics> {
    let mut report = Report::default();
    let file = parse_text(&source.text, &mut report);
    if report.has_errors() {
        return Err(report.finish(&[(&source.name, &source.text)]).0);
    }
    Ok(format(&file))
}

/// A line in pieces that neighbours align.
#[derive(Default)]
struct Pieces {
    name: String,
    /// The matches of a rule, or all of a set.
    matches: String,
    /// Empty for sets and comments.
    targets: String,
    comment: String,
}

/// Writes lines that no blank line parts.
fn block(file: &File, items: &[Item], out: &mut String) {
    let text: &str = &file.text;
    let sets = items.iter().filter_map(|item| match item {
        Item::Set(set) => Some(width(set.name.of(text))),
        _ => None,
    });
    let set_names = sets.max().unwrap_or(0);
    let pieces: Vec<Pieces> = items
        .iter()
        .map(|item| match item {
            Item::Rule(rule) => rule_pieces(text, rule),
            Item::Set(set) => Pieces {
                matches: set_text(file, set, set_names),
                comment: set.comment.map_or(String::new(), |c| c.of(text).to_owned()),
                ..Pieces::default()
            },
            Item::Setting(setting) => Pieces {
                matches: setting_text(text, setting),
                comment: setting
                    .comment
                    .map_or(String::new(), |c| c.of(text).to_owned()),
                ..Pieces::default()
            },
            Item::Include(include) => Pieces {
                matches: format!("include {}", include.path.of(text)),
                comment: include
                    .comment
                    .map_or(String::new(), |c| c.of(text).to_owned()),
                ..Pieces::default()
            },
            Item::Comment(span) => Pieces {
                comment: span.of(text).to_owned(),
                ..Pieces::default()
            },
            Item::Blank | Item::Chain(_) | Item::End(_) => Pieces::default(),
        })
        .collect();
    let names = pieces.iter().map(|p| width(&p.name)).max().unwrap_or(0);
    let aligned = |p: &Pieces| {
        !p.targets.is_empty()
            && !p.targets.starts_with("\\\n")
            && !p.matches.contains('\n')
            && width(&p.matches) <= ALIGNED
    };
    let matches = pieces
        .iter()
        .filter(|p| aligned(p))
        .map(|p| width(&p.matches))
        .max()
        .unwrap_or(0);
    let mut lines: Vec<(String, String)> = Vec::with_capacity(pieces.len());
    for p in pieces {
        let mut line = String::new();
        // Sets and comments have no name in front, so those of rules do not move them.
        if names > 0 && !p.targets.is_empty() {
            pad(&mut line, &p.name, names + 1);
        }
        if aligned(&p) {
            pad(&mut line, &p.matches, matches);
        } else {
            line.push_str(&p.matches);
        }
        if !p.targets.is_empty() {
            line.push(' ');
            line.push_str(&p.targets);
        }
        lines.push((line, p.comment));
    }
    let comments = lines
        .iter()
        .filter(|(line, comment)| !comment.is_empty() && !line.contains('\n'))
        .map(|(line, _)| width(line))
        .max()
        .unwrap_or(0);
    for (line, comment) in lines {
        if comment.is_empty() || line.is_empty() {
            out.push_str(&line);
        } else if line.contains('\n') {
            out.push_str(&line);
            out.push_str("  ");
        } else {
            pad(out, &line, comments + 2);
        }
        out.push_str(&comment);
        out.push('\n');
    }
}

fn rule_pieces(text: &str, rule: &Rule) -> Pieces {
    let name = rule
        .name
        .map_or(String::new(), |n| format!("{}:", n.of(text)));
    let mut matches = String::new();
    if rule.stateful.is_some() {
        matches.push_str("add-stateful");
    }
    let mut end = rule.matches.first().map_or(0, |m| m.span.start);
    for (i, m) in rule.matches.iter().enumerate() {
        separate(text, end, m.span.start, &mut matches);
        let before = i.checked_sub(1).and_then(|i| rule.matches.get(i));
        match_text(text, m, before, &mut matches);
        end = m.span.end;
    }
    let mut targets = String::new();
    for (i, t) in rule.targets.iter().enumerate() {
        if i == 0 {
            // The blank in front of the first target is the caller's.
            if breaks(text, end, t.span.start) {
                targets.push_str("\\\n");
                targets.push_str(INDENT);
            }
        } else {
            separate(text, end, t.span.start, &mut targets);
        }
        target_text(text, t, &mut targets);
        end = t.span.end;
    }
    Pieces {
        name,
        matches,
        targets,
        comment: rule
            .comment
            .map_or(String::new(), |c| c.of(text).to_owned()),
    }
}

fn set_text(file: &File, set: &Set, name_width: usize) -> String {
    let text: &str = &file.text;
    let mut out = "set ".to_owned();
    pad(&mut out, set.name.of(text), name_width);
    out.push_str(" = ");
    match &set.body {
        SetBody::List(elements) => list(text, elements, &mut out, |word, out| out.push_str(word)),
        SetBody::Dynamic { size, timeout } => {
            out.push_str("dynamic");
            for (word, value) in [(" size ", size), (" timeout ", timeout)] {
                if let Some(value) = value {
                    out.push_str(word);
                    out.push_str(&value.of(text).to_ascii_lowercase());
                }
            }
        }
        SetBody::File(path) => {
            out.push_str("file ");
            match file.part(*path).and_then(|part| part.path.as_deref()) {
                // Where it is from the folder of the policy on.
                Some(including) => {
                    let written = path.of(text).trim_matches('"');
                    let path = crate::include::beside(Some(including), written);
                    out.push_str(&format!("\"{}\"", path.display()));
                }
                None => out.push_str(path.of(text)),
            }
        }
    }
    out
}

fn setting_text(text: &str, setting: &Setting) -> String {
    match setting.what {
        SettingKind::LooseTcp => "loose tcp".to_owned(),
        SettingKind::MinPmtu(bytes) => format!("min-pmtu {}", bytes.of(text)),
        SettingKind::Timezone(offset) => {
            let word = offset.of(text);
            let offset = timezone(word).map_or_else(|_| word.to_owned(), timezone_text);
            format!("timezone {offset}")
        }
        SettingKind::Limits(count) => format!("limits {}", count.of(text)),
        SettingKind::Connections(count) => format!("connections {}", count.of(text)),
        SettingKind::Timeout(state, duration) => {
            let words = format!("timeout {} {}", state.of(text), duration.of(text));
            words.to_ascii_lowercase()
        }
    }
}

fn match_text(text: &str, m: &Match, before: Option<&Match>, out: &mut String) {
    if m.negated {
        out.push_str("! ");
    }
    let kind = m.field.field.info().kind;
    let is_port = matches!(kind, Kind::InPort | Kind::OutPort);
    // Behind a field without its value, `in {` would be read as that field's set.
    let ambiguous = matches!(kind, Kind::InPort)
        && !m.negated
        && before.is_some_and(|b| {
            matches!(b.test, Test::Present) && takes_values(b.field.field, b.field.arg.is_some())
        });
    field_text(text, &m.field, out);
    match &m.test {
        Test::Present => {}
        Test::Compare(cond, span) => {
            let word = span.of(text);
            let plain = if is_port {
                field(word).is_none() && !is_one_of(word, TARGETS) && !word.eq_ignore_ascii_case(LB)
            } else {
                !matches!(kind, Kind::Payload | Kind::TcpOption(_))
                    && (looks_like_literal(word) || is_named(m.field.field, word))
            };
            if *cond != Cond::Eq || !plain {
                out.push(' ');
                out.push_str(cond.text());
            }
            out.push(' ');
            value_text(&m.field, word, out);
        }
        Test::List(elements) => {
            out.push_str(if is_port && !ambiguous { " " } else { " in " });
            list(text, elements, out, |word, out| {
                value_text(&m.field, word, out)
            });
        }
        Test::Set(name) => {
            out.push_str(if is_port && !ambiguous { " @" } else { " in @" });
            out.push_str(name.of(text));
        }
    }
}

fn target_text(text: &str, target: &Target, out: &mut String) {
    let with_value =
        |keyword: &str, reference: &FieldRef, value: Option<Span>, out: &mut String| {
            out.push_str(keyword);
            field_text(text, reference, out);
            if let Some(value) = value {
                out.push(' ');
                value_text(reference, value.of(text), out);
            }
        };
    match &target.action {
        Action::Mod(reference, value) => with_value("mod ", reference, *value, out),
        Action::PushTag { id, pcp, dei } => {
            let number = |span: &Span| match crate::value::number(span.of(text), 16, &[]) {
                Ok(number) => number.to_string(),
                Err(_) => span.of(text).to_ascii_lowercase(),
            };
            out.push_str(&format!("vlan push {}", number(id)));
            if let Some(pcp) = pcp {
                out.push_str(&format!(" pcp {}", number(pcp)));
            }
            if *dei {
                out.push_str(" dei");
            }
        }
        Action::PopTag => out.push_str("vlan pop"),
        Action::DecrementTtl => out.push_str("ttl dec"),
        Action::SetMeta(reference, value) => {
            field_text(text, reference, out);
            out.push_str(" set ");
            value_text(reference, value.of(text), out);
        }
        Action::Add(reference, value) => with_value("add ", reference, *value, out),
        Action::Strip(false, reference) => with_value("strip ", reference, None, out),
        Action::Strip(true, reference) => with_value("strip ! ", reference, None, out),
        Action::StripAll => out.push_str("strip all"),
        Action::Drop(None) => out.push_str("drop"),
        Action::Drop(Some(rate)) => {
            out.push_str("drop ");
            out.push_str(rate.of(text).trim_end_matches('%'));
            out.push('%');
        }
        Action::DropOver(rate, burst, per) => {
            out.push_str("drop over ");
            out.push_str(&rate.of(text).to_ascii_lowercase());
            limit_text(text, *burst, *per, out);
        }
        Action::Reject(with) => {
            out.push_str("reject");
            if let Some((kind, code)) = with {
                out.push_str(" with ");
                let kind = kind.of(text);
                out.push_str(reject::canonical(kind).unwrap_or(kind));
                if let Some(code) = code {
                    out.push(' ');
                    out.push_str(&code.of(text).to_ascii_lowercase());
                }
            }
        }
        Action::Accept => out.push_str("accept"),
        Action::Map(reference, Pool::One(value)) => {
            with_value("map ", reference, Some(*value), out)
        }
        Action::Map(reference, Pool::List(elements)) => {
            with_value("map ", reference, None, out);
            out.push(' ');
            list(text, elements, out, |word, out| {
                value_text(reference, word, out)
            });
        }
        Action::Map(reference, Pool::Set(name)) => {
            with_value("map ", reference, None, out);
            out.push_str(" @");
            out.push_str(name.of(text));
        }
        Action::Shuffle(reference) => with_value("shuffle ", reference, None, out),
        Action::Timeout(duration) => {
            out.push_str("timeout ");
            out.push_str(&duration.of(text).to_ascii_lowercase());
        }
        Action::Mapping(word) => {
            out.push_str("mapping ");
            out.push_str(&word.of(text).to_ascii_lowercase());
        }
        Action::Filtering(word) => {
            out.push_str("filtering ");
            out.push_str(&word.of(text).to_ascii_lowercase());
        }
        Action::ChangeSet {
            deletes,
            set,
            address,
            timeout,
        } => {
            out.push_str(if *deletes { "delete @" } else { "add @" });
            out.push_str(set.of(text));
            out.push(' ');
            match address.field {
                Some(field) => out.push_str(field.info().name),
                None => out.push_str(&address.span.of(text).to_ascii_lowercase()),
            }
            if let Some(timeout) = timeout {
                out.push(' ');
                out.push_str(&timeout.of(text).to_ascii_lowercase());
            }
        }
        Action::Helper(word) => {
            out.push_str("helper ");
            out.push_str(&word.of(text).to_ascii_lowercase());
        }
        Action::Jump(name) => {
            out.push_str("jump ");
            out.push_str(name.of(text));
        }
        Action::Choose(reference, choices) => {
            with_value("choose ", reference, None, out);
            choices_text(text, reference, choices, out);
        }
        Action::DropQuota(bytes, burst, per) => {
            out.push_str("drop over ");
            out.push_str(bytes.of(text));
            out.push_str(" bytes");
            limit_text(text, *burst, *per, out);
        }
        Action::DropConnections(most, burst, per) => {
            out.push_str("drop over ");
            out.push_str(most.of(text));
            out.push_str(" connections");
            limit_text(text, *burst, *per, out);
        }
        Action::Log(prefix, limit) => {
            out.push_str("log");
            if let Some(prefix) = prefix {
                out.push(' ');
                out.push_str(prefix.of(text));
            }
            if let Some((rate, burst)) = limit {
                out.push_str(" limit ");
                out.push_str(&rate.of(text).to_ascii_lowercase());
                limit_text(text, *burst, None, out);
            }
        }
    }
}

/// What stands behind the rate of a limit.
fn limit_text(text: &str, burst: Option<Span>, per: Option<Span>, out: &mut String) {
    if let Some(burst) = burst {
        out.push_str(" burst ");
        out.push_str(burst.of(text));
    }
    if let Some(per) = per {
        out.push_str(" per ");
        out.push_str(&per.of(text).to_ascii_lowercase());
    }
}

/// `{ 22: jump admin, 80: accept }`, with the line breaks it had between choices.
fn choices_text(text: &str, reference: &FieldRef, choices: &[Choice], out: &mut String) {
    out.push_str(" {");
    let mut end = choices.first().map_or(0, |one| one.span.start);
    for (i, one) in choices.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        separate_always(text, end, one.span.start, out);
        match one.key {
            Key::Value(value) => value_text(reference, value.of(text), out),
            Key::Set(name) => {
                out.push('@');
                out.push_str(name.of(text));
            }
            Key::Else(_) => out.push_str("else"),
        }
        out.push(':');
        for target in &one.targets {
            out.push(' ');
            target_text(text, target, out);
        }
        end = one.span.end;
    }
    out.push_str(" }");
}

fn field_text(text: &str, reference: &FieldRef, out: &mut String) {
    out.push_str(reference.field.info().name);
    let Some(arg) = reference.arg else { return };
    let word = arg.of(text);
    let number = match crate::value::number(word, 16, &[]) {
        Ok(number) => number.to_string(),
        Err(_) => word.to_ascii_lowercase(),
    };
    if matches!(reference.field.info().kind, Kind::Payload) {
        out.push_str(&format!("[{number}]"));
    } else {
        out.push_str(&format!(" {number}"));
    }
}

/// A value in its canonical spelling; names of interfaces keep their case.
fn value_text(reference: &FieldRef, word: &str, out: &mut String) {
    let kind = reference.field.info().kind;
    if matches!(kind, Kind::InPort | Kind::OutPort) {
        out.push_str(word);
        return;
    }
    if is_named(reference.field, word) {
        out.push_str(&word.to_ascii_lowercase());
        return;
    }
    for (i, part) in word.split_inclusive(['-', '/']).enumerate() {
        let end = part.ends_with(['-', '/']);
        let (part, separator) = part.split_at(part.len() - usize::from(end));
        // A prefix length is no value.
        let is_length = i > 0 && word.contains('/') && reference.field.info().header != Header::Skb;
        if reference.field.info().name == "hour"
            && let Some(time) = canonical_time_of_day(part)
        {
            out.push_str(&time);
            out.push_str(separator);
            continue;
        }
        match part.parse::<Ipv6Addr>() {
            Ok(address) if matches!(kind, Kind::Addr6) => out.push_str(&address.to_string()),
            _ if is_hex(part) && !is_length => hex_text(part, out),
            _ => out.push_str(&part.to_ascii_lowercase()),
        }
        out.push_str(separator);
    }
}

/// `x` and an even number of digits in lower case.
fn hex_text(word: &str, out: &mut String) {
    let digits = word
        .trim_start_matches('0')
        .trim_start_matches(['x', 'X'])
        .to_ascii_lowercase();
    out.push('x');
    if digits.len() % 2 == 1 {
        out.push('0');
    }
    out.push_str(&digits);
}

/// `{ a, b }`, with the line breaks it had.
fn list(text: &str, elements: &[Span], out: &mut String, write: impl Fn(&str, &mut String)) {
    out.push('{');
    let mut end = elements.first().map_or(0, |e| e.start);
    for (i, element) in elements.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        separate_always(text, end, element.start, out);
        write(element.of(text), out);
        end = element.end;
    }
    out.push_str(" }");
}

fn separate(text: &str, from: u32, to: u32, out: &mut String) {
    if !out.is_empty() {
        separate_always(text, from, to, out);
    }
}

/// A blank, or a line break where there was one.
fn separate_always(text: &str, from: u32, to: u32, out: &mut String) {
    if breaks(text, from, to) {
        out.push_str(" \\\n");
        out.push_str(INDENT);
    } else {
        out.push(' ');
    }
}

fn breaks(text: &str, from: u32, to: u32) -> bool {
    Span {
        start: from,
        end: to,
    }
    .of(text)
    .contains('\n')
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Writes `text` and blanks up to `to` columns.
fn pad(out: &mut String, text: &str, to: usize) {
    out.push_str(text);
    out.extend(std::iter::repeat_n(' ', to.saturating_sub(width(text))));
}
