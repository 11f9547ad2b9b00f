//! Regular expressions: compiled once for all rules that share one, by the loader to find broken ones and by detection to use them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use pcre2::bytes::{CaptureLocations, Regex, RegexBuilder};

use super::linear::Linear;
use super::model::Pcre;
use super::reach::{self, Reach};

/// How far one match may go before it is given up; from the configuration.
pub const MATCH_LIMIT: u32 = 3500;

/// Steps that PCRE2 may take at one place before it is asked again with more, up to the limit: what it took is known by that.
const STEPS: [u32; 2] = [64, 512];

/// A compiled expression. Clones share the code and have their own scratch memory: give every worker a clone. Equal are those that say the same.
#[derive(Clone, Debug)]
pub struct Expression {
    regex: Regex,
    flags: Flags,
    shared: Arc<Shared>,
}

/// What clones have in common beside the code.
#[derive(Debug)]
struct Shared {
    reach: Reach,
    /// What an automaton is made from when the expression is first used; `None` where PCRE2 is tried everywhere and has little to go back over.
    source: Option<Pcre>,
    linear: OnceLock<Option<Box<Linear>>>,
    /// The expression at one place only, with each of `STEPS` and with the limit.
    here: [OnceLock<Option<Box<Regex>>>; STEPS.len() + 1],
    limit: u32,
}

/// The flags that are not written into the pattern: `i`, `m`, `s`, `x`.
type Flags = [bool; 4];

impl PartialEq for Expression {
    fn eq(&self, other: &Expression) -> bool {
        self.flags == other.flags && self.regex.as_str() == other.regex.as_str()
    }
}

impl Eq for Expression {}

/// Why there is no match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// There is none.
    None,
    /// It was given up at a limit: to be counted.
    GivenUp,
}

/// An expression that does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the expression does not compile: {reason}")]
pub struct ExpressionError {
    /// Byte of the pattern at which it was noticed.
    pub offset: Option<usize>,
    /// What the library says.
    pub reason: String,
}

impl Expression {
    /// Compiles one. `limit` bounds the steps of a match.
    pub fn new(pcre: &Pcre, limit: u32) -> Result<Expression, ExpressionError> {
        let (head, body, tail) = assemble(pcre, limit);
        let pattern = format!("{head}{body}{tail}");
        let flags = flags(pcre);
        let [caseless, multiline, dotall, extended] = flags;
        let built = RegexBuilder::new()
            .caseless(caseless)
            .multi_line(multiline)
            .dotall(dotall)
            .extended(extended)
            .jit_if_available(true)
            .build(&pattern);
        match built {
            Ok(regex) => {
                let reach = reach::of(pcre);
                Ok(Expression {
                    regex,
                    flags,
                    shared: Arc::new(Shared {
                        source: (reach.goes_back || reach.place == reach::Anchoring::Here).then(
                            || Pcre {
                                captures: Vec::new(),
                                ..pcre.clone()
                            },
                        ),
                        reach,
                        linear: OnceLock::new(),
                        here: Default::default(),
                        limit,
                    }),
                })
            }
            Err(e) => {
                let offset = e.offset().map(|o| o.saturating_sub(head.len()));
                Err(ExpressionError {
                    offset: offset.map(|o| o.min(pcre.pattern.len())),
                    reason: e.to_string(),
                })
            }
        }
    }

    /// The first match in `bytes`: its start and end.
    pub fn find(&self, bytes: &[u8]) -> Result<(usize, usize), NotFound> {
        match self.regex.find(bytes) {
            Ok(Some(found)) => Ok((found.start(), found.end())),
            Ok(None) => Err(NotFound::None),
            Err(_) => Err(NotFound::GivenUp),
        }
    }

    /// The first match that begins at `start` or after it; what is before `start` can still be looked back at.
    pub fn find_at(&self, bytes: &[u8], start: usize) -> Result<(usize, usize), NotFound> {
        match self.regex.find_at(bytes, start) {
            Ok(Some(found)) => Ok((found.start(), found.end())),
            Ok(None) => Err(NotFound::None),
            Err(_) => Err(NotFound::GivenUp),
        }
    }

    /// How many steps [`find_here`](Self::find_here) may take at each of its levels but the last, which has the limit.
    pub(crate) fn steps(&self) -> impl Iterator<Item = u32> + use<> {
        let limit = self.shared.limit;
        STEPS.into_iter().take_while(move |steps| *steps < limit)
    }

    /// The match that begins at `start`, of an expression that is tried at single places; given up after so many of `STEPS`, or at the limit if there are no more.
    pub(crate) fn find_here(
        &self,
        bytes: &[u8],
        start: usize,
        level: usize,
    ) -> Result<(usize, usize), NotFound> {
        let Shared {
            source,
            here,
            limit,
            ..
        } = &*self.shared;
        let level = level.min(STEPS.len());
        let limit = STEPS.get(level).map_or(*limit, |steps| *limit.min(steps));
        let compiled = here[level].get_or_init(|| {
            let anchored = Pcre {
                anchored: true,
                ..source.clone()?
            };
            Some(Box::new(Expression::new(&anchored, limit).ok()?.regex))
        });
        let Some(regex) = compiled else {
            return self.find_at(bytes, start);
        };
        match regex.find_at(bytes, start) {
            Ok(Some(found)) => Ok((found.start(), found.end())),
            Ok(None) => Err(NotFound::None),
            Err(_) => Err(NotFound::GivenUp),
        }
    }

