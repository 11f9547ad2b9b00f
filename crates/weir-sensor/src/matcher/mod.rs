//! Search for many patterns at once: which of a set of byte strings occur in a buffer.
//!
//! Two engines behind one type. `Engine::Prefilter` looks every four-byte window of the buffer up in a table of bits that stays in the first-level cache, and compares patterns only
//! where a bit is set. `Engine::AhoCorasick` is an automaton by other hands, slower and larger, that shares no code with the first: the oracle. Both yield exactly the patterns that
//! occur, each once, in no particular order. Nothing is allocated while scanning. Design: `docs/design/matcher.md`.

mod automaton;
mod needle;
mod prefilter;
mod rarity;

pub(crate) use needle::Needle;
pub(crate) use rarity::{byte_cost, rarest_window};

use automaton::Automaton;
use prefilter::Prefilter;

/// A pattern: bytes, whether ASCII case is ignored, and the number that a hit yields. Patterns may share a number. An empty pattern never hits.
#[derive(Clone, Copy, Debug)]
pub struct Pattern<'a> {
    /// What to find.
    pub bytes: &'a [u8],
    /// Ignore the case of ASCII letters.
    pub nocase: bool,
    /// What a hit yields, below the `numbers` that `Hits` was made for.
    pub id: u32,
}

/// Which engine searches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Table of window hashes, then comparison.
    #[default]
    Prefilter,
    /// Aho-Corasick automata.
    AhoCorasick,
}

/// What a scan yields, and the memory it needs. Made once for each worker.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    ids: Vec<u32>,
    /// The scan that last yielded an id.
    stamps: Vec<u32>,
    scan: u32,
}

impl Hits {
    /// For ids below `numbers`.
    pub fn new(numbers: usize) -> Hits {
        Hits {
            ids: Vec::with_capacity(numbers),
            stamps: vec![0; numbers],
            scan: 0,
        }
    }

    /// Forgets what was found.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.scan = self.scan.wrapping_add(1);
        if self.scan == 0 {
            self.stamps.fill(0);
            self.scan = 1;
        }
    }

    /// What was found since `clear`, each id once.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    fn has(&self, id: u32) -> bool {
        self.stamps.get(id as usize) == Some(&self.scan)
    }

    fn insert(&mut self, id: u32) {
        if let Some(stamp) = self.stamps.get_mut(id as usize)
            && *stamp != self.scan
        {
            *stamp = self.scan;
            self.ids.push(id);
        }
    }
}

/// A set of patterns, ready to be searched for.
#[derive(Debug)]
pub struct Matcher {
    engine: Inner,
    patterns: usize,
}

#[derive(Debug)]
enum Inner {
    Prefilter(Box<Prefilter>),
    Automaton(Box<Automaton>),
}

/// Some of the patterns of a matcher.
#[derive(Debug)]
pub(crate) struct Part(prefilter::Part);

impl Part {
    /// Bytes it holds.
    pub(crate) fn memory(&self) -> usize {
        self.0.memory()
    }
}

/// A set of patterns that an automaton cannot be built for.
#[derive(Debug, thiserror::Error)]
#[error("no automaton for {patterns} patterns: {reason}; use the prefilter engine")]
pub struct TooMany {
    patterns: usize,
    reason: String,
}

impl Matcher {
    /// Builds it. Only the automaton can fail, for lack of state numbers.
    pub fn new(engine: Engine, patterns: &[Pattern<'_>]) -> Result<Matcher, TooMany> {
        Ok(Matcher {
            patterns: patterns.len(),
            engine: match engine {
                Engine::Prefilter => Inner::Prefilter(Box::new(Prefilter::new(patterns))),
                Engine::AhoCorasick => {
                    let automaton = Automaton::new(patterns).map_err(|reason| TooMany {
                        patterns: patterns.len(),
                        reason,
                    })?;
                    Inner::Automaton(Box::new(automaton))
                }
            },
        })
    }

    /// How many patterns it holds.
    pub fn len(&self) -> usize {
        self.patterns
    }

    /// Whether there is nothing to find.
    pub fn is_empty(&self) -> bool {
        self.patterns == 0
    }

    /// Adds the ids of the patterns that occur in `haystack`.
    pub fn scan(&self, haystack: &[u8], hits: &mut Hits) {
        match &self.engine {
            Inner::Prefilter(p) => p.scan(haystack, hits),
            Inner::Automaton(a) => a.scan(haystack, hits),
        }
    }

    /// Those of its patterns whose id is wanted, for `scan_part`. None of an automaton, which is the oracle for this as well.
    pub(crate) fn part(&self, wanted: impl Fn(u32) -> bool) -> Option<Part> {
        match &self.engine {
            Inner::Prefilter(p) => Some(Part(p.part(wanted))),
            Inner::Automaton(_) => None,
        }
    }

    /// Adds the ids of those patterns of a part that occur in `haystack`, and perhaps of others that do.
    pub(crate) fn scan_part(&self, part: &Part, haystack: &[u8], hits: &mut Hits) {
        match &self.engine {
            Inner::Prefilter(p) => p.scan_part(&part.0, haystack, hits),
            Inner::Automaton(a) => a.scan(haystack, hits),
        }
    }

    /// Bytes it holds, about.
    pub fn memory(&self) -> usize {
        match &self.engine {
            Inner::Prefilter(p) => p.memory(),
            Inner::Automaton(a) => a.memory(),
        }
    }
}
