//! From a file's bytes to rules' texts and options: comments, continuation lines, the two parts of a rule, quotation marks. Keeps where every byte was written.

use std::ops::Range;

use memchr::memrchr;

use super::load::Dialect;
use super::phrase::Phrase;
use super::problem::{Kind, Parsed};
use super::text::Text;

/// First words of rules; other words at a line's start are an error, and no rule when they are commented out.
pub(super) const ACTIONS: &[&str] = &[
    "alert",
    "pass",
    "drop",
    "sdrop",
    "block",
    "reject",
    "rejectsrc",
    "rejectdst",
    "rejectboth",
    "react",
    "log",
    "rewrite",
    "activate",
    "dynamic",
    "config",
];

/// The longest rule, bytes.
const LONGEST: usize = 1 << 20;

/// A rule as written, continuation lines joined.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) bytes: Vec<u8>,
    /// Where each of its lines begins: offset in `bytes`, number of the line, how much of the line is left out before it.
    lines: Vec<(usize, u32, usize)>,
}

impl Statement {
    /// First line.
    pub(super) fn line(&self) -> u32 {
        self.lines.first().map_or(0, |l| l.1)
    }

    /// Line, column in characters and width in characters of a span, and the text of the line.
    pub(super) fn locate(&self, span: Range<usize>) -> (u32, u32, u32, String) {
        let start = span.start.min(self.bytes.len());
        let at = self.lines.partition_point(|l| l.0 <= start).max(1) - 1;
        let (from, line, indent) = self.lines[at];
        let to = self.lines.get(at + 1).map_or(self.bytes.len(), |l| l.0);
        let end = span.end.clamp(start, to);
        let count = |r: Range<usize>| String::from_utf8_lossy(&self.bytes[r]).chars().count();
        let column = count(from..start) + indent + 1;
        let width = count(start..end).max(1);
        let text = " ".repeat(indent) + &String::from_utf8_lossy(&self.bytes[from..to]);
        (line, column as u32, width as u32, text)
    }
}

/// The statements of a file, and how many rules in it are commented out.
pub(super) struct Statements<'a> {
    rest: &'a [u8],
    /// Lines so far.
    pub(super) line: u32,
    dialect: Dialect,
    pub(super) disabled: usize,
}

impl<'a> Statements<'a> {
    /// Of a file, or of whole statements behind so many lines of one.
    pub(super) fn new(piece: &'a [u8], line: u32, dialect: Dialect) -> Self {
        let rest = match line {
            0 => piece.strip_prefix(b"\xef\xbb\xbf").unwrap_or(piece),
            _ => piece,
        };
        Statements {
            rest,
            line,
            dialect,
            disabled: 0,
        }
    }

    fn next_line(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|b| *b == b'\n');
        let (line, rest) = match end {
            Some(at) => (&self.rest[..at], &self.rest[at + 1..]),
            None => (self.rest, &self.rest[self.rest.len()..]),
        };
        self.rest = rest;
        self.line += 1;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// The next line, trimmed.
    fn peek(&self) -> &'a [u8] {
        let end = self.rest.iter().position(|b| *b == b'\n');
        self.rest[..end.unwrap_or(self.rest.len())].trim_ascii()
    }

    /// Whether the rule goes on although no backslash says so: Snort 3 lets parentheses span lines, and begin on one of their own.
    fn is_open(&self, bytes: &[u8]) -> bool {
        let next = self.peek();
        self.dialect == Dialect::Snort
            && !self.rest.is_empty()
            && match bytes.contains(&b'(') {
                true => bytes.last() != Some(&b')') && !is_rule(next),
                false => is_rule(bytes) && next.starts_with(b"("),
            }
    }
}

/// How much of a file's beginning consists of whole statements, whatever comes behind it: up to a line that does not go on with the one before.
pub(super) fn whole(bytes: &[u8], dialect: Dialect) -> usize {
    let mut end = bytes.len();
    let mut next: Option<&[u8]> = None;
    // The last line may go on behind the piece.
    while let Some(at) = memrchr(b'\n', &bytes[..end]) {
        let begin = memrchr(b'\n', &bytes[..at]).map_or(0, |at| at + 1);
        let continued = bytes[begin..at].trim_ascii().ends_with(b"\\");
        // Without a backslash the one dialect ends a rule with its line; the other where a rule begins, at the latest.
        let ends = match dialect {
            Dialect::Suricata => true,
            Dialect::Snort => next.is_some_and(is_rule),
        };
        if ends && !continued {
            return at + 1;
        }
        next = Some(bytes[begin..at].trim_ascii());
        end = at;
    }
    0
}

