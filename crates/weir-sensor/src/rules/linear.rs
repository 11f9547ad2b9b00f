//! Regular expressions as automata: one pass over the text, whatever the text is. An automaton is used in front of PCRE2 where it answers exactly what PCRE2 would.
//!
//! An expression is translated only if each of its parts means the same in both syntaxes; everything else stays with PCRE2. Of what cannot be translated (look-around, references) a wider
//! expression can be: what does not match that does not match the expression either, so most texts are ruled out in one pass. Automata are determinized completely, within a limit of
//! memory: there is no cache that a text could keep refilling, and whether an expression has an automaton depends on the expression alone.

use memchr::{memchr, memchr2, memchr3};
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::ast::{
    self, AssertionKind, Ast, ClassSet, ClassSetItem, Flag, FlagsItemKind, GroupKind,
    HexLiteralKind, LiteralKind, SpecialLiteralKind,
};
use regex_syntax::hir::{Class, Hir, HirKind, translate::TranslatorBuilder};

use super::model::Pcre;

/// Bytes of one automaton at most, of what it is made from, and of the work in between.
const AUTOMATON: usize = 256 << 10;
const DETERMINIZE: usize = 1 << 20;
/// Groups within groups.
const NESTED: u32 = 50;
/// A part that is repeated more often makes automata large: in a wider expression it may be repeated less often. If the automaton of the first is still too large, of the next.
const OFTEN: [u32; 3] = [12, 3, 1];
/// A class lacks fewer bytes than this if it is nearly any.
const NARROW: usize = 64;
/// What a reference may be.
const ANYTHING: &str = "(?s:.*?)";

type Dfa = dense::DFA<Vec<u32>>;

/// An expression as automata.
#[derive(Debug)]
pub(crate) struct Linear {
    forward: Dfa,
    /// Finds where a match begins. Without it a match can only be ruled out.
    reverse: Option<Dfa>,
    /// It matches what the original does, and nothing else.
    exact: bool,
    anchored: bool,
    /// `$` stands at the end of the expression: before a final line feed, too.
    dollar: bool,
}

/// What a search found, and how many bytes it looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Searched {
    pub(crate) found: Found,
    pub(crate) looked_at: usize,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing: PCRE2 finds nothing either.
    Nothing,
    /// PCRE2 finds the same.
    Match(usize, usize),
    /// No match begins before this place, and perhaps one does here.
    From(usize),
    /// Perhaps something: PCRE2 knows.
    Perhaps,
}

impl Linear {
    /// The automata of an expression; `None` if it cannot be translated within the limits.
    pub(crate) fn new(pcre: &Pcre) -> Option<Linear> {
        if pcre.extended {
            return None;
        }
        // Of the others only the end of a match can be found: used if no other has both.
        let mut ends_only = None;
        if let Some((hir, dollar)) = exact(pcre) {
            let made = Linear::of(&hir, pcre.anchored, true, dollar);
            if made.as_ref().is_some_and(Linear::finds_beginnings) {
                return made;
            }
            ends_only = made;
        }
        for often in OFTEN {
            let Some(hir) = wider(pcre, often) else {
                break;
            };
            let made = Linear::of(&hir, pcre.anchored, false, false);
            if made.as_ref().is_some_and(Linear::finds_beginnings) {
                return made;
            }
            ends_only = ends_only.or(made);
        }
        let least = wider(pcre, 1)?;
        for loops in [Loops::Any, Loops::Wide] {
            let beginning = beginning(&least, loops).0;
            // What may begin with nothing begins everywhere.
            if beginning.properties().minimum_len() == Some(0) {
                break;
            }
            let made = Linear::of(&beginning, pcre.anchored, false, false);
            if made.as_ref().is_some_and(Linear::finds_beginnings) {
                return made;
            }
            ends_only = ends_only.or(made);
        }
        ends_only
    }

    fn of(hir: &Hir, anchored: bool, exact: bool, dollar: bool) -> Option<Linear> {
        Some(Linear {
            forward: automaton(hir, anchored, false)?,
            reverse: match anchored {
                true => None,
                false => automaton(hir, false, true),
            },
            exact,
            anchored,
            dollar,
        })
    }

    /// Whether it says where a match begins or may begin.
    fn finds_beginnings(&self) -> bool {
        self.anchored || self.reverse.is_some()
    }

