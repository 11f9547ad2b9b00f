//! The words of the language that are not fields or names of values: keywords, and how close two words are.

use crate::field::Field;

/// Words that start a target.
pub(crate) const TARGETS: &[&str] = &[
    "mod",
    "add",
    "strip",
    "drop",
    "accept",
    "log",
    "map",
    "shuffle",
    "timeout",
    "mapping",
    "filtering",
    "helper",
];

/// A target of mmb that weir has not, and mmb never carried out.
pub(crate) const LB: &str = "lb";

/// Commands of mmb that are no rules.
pub(crate) const COMMANDS: &[&str] = &[
    "enable", "disable", "delete", "del", "flush", "list", "show",
];

/// Whether a word looks like a number or an address, whatever the field.
pub(crate) fn looks_like_literal(word: &str) -> bool {
    let first = word.split('-').next().unwrap_or("");
    word.starts_with(|c: char| c.is_ascii_digit())
        || word.contains(':')
        || hex_digits(first)
            .is_some_and(|h| !h.is_empty() && h.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// What stands behind `x` or `0x`.
pub(crate) fn hex_digits(word: &str) -> Option<&str> {
    ["x", "X", "0x", "0X"]
        .iter()
        .find_map(|p| word.strip_prefix(p))
}

/// Finds a field by any spelling in any case.
pub(crate) fn field(word: &str) -> Option<Field> {
    let mut buffer = [0u8; 32];
    let lower = buffer.get_mut(..word.len())?;
    lower.copy_from_slice(word.as_bytes());
    lower.make_ascii_lowercase();
    Field::find(std::str::from_utf8(lower).ok()?)
}

/// Whether `word` is one of `words`, in any case.
pub(crate) fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|w| w.eq_ignore_ascii_case(word))
}

/// Every spelling of every field.
pub(crate) fn field_spellings() -> impl Iterator<Item = &'static str> {
    Field::all()
        .flat_map(|f| std::iter::once(f.info().name).chain(f.info().aliases.iter().copied()))
}

/// The candidate nearest to `word`, if one is near enough to be what was meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let allowed = match word.chars().count() {
        0..=4 => 1,
        5..=7 => 2,
        _ => 3,
    };
    candidates
        .into_iter()
        .map(|c| (distance(&word, &c.to_ascii_lowercase()), c))
        .filter(|&(d, c)| d <= allowed && d < c.chars().count())
        .min_by_key(|&(d, _)| d)
        .map(|(_, c)| c)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("tcp-dport", "tcp-dport"), 0);
        assert_eq!(distance("tpc", "tcp"), 1);
        assert_eq!(distance("", "ab"), 2);
        assert_eq!(nearest("tcp-dprot", field_spellings()), Some("tcp-dport"));
        assert_eq!(nearest("entirely-else", field_spellings()), None);
    }

    #[test]
    fn literals() {
        assert!(
            looks_like_literal("x0a-x0f")
                && looks_like_literal("::1")
                && !looks_like_literal("xdp0")
        );
    }
}