/// Whether a text begins as a rule does.
fn is_rule(text: &[u8]) -> bool {
    let word = text.split(u8::is_ascii_whitespace).next().unwrap_or(b"");
    ACTIONS.iter().any(|a| a.as_bytes() == word)
}

impl Iterator for Statements<'_> {
    type Item = Statement;

    fn next(&mut self) -> Option<Statement> {
        loop {
            let raw = self.next_line()?;
            let text = raw.trim_ascii();
            if text.is_empty() {
                continue;
            }
            if let Some(comment) = text.strip_prefix(b"#") {
                let comment = comment.trim_ascii_start();
                if is_rule(comment) && comment.contains(&b'(') && comment.ends_with(b")") {
                    self.disabled += 1;
                }
                continue;
            }
            let mut bytes = text.to_vec();
            let indent = raw.len() - raw.trim_ascii_start().len();
            let mut lines = vec![(0, self.line, indent)];
            loop {
                let continued = bytes.last() == Some(&b'\\');
                if continued {
                    bytes.pop();
                } else if !self.is_open(&bytes) {
                    break;
                }
                let Some(more) = self.next_line() else { break };
                let kept = more.trim_ascii();
                if !continued && kept.starts_with(b"#") {
                    continue;
                }
                bytes.push(b' ');
                let indent = more.len() - more.trim_ascii_start().len();
                lines.push((bytes.len(), self.line, indent));
                bytes.extend_from_slice(kept);
                if bytes.len() > LONGEST {
                    break;
                }
            }
            return Some(Statement { bytes, lines });
        }
    }
}

/// An option: `name` or `name:value`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opt<'a> {
    pub(super) name: Text<'a>,
    /// Trimmed, quotation marks included; `None` without a colon.
    pub(super) value: Option<Text<'a>>,
    pub(super) whole: Text<'a>,
}

/// A rule's header and its options.
pub(super) fn divide(rule: Text<'_>, dialect: Dialect) -> Parsed<(Text<'_>, Vec<Opt<'_>>)> {
    if rule.len() > LONGEST {
        return Err(rule
            .part(0..1)
            .fail(Kind::Syntax, "the rule is longer than 1 MiB"));
    }
    let Some((header, body)) = rule.cut(b'(') else {
        let reason = "a rule needs its options in parentheses";
        return Err(rule.fail(Kind::Syntax, reason));
    };
    let body = body.trim();
    let [inner @ .., b')'] = body.bytes else {
        let end = body.from(body.len().saturating_sub(1));
        let reason = "the rule does not end with `)`";
        return Err(end.fail(Kind::Syntax, reason));
    };
    let mut rest = body.part(0..inner.len()).trim();
    let mut options = Vec::new();
    while !rest.is_empty() {
        let Some(end) = option_end(rest, dialect) else {
            let reason = match rest.bytes.contains(&b'"') {
                true => "the option does not end with `;`, or a quotation mark is not closed",
                false => "the option does not end with `;`",
            };
            return Err(rest.fail(Kind::Syntax, reason).called(Phrase::NoEnd));
        };
        let whole = rest.part(0..end).trim();
        rest = rest.from(end + 1).trim();
        let (name, value) = match whole.cut(b':') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (whole, None),
        };
        if name.is_empty() {
            let at = if whole.is_empty() { rest } else { whole };
            let phrase = Phrase::UnknownKeyword(String::new());
            let problem = at.fail(Kind::Syntax, "an option without a name");
            return Err(problem.called(phrase));
        }
        options.push(Opt { name, value, whole });
    }
    Ok((header.trim(), options))
}

/// Where an option ends: at the first `;` that no backslash precedes; in Snort 3 not within quotation marks either.
fn option_end(text: Text<'_>, dialect: Dialect) -> Option<usize> {
    match dialect {
        Dialect::Suricata => {
            let mut before = 0;
            text.bytes.iter().position(|b| {
                let escaped = before == b'\\';
                before = *b;
                *b == b';' && !escaped
            })
        }
        Dialect::Snort => {
            let mut quoted = false;
            let mut escaped = false;
            text.bytes.iter().position(|b| {
                if std::mem::take(&mut escaped) {
                    return false;
                }
                match b {
                    b'\\' => escaped = true,
                    b'"' => quoted = !quoted,
                    b';' => return !quoted,
                    _ => {}
                }
                false
            })
        }
    }
}

/// Parts between commas that are outside quotation marks.
pub(super) fn commas(text: Text<'_>) -> Vec<Text<'_>> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut quoted = false;
    let mut escaped = false;
    for (i, b) in text.bytes.iter().enumerate() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match b {
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                parts.push(text.part(from..i).trim());
                from = i + 1;
            }
            _ => {}
        }
    }
    parts.push(text.from(from).trim());
    parts
}