    /// The first match that begins at `start` or behind it, as PCRE2 finds it.
    pub(crate) fn find_at(&self, bytes: &[u8], start: usize) -> Searched {
        let mut looked_at = 0;
        let whole = self.one(bytes, start, &mut looked_at);
        // `$` holds at the end, and before a line feed that is the last byte.
        let shorter = match bytes.split_last() {
            Some((b'\n', rest)) if self.dollar && start <= rest.len() => {
                self.one(rest, start, &mut looked_at)
            }
            _ => Found::Nothing,
        };
        let found = match (whole, shorter) {
            (found, Found::Nothing) | (Found::Nothing, found) => found,
            (Found::Match(a, b), Found::Match(c, d)) if (a, b) == (c, d) => whole,
            (Found::Match(a, _), Found::Match(c, _)) if a < c => whole,
            (Found::Match(a, _), Found::Match(c, _)) if c < a => shorter,
            // Which of the two ends it has, PCRE2 knows.
            (Found::Match(begin, _), Found::Match(..)) => Found::From(begin),
            _ => Found::Perhaps,
        };
        Searched { found, looked_at }
    }

    fn one(&self, bytes: &[u8], start: usize, looked_at: &mut usize) -> Found {
        let Some(end) = self.end(bytes, start, looked_at) else {
            return Found::Nothing;
        };
        let begin = match &self.reverse {
            _ if self.anchored => Some(start),
            Some(reverse) => begin(reverse, bytes, start, end, looked_at),
            None => None,
        };
        match (begin, self.exact) {
            (Some(begin), true) => Found::Match(begin, end),
            (Some(begin), false) => Found::From(begin),
            (None, _) => Found::Perhaps,
        }
    }

    /// Where the first match ends.
    fn end(&self, bytes: &[u8], start: usize, looked_at: &mut usize) -> Option<usize> {
        let dfa = &self.forward;
        let anchored = match self.anchored {
            true => Anchored::Yes,
            false => Anchored::No,
        };
        let input = Input::new(bytes).range(start..).anchored(anchored);
        let mut state = dfa.start_state_forward(&input).ok()?;
        let mut last = None;
        let mut at = start;
        while let Some(byte) = bytes.get(at) {
            state = dfa.next_state(state, *byte);
            if dfa.is_special_state(state) {
                if dfa.is_match_state(state) {
                    // A match is told one byte late.
                    last = Some(at);
                } else if dfa.is_dead_state(state) {
                    *looked_at += at + 1 - start;
                    return last;
                }
                if dfa.is_accel_state(state) {
                    at = skipped(dfa, state, bytes, at + 1);
                    continue;
                }
            }
            at += 1;
        }
        *looked_at += bytes.len().saturating_sub(start);
        match dfa.is_match_state(dfa.next_eoi_state(state)) {
            true => Some(bytes.len()),
            false => last,
        }
    }
}

/// The next place from `at` on at which a state is left.
fn skipped(dfa: &Dfa, state: StateID, bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let found = match *dfa.accelerator(state) {
        [a] => memchr(a, rest),
        [a, b] => memchr2(a, b, rest),
        [a, b, c] => memchr3(a, b, c, rest),
        _ => return at,
    };
    found.map_or(bytes.len(), |found| at + found)
}

/// The earliest beginning, from `start` on, of a match that ends at `end`.
fn begin(
    dfa: &Dfa,
    bytes: &[u8],
    start: usize,
    end: usize,
    looked_at: &mut usize,
) -> Option<usize> {
    let input = Input::new(bytes).range(start..end).anchored(Anchored::Yes);
    let mut state = dfa.start_state_reverse(&input).ok()?;
    let mut last = None;
    let mut at = end;
    for byte in bytes.get(start..end)?.iter().rev() {
        state = dfa.next_state(state, *byte);
        if dfa.is_special_state(state) {
            if dfa.is_match_state(state) {
                last = Some(at);
            } else if dfa.is_dead_state(state) {
                *looked_at += end + 1 - at;
                return last;
            }
        }
        at -= 1;
    }
    *looked_at += end - start;
    let state = match start.checked_sub(1).and_then(|before| bytes.get(before)) {
        Some(before) => dfa.next_state(state, *before),
        None => dfa.next_eoi_state(state),
    };
    match dfa.is_match_state(state) {
        true => Some(start),
        false => last,
    }
}

