//! The pattern by which a rule would be found by its text alone: for those who measure engines on the patterns of a rule set. Detection chooses its own (`detect`).

use super::model::{Condition, Rule};
use crate::buffer::Buffer;

/// A pattern of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fast<'a> {
    /// Where it is looked for.
    pub buffer: Buffer,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Whether the case of ASCII letters is ignored.
    pub nocase: bool,
}

/// The content that a rule names for the prefilter (`fast_pattern`), or else the longest that is not negated; of several as long the first.
pub fn fast_pattern(rule: &Rule) -> Option<Fast<'_>> {
    if let Some(named) = rule.fast_pattern
        && let Some(group) = rule.groups.get(named.group)
        && let Some(Condition::Content(content)) = group.conditions.get(named.condition)
    {
        let part = named.part.and_then(|(from, length)| {
            let from = usize::from(from);
            content.bytes.get(from..from + usize::from(length))
        });
        return Some(Fast {
            buffer: group.buffer,
            bytes: part.unwrap_or(&content.bytes),
            nocase: content.nocase,
        });
    }
    let mut best: Option<Fast<'_>> = None;
    for group in &rule.groups {
        for condition in &group.conditions {
            let Condition::Content(content) = condition else {
                continue;
            };
            if !content.negated && best.is_none_or(|b| content.bytes.len() > b.bytes.len()) {
                best = Some(Fast {
                    buffer: group.buffer,
                    bytes: &content.bytes,
                    nocase: content.nocase,
                });
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::{LoadSettings, Loader};
    use super::fast_pattern;

    #[test]
    fn the_one_named_or_the_longest() {
        for (options, expected) in [
            (
                "content:\"ab\"; content:\"abcd\"; content:\"wxyz\"",
                Some(("abcd", false)),
            ),
            (
                "content:\"ab\"; nocase; fast_pattern; content:\"abcd\"",
                Some(("ab", true)),
            ),
            (
                "content:\"abcdef\"; fast_pattern:2,3; content:\"abcdefgh\"",
                Some(("cde", false)),
            ),
            ("content:!\"abcdef\"; content:\"xy\"", Some(("xy", false))),
            ("dsize:>10", None),
        ] {
            let text = format!("alert tcp any any -> any any (msg:\"m\"; {options}; sid:1;)");
            let settings = LoadSettings::default();
            let mut loader = Loader::new(&settings);
            loader.text("t.rules", text.as_bytes());
            let loaded = loader.finish();
            let rule = loaded.rules.first().expect(options);
            let found = fast_pattern(rule).map(|f| (String::from_utf8_lossy(f.bytes), f.nocase));
            let found = found.as_ref().map(|(bytes, nocase)| (&**bytes, *nocase));
            assert_eq!(found, expected, "{options}");
        }
    }
}