    /// As `find`, with captures.
    pub fn captures(
        &self,
        bytes: &[u8],
        locations: &mut CaptureLocations,
    ) -> Result<(usize, usize), NotFound> {
        match self.regex.captures_read(locations, bytes) {
            Ok(Some(found)) => Ok((found.start(), found.end())),
            Ok(None) => Err(NotFound::None),
            Err(_) => Err(NotFound::GivenUp),
        }
    }

    /// Room for captures.
    pub fn locations(&self) -> CaptureLocations {
        self.regex.capture_locations()
    }

    /// The parts of the first match that begins at `start` or after it.
    pub fn parts_at<'a>(
        &self,
        bytes: &'a [u8],
        start: usize,
        groups: impl Iterator<Item = usize>,
    ) -> Vec<Option<&'a [u8]>> {
        let mut locations = self.locations();
        match self.regex.captures_read_at(&mut locations, bytes, start) {
            Ok(Some(_)) => groups
                .map(|group| {
                    locations
                        .get(group)
                        .and_then(|(from, to)| bytes.get(from..to))
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// How far it looks at most.
    pub(crate) fn reach(&self) -> &Reach {
        &self.shared.reach
    }

    /// The automata of an expression that PCRE2 may go back over many times, if it has any. They are made when they are first asked for.
    pub(crate) fn linear(&self) -> Option<&Linear> {
        let source = self.shared.source.as_ref()?;
        let made = self
            .shared
            .linear
            .get_or_init(|| Linear::new(source).map(Box::new));
        made.as_deref()
    }

    /// Numbers and names of the captures that have one.
    pub fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        let names = self.regex.capture_names().iter().enumerate();
        names.filter_map(|(at, name)| Some((at, name.as_deref()?)))
    }

    /// How many captures it has, without the whole match.
    pub fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }
}

fn flags(pcre: &Pcre) -> Flags {
    [pcre.caseless, pcre.multiline, pcre.dotall, pcre.extended]
}

/// The library takes some flags only inside the pattern: limits before it, then `A` as `\G`, `G` as `(?U)`, `E` as `\z` for each `$`.
fn assemble(pcre: &Pcre, limit: u32) -> (String, String, &'static str) {
    let mut head = format!("(*LIMIT_MATCH={limit})");
    if pcre.ungreedy {
        head.push_str("(?U)");
    }
    let body = match pcre.dollar_end_only && !pcre.multiline {
        true => end_only(&pcre.pattern),
        false => pcre.pattern.clone(),
    };
    let tail = match pcre.anchored {
        true => {
            head.push_str("\\G(?:");
            // A comment of `x` would swallow the parenthesis.
            if pcre.extended { "\n)" } else { ")" }
        }
        false => "",
    };
    (head, body, tail)
}

/// `$` outside classes becomes `\z`.
fn end_only(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut characters = pattern.chars();
    let mut class = false;
    while let Some(c) = characters.next() {
        match c {
            '\\' => {
                out.push(c);
                out.extend(characters.next());
                continue;
            }
            '[' => class = true,
            ']' => class = false,
            '$' if !class => {
                out.push_str("\\z");
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

/// Expressions by what they say: rules that share one share its code.
#[derive(Clone, Debug)]
pub struct Expressions {
    limit: u32,
    /// With whether a rule asked for it; others are those of rules that were loaded before.
    known: HashMap<Key, (Result<Arc<Expression>, ExpressionError>, bool)>,
    asked: usize,
}

/// The pattern as the library is given it, and the other flags.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key(Box<str>, Flags);

impl Default for Expressions {
    fn default() -> Self {
        Expressions::new(MATCH_LIMIT)
    }
}

impl Expressions {
    /// None yet.
    pub fn new(limit: u32) -> Expressions {
        Expressions {
            limit,
            known: HashMap::new(),
            asked: 0,
        }
    }

    /// Has one at hand that rules loaded before were compiled with, so that it need not be compiled anew. It counts when a rule asks for it.
    pub(crate) fn remember(&mut self, expression: &Arc<Expression>) {
        let key = Key(expression.regex.as_str().into(), expression.flags);
        self.known
            .entry(key)
            .or_insert_with(|| (Ok(Arc::clone(expression)), false));
    }

    /// The expression of a condition, compiled now if it was not before.
    pub fn of(&mut self, pcre: &Pcre) -> Result<Arc<Expression>, ExpressionError> {
        let limit = self.limit;
        let (head, body, tail) = assemble(pcre, limit);
        let key = Key(format!("{head}{body}{tail}").into(), flags(pcre));
        let (known, asked) = self
            .known
            .entry(key)
            .or_insert_with(|| (Expression::new(pcre, limit).map(Arc::new), false));
        self.asked += usize::from(!std::mem::replace(asked, true));
        known.clone()
    }

    /// How many different ones rules asked for.
    pub fn len(&self) -> usize {
        self.asked
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.asked == 0
    }
}