fn automaton(hir: &Hir, anchored: bool, reverse: bool) -> Option<Dfa> {
    let nfa = thompson::Compiler::new()
        .configure(
            thompson::Config::new()
                .utf8(false)
                .reverse(reverse)
                .which_captures(WhichCaptures::None)
                .nfa_size_limit(Some(AUTOMATON)),
        )
        .build_from_hir(hir)
        .ok()?;
    let (start, kind) = match (reverse, anchored) {
        // All ends of a match are followed, for the earliest.
        (true, _) => (StartKind::Anchored, MatchKind::All),
        (false, true) => (StartKind::Anchored, MatchKind::LeftmostFirst),
        (false, false) => (StartKind::Unanchored, MatchKind::LeftmostFirst),
    };
    dense::Builder::new()
        .configure(
            dense::Config::new()
                .start_kind(start)
                .match_kind(kind)
                .accelerate(!reverse)
                .dfa_size_limit(Some(AUTOMATON))
                .determinize_size_limit(Some(DETERMINIZE)),
        )
        .build_from_nfa(&nfa)
        .ok()
}

fn parsed(pattern: &str) -> Option<Ast> {
    ast::parse::ParserBuilder::new()
        .nest_limit(NESTED)
        .build()
        .parse(pattern)
        .ok()
}

fn translated(pcre: &Pcre, pattern: &str, ast: &Ast) -> Option<Hir> {
    TranslatorBuilder::new()
        .unicode(false)
        .utf8(false)
        .case_insensitive(pcre.caseless)
        .multi_line(pcre.multiline)
        .dot_matches_new_line(pcre.dotall)
        .swap_greed(pcre.ungreedy)
        .build()
        .translate(pattern, ast)
        .ok()
}

/// The expression, if all of it means the same in both syntaxes; and whether `$` stands at its end and may be before a final line feed.
fn exact(pcre: &Pcre) -> Option<(Hir, bool)> {
    let pattern = Rewrite::of(&pcre.pattern, None)?;
    let ast = parsed(&pattern)?;
    let mut check = Check::new(pcre, false);
    // The text without its last line feed has another end.
    if !check.same(&ast, true, true) || check.dollar && check.text_end {
        return None;
    }
    let hir = translated(pcre, &pattern, &ast)?;
    // PCRE2 has no line begin behind a final line feed.
    let least = hir.properties().minimum_len().unwrap_or(0);
    if check.lines && least == 0 || loops_on_nothing(&hir) {
        return None;
    }
    Some((hir, check.dollar))
}

/// A wider expression that can be translated: look-around is left out, references may be anything, and parts that must be repeated more than `often` may be repeated less and more often.
fn wider(pcre: &Pcre, often: u32) -> Option<Hir> {
    let pattern = Rewrite::of(&pcre.pattern, Some(often))?;
    let ast = parsed(&pattern)?;
    if !Check::new(pcre, true).same(&ast, true, true) {
        return None;
    }
    translated(pcre, &pattern, &ast)
}

/// Loops at which an expression is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loops {
    /// Of any byte, or any but the line feed.
    Any,
    /// Of nearly any byte.
    Wide,
}

impl Loops {
    fn are(self, hir: &Hir) -> bool {
        let HirKind::Class(Class::Bytes(class)) = hir.kind() else {
            return false;
        };
        let others = |b: &u8| {
            !class
                .ranges()
                .iter()
                .any(|r| (r.start()..=r.end()).contains(b))
        };
        let mut others = (0..=u8::MAX).filter(others);
        match self {
            Loops::Any => others.all(|b| b == b'\n'),
            Loops::Wide => others.count() < NARROW,
        }
    }
}

