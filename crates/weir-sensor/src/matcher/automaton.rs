//! The oracle engine: two Aho-Corasick automata, one for patterns whose case counts and one for the others.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::{Hits, Pattern};

/// Above so many bytes of patterns a DFA (a kilobyte a state) gives way to the contiguous NFA.
const DFA_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Automaton {
    parts: Vec<(AhoCorasick, Vec<u32>)>,
}

impl Automaton {
    pub(super) fn new(patterns: &[Pattern<'_>]) -> Result<Automaton, String> {
        let mut parts = Vec::new();
        for nocase in [false, true] {
            let of_case = || {
                patterns
                    .iter()
                    .filter(move |p| p.nocase == nocase && !p.bytes.is_empty())
            };
            let ids: Vec<u32> = of_case().map(|p| p.id).collect();
            if ids.is_empty() {
                continue;
            }
            let bytes: usize = of_case().map(|p| p.bytes.len()).sum();
            let kind = if bytes <= DFA_BYTES {
                AhoCorasickKind::DFA
            } else {
                AhoCorasickKind::ContiguousNFA
            };
            let automaton = AhoCorasick::builder()
                .match_kind(MatchKind::Standard)
                .ascii_case_insensitive(nocase)
                .kind(Some(kind))
                .build(of_case().map(|p| p.bytes))
                .map_err(|e| e.to_string())?;
            parts.push((automaton, ids));
        }
        Ok(Automaton { parts })
    }

    pub(super) fn scan(&self, haystack: &[u8], hits: &mut Hits) {
        for (automaton, ids) in &self.parts {
            for found in automaton.find_overlapping_iter(haystack) {
                hits.insert(ids[found.pattern().as_usize()]);
            }
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.parts
            .iter()
            .map(|(a, ids)| a.memory_usage() + ids.len() * 4)
            .sum()
    }
}