/// What an expression begins with, up to such a loop, and whether that is all of it: whatever matches begins with a match of it.
fn beginning(hir: &Hir, loops: Loops) -> (Hir, bool) {
    match hir.kind() {
        HirKind::Repetition(r) if r.max.is_none() && loops.are(&r.sub) => {
            let least = vec![(*r.sub).clone(); r.min as usize];
            (Hir::concat(least), false)
        }
        HirKind::Repetition(r) => match beginning(&r.sub, loops) {
            (_, true) => (hir.clone(), true),
            (_, false) if r.min == 0 => (Hir::empty(), false),
            (begins, false) => (begins, false),
        },
        HirKind::Capture(c) => beginning(&c.sub, loops),
        HirKind::Alternation(all) => {
            let parts = all.iter().map(|part| beginning(part, loops));
            let (parts, whole): (Vec<Hir>, Vec<bool>) = parts.unzip();
            (Hir::alternation(parts), whole.into_iter().all(|w| w))
        }
        HirKind::Concat(all) => {
            let mut parts = Vec::with_capacity(all.len());
            for part in all {
                let (part, whole) = beginning(part, loops);
                parts.push(part);
                if !whole {
                    return (Hir::concat(parts), false);
                }
            }
            (Hir::concat(parts), true)
        }
        _ => (hir.clone(), true),
    }
}

/// Whether something is repeated that may be empty: engines differ in what ends such a loop.
fn loops_on_nothing(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Repetition(r) => {
            let once = r.max == Some(1);
            !once && r.sub.properties().minimum_len() == Some(0) || loops_on_nothing(&r.sub)
        }
        HirKind::Capture(c) => loops_on_nothing(&c.sub),
        HirKind::Concat(all) | HirKind::Alternation(all) => all.iter().any(loops_on_nothing),
        _ => false,
    }
}

/// Which parts of an expression mean the same in both syntaxes.
struct Check {
    multiline: bool,
    end_only: bool,
    /// Lines begin with something of it.
    lines: bool,
    dollar: bool,
    /// It asks for the end of the text by another name.
    text_end: bool,
    /// More may match than before.
    wide: bool,
}

impl Check {
    fn new(pcre: &Pcre, wide: bool) -> Check {
        Check {
            multiline: pcre.multiline,
            end_only: pcre.dollar_end_only && !pcre.multiline,
            lines: false,
            dollar: false,
            text_end: false,
            wide,
        }
    }

    /// `first` and `last`: nothing is before or behind this part.
    fn same(&mut self, ast: &Ast, first: bool, last: bool) -> bool {
        match ast {
            Ast::Empty(_) | Ast::Dot(_) => true,
            // Flags in the middle are about other alternatives than PCRE2's.
            Ast::Flags(set) => first && self.flags(&set.flags, true),
            Ast::Literal(l) => literal(l),
            Ast::Assertion(a) => self.assertion(&a.kind, first, last),
            Ast::ClassPerl(_) => true,
            Ast::ClassBracketed(c) => match &c.kind {
                ClassSet::Item(item) => class(item),
                ClassSet::BinaryOp(_) => false,
            },
            Ast::ClassUnicode(_) => false,
            Ast::Repetition(r) => {
                // `a++` is possessive.
                if matches!(
                    *r.ast,
                    Ast::Repetition(_) | Ast::Assertion(_) | Ast::Flags(_)
                ) {
                    return false;
                }
                self.same(&r.ast, false, false)
            }
            Ast::Group(g) => {
                let flags = match &g.kind {
                    GroupKind::CaptureIndex(_) | GroupKind::CaptureName { .. } => true,
                    GroupKind::NonCapturing(flags) => self.flags(flags, false),
                };
                // Flags within a group end with it.
                !matches!(*g.ast, Ast::Flags(_)) && flags && self.same(&g.ast, false, last)
            }
            Ast::Alternation(all) => {
                let mut parts = all.asts.iter();
                let begins_with_flags = all.asts.iter().any(|a| match a {
                    Ast::Concat(c) => matches!(c.asts.first(), Some(Ast::Flags(_))),
                    a => matches!(a, Ast::Flags(_)),
                });
                let lines = first && !self.multiline;
                !begins_with_flags && parts.all(|a| self.same(a, lines, last))
            }
            Ast::Concat(all) => {
                let end = all.asts.len().saturating_sub(1);
                let mut begin = first;
                all.asts.iter().enumerate().all(|(at, part)| {
                    let same = self.same(part, begin, last && at == end);
                    begin &= matches!(part, Ast::Flags(_));
                    same
                })
            }
        }
    }

    fn flags(&mut self, flags: &ast::Flags, all: bool) -> bool {
        let mut on = true;
        for item in &flags.items {
            match &item.kind {
                FlagsItemKind::Negation => on = false,
                FlagsItemKind::Flag(Flag::CaseInsensitive | Flag::DotMatchesNewLine) => {}
                FlagsItemKind::Flag(Flag::MultiLine) if all => self.multiline = on,
                FlagsItemKind::Flag(_) => return false,
            }
        }
        true
    }

    fn assertion(&mut self, kind: &AssertionKind, first: bool, last: bool) -> bool {
        match kind {
            AssertionKind::StartLine if self.multiline => {
                self.lines = true;
                first || self.wide
            }
            AssertionKind::EndLine if !self.multiline && !self.end_only => {
                self.dollar = true;
                last
            }
            // `E` is about the `$` of one line.
            AssertionKind::EndLine => !(self.multiline && self.end_only),
            AssertionKind::EndText => {
                self.text_end = true;
                true
            }
            AssertionKind::StartLine
            | AssertionKind::StartText
            | AssertionKind::WordBoundary
            | AssertionKind::NotWordBoundary => true,
            _ => false,
        }
    }
}

fn literal(literal: &ast::Literal) -> bool {
    match &literal.kind {
        // Other characters are several bytes for PCRE2, of which a quantifier is about the last.
        LiteralKind::Verbatim | LiteralKind::Meta | LiteralKind::Superfluous => {
            literal.c.is_ascii()
        }
        LiteralKind::HexFixed(HexLiteralKind::X) => true,
        LiteralKind::HexBrace(HexLiteralKind::X) => u32::from(literal.c) < 256,
        // `\v` is a class of PCRE2.
        LiteralKind::Special(kind) => !matches!(
            kind,
            SpecialLiteralKind::VerticalTab | SpecialLiteralKind::Space
        ),
        _ => false,
    }
}

fn class(item: &ClassSetItem) -> bool {
    match item {
        ClassSetItem::Empty(_) | ClassSetItem::Ascii(_) | ClassSetItem::Perl(_) => true,
        ClassSetItem::Literal(l) => literal(l),
        ClassSetItem::Range(r) => literal(&r.start) && literal(&r.end),
        ClassSetItem::Union(all) => all.items.iter().all(class),
        // A bracket within brackets is a byte like others to PCRE2.
        ClassSetItem::Unicode(_) | ClassSetItem::Bracketed(_) => false,
    }
}

/// An expression written in the other syntax, or (`wide`) a wider one.
struct Rewrite<'a> {
    rest: &'a str,
    out: String,
    wide: bool,
    often: u32,
}

impl Rewrite<'_> {
    fn of(pattern: &str, wide: Option<u32>) -> Option<String> {
        let mut all = Rewrite {
            rest: pattern,
            out: String::with_capacity(pattern.len()),
            wide: wide.is_some(),
            often: wide.unwrap_or(u32::MAX),
        };
        while !all.rest.is_empty() {
            all.step()?;
        }
        Some(all.out)
    }

    fn take(&mut self, length: usize, instead: Option<&str>) -> Option<()> {
        let (part, rest) = self.rest.split_at_checked(length)?;
        self.out.push_str(instead.unwrap_or(part));
        self.rest = rest;
        Some(())
    }

    fn step(&mut self) -> Option<()> {
        let bytes = self.rest.as_bytes();
        match *bytes.first()? {
            // Without a meaning to PCRE2, word boundaries here.
            b'\\' if matches!(bytes.get(1), Some(b'<' | b'>')) => self.take(1, Some("")),
            b'\\' if self.wide => self.escape(bytes),
            b'\\' => self.take(2, None),
            b'[' => {
                let length = class_length(bytes)?;
                let same = class_as_here(self.rest.get(..length)?, self.wide);
                self.take(length, Some(&same))
            }
            b'(' if self.wide => self.group(bytes),
            b'*' | b'+' | b'?' if self.wide && bytes.get(1) == Some(&b'+') => {
                self.take(1, None)?;
                self.take(1, Some(""))
            }
            b'{' => self.times(bytes),
            // Whatever is behind it.
            b'$' if self.wide => self.take(1, Some("(?:)")),
            _ => {
                let length = self.rest.chars().next()?.len_utf8();
                self.take(length, None)
            }
        }
    }

    fn escape(&mut self, bytes: &[u8]) -> Option<()> {
        match *bytes.get(1)? {
            // A reference, or a byte in octal digits.
            b'0'..=b'9' => {
                let digits = bytes.get(1..)?.iter().take_while(|b| b.is_ascii_digit());
                let length = 1 + digits.count();
                self.take(length, Some(ANYTHING))
            }
            b'K' | b'G' | b'Z' => self.take(2, Some("(?:)")),
            b'h' => self.take(2, Some("[ \\t\\xa0]")),
            // A reference: `\g1`, `\g{1}`, `\g{name}`; `\g<1>` is a call.
            b'g' if matches!(bytes.get(2), Some(b'{' | b'0'..=b'9')) => {
                let length = match bytes.get(2) {
                    Some(b'{') => self.rest.find('}')? + 1,
                    _ => {
                        let digits = bytes.get(2..)?.iter().take_while(|b| b.is_ascii_digit());
                        2 + digits.count()
                    }
                };
                self.take(length, Some(ANYTHING))
            }
            b'k' | b'g' | b'Q' | b'E' | b'R' | b'C' | b'X' | b'p' | b'P' => None,
            _ => self.take(2, None),
        }
    }

    fn group(&mut self, bytes: &[u8]) -> Option<()> {
        let begins = |with: &[&str]| with.iter().any(|w| self.rest.starts_with(w));
        if begins(&["(?=", "(?!", "(?<=", "(?<!"]) {
            let length = group_length(bytes)?;
            self.take(length, Some("(?:)"))
        } else if begins(&["(?>"]) {
            self.take(3, Some("(?:"))
        } else if begins(&["(?P="]) {
            let length = self.rest.find(')')? + 1;
            self.take(length, Some(ANYTHING))
        } else if begins(&["(*", "(?#", "(?(", "(?|"]) {
            None
        } else {
            self.take(1, None)
        }
    }

    /// A brace: how often what is before it is repeated, or itself.
    fn times(&mut self, bytes: &[u8]) -> Option<()> {
        let Some(length) = quantifier(bytes) else {
            // Whether a number may lack or have blanks around it depends on the library's version.
            return match bytes.get(1) {
                Some(b' ' | b',' | b'0'..=b'9') => None,
                _ => self.take(1, Some("\\{")),
            };
        };
        let inside = self.rest.get(1..length - 1)?;
        let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
        let least: u32 = least.parse().ok()?;
        let most: u32 = most.parse().unwrap_or(least);
        if self.wide && most.max(least) > self.often {
            let fewer = format!("{{{},}}", least.min(self.often));
            self.take(length, Some(&fewer))?;
        } else {
            self.take(length, None)?;
        }
        match self.wide && self.rest.starts_with('+') {
            true => self.take(1, Some("")),
            false => Some(()),
        }
    }
}

/// The length of `{3}`, `{3,}` or `{3,4}`.
fn quantifier(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|b| *b == b'}')?;
    let inside = bytes.get(1..end)?;
    let good = inside.first()?.is_ascii_digit()
        && inside.iter().all(|b| b.is_ascii_digit() || *b == b',')
        && inside.iter().filter(|b| **b == b',').count() < 2;
    good.then_some(end + 1)
}

/// A class as it is written in the other syntax: there, escaped angles are no bytes, and a bracket in brackets begins a class.
fn class_as_here(class: &str, brackets: bool) -> String {
    let mut out = String::with_capacity(class.len() + 2);
    let mut characters = class.chars().peekable();
    let mut first = true;
    while let Some(c) = characters.next() {
        match (c, characters.peek()) {
            ('\\', Some('<' | '>')) => {}
            ('\\', Some(next)) => {
                out.extend([c, *next]);
                characters.next();
            }
            ('[', next) if !first && brackets && next != Some(&':') => out.push_str("\\["),
            _ => out.push(c),
        }
        first = false;
    }
    out
}

/// The length of a class in brackets.
fn class_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 1 + usize::from(bytes.get(1) == Some(&b'^'));
    // A bracket that comes first does not end it.
    at += usize::from(bytes.get(at) == Some(&b']'));
    loop {
        match *bytes.get(at)? {
            b'\\' => at += 2,
            b'[' if bytes.get(at + 1) == Some(&b':') => {
                at += bytes.get(at..)?.windows(2).position(|w| w == b":]")? + 2;
            }
            b']' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// The length of a group in parentheses.
fn group_length(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match *bytes.get(at)? {
            b'\\' => at += 1,
            b'[' => at += class_length(bytes.get(at..)?)? - 1,
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests;
