//! Rules that can be decided before a body is whole: what holds of its beginning holds of all of it.
//!
//! A body that comes slowly is looked at while it comes, and one that is longer than what is kept of it in windows. Of the first kind are rules that ask only for what is there: no
//! negation, no end, no size. Of the second those that do not count from the beginning either, so that they may be asked of any part. All others wait for the whole.

use crate::buffer::Buffer;
use crate::rules::{Condition, Group, Number, Pcre, Rule};

use super::compile::{Kind, When};

/// What of a growing body a rule may be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Growth {
    /// It asks nothing of bodies.
    None,
    /// Only the whole.
    #[default]
    Whole,
    /// Its beginning, too.
    Beginning,
    /// Any part of it.
    Part,
}

/// Whether a buffer is filled while its message comes.
pub(crate) fn is_body(buffer: Buffer) -> bool {
    matches!(
        buffer,
        Buffer::FileData | Buffer::HttpRequestBody | Buffer::HttpResponseBody
    )
}

/// That of a rule.
pub(super) fn growth(rule: &Rule, kind: Kind, checked: bool, payload: bool) -> Growth {
    let mut bodies = rule.groups.iter().filter(|g| is_body(g.buffer)).peekable();
    if bodies.peek().is_none() {
        return Growth::None;
    }
    // Files with names, conditions on the whole transaction, the answer, and the stream are decided when all is there.
    let simple =
        matches!(kind, Kind::Transaction(When::One(_) | When::Each)) && !checked && !payload;
    let others = (rule.groups.iter()).filter(|g| !is_body(g.buffer));
    let settled = |g: &Group| {
        let absent = |c: &Condition| matches!(c, Condition::Absent(_));
        // A frame grows as well, and is decided as a whole.
        !matches!(g.buffer, Buffer::FileName | Buffer::FileMagic)
            && g.buffer.frame().is_none()
            && !g.conditions.iter().any(absent)
    };
    if !simple || !others.into_iter().all(settled) {
        return Growth::Whole;
    }
    bodies.map(of).min().unwrap_or_default()
}

/// That of one group.
fn of(group: &Group) -> Growth {
    if !group.transforms.is_empty() {
        return Growth::Whole;
    }
    let mut all = Growth::Part;
    // Whether something was found before: what is relative then counts from there.
    let mut found = false;
    for condition in &group.conditions {
        let relative = |is: bool| match is && found {
            true => Growth::Part,
            false => Growth::Beginning,
        };
        let one = match condition {
            Condition::Content(c) if c.negated || c.ends => Growth::Whole,
            Condition::Content(c) => {
                let placed = c.offset.is_some() || c.depth.is_some() || c.starts;
                let from_start = !found && (c.within.is_some() || is_far(c.distance.as_ref()));
                match placed || from_start {
                    true => Growth::Beginning,
                    false => Growth::Part,
                }
            }
            Condition::Pcre(p) => expression(p, found),
            Condition::IsDataAt { negated: true, .. } => Growth::Whole,
            Condition::IsDataAt { relative: r, .. } => relative(*r),
            Condition::ByteTest(t) => relative(t.read.relative),
            Condition::ByteJump(j) if j.from_end => Growth::Whole,
            Condition::ByteJump(j) if j.from_beginning => Growth::Beginning,
            Condition::ByteJump(j) => relative(j.read.relative),
            Condition::ByteExtract(e) => relative(e.read.relative),
            Condition::ByteMath(m) => relative(m.read.relative),
            Condition::Size(_)
            | Condition::Asn1(_)
            | Condition::Base64Decode(_)
            | Condition::Base64Data
            | Condition::Absent(_)
            | Condition::Dataset(_)
            | Condition::Entropy(_) => Growth::Whole,
        };
        all = all.min(one);
        found = true;
    }
    all
}

fn is_far(distance: Option<&Number>) -> bool {
    !matches!(distance, None | Some(Number::Is(..=0)))
}

/// That of an expression, by what it is written with: what looks at an end, or at what does not follow, may change its mind.
fn expression(p: &Pcre, found: bool) -> Growth {
    let has = |part: &str| p.pattern.contains(part);
    let ends = [
        "$", "(?!", "(?<!", "(?>", "\\z", "\\Z", "\\b", "\\B", "(*", "(?(",
    ];
    if p.negated || ends.iter().any(|end| has(end)) {
        return Growth::Whole;
    }
    // A circumflex within brackets is none, but it is not worth telling.
    let anchored = p.anchored || has("^") || has("\\A") || has("\\G") || has("(?<=");
    match anchored && !(p.relative && found) {
        true => Growth::Beginning,
        false => Growth::Part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::Build;
    use crate::rules::{Dialect, LoadSettings, Loader};

    fn grown(options: &str) -> Growth {
        let settings = LoadSettings {
            dialect: Dialect::Suricata,
            ..LoadSettings::default()
        };
        let mut loader = Loader::new(&settings);
        let text = format!("alert http any any -> any any (msg:\"m\"; {options} sid:1;)\n");
        loader.text("test", text.as_bytes());
        let mut loaded = loader.finish();
        assert!(loaded.refused.is_empty(), "{options}: {:?}", loaded.refused);
        let rule = loaded.rules.remove(0);
        let mut build = Build::new(Default::default(), 1);
        build.add(rule, &mut loaded.expressions, None, |_| {});
        build.growth_of(0)
    }

    #[test]
    fn what_may_be_asked_of_a_part() {
        for (options, expected) in [
            ("http.uri; content:\"a\";", Growth::None),
            ("file.data; content:\"a\";", Growth::Part),
            (
                "file.data; content:\"a\"; content:\"b\"; within:9; distance:1;",
                Growth::Part,
            ),
            (
                "file.data; content:\"a\"; http.stat_code; content:\"200\";",
                Growth::Part,
            ),
            (
                "file.data; content:\"a\"; isdataat:4,relative;",
                Growth::Part,
            ),
            (
                "file.data; content:\"a\"; pcre:\"/b[0-9]+/\";",
                Growth::Part,
            ),
            (
                "file.data; content:\"a\"; byte_test:1,>,4,0,relative;",
                Growth::Part,
            ),
            ("file.data; content:\"a\"; depth:4;", Growth::Beginning),
            ("file.data; content:\"a\"; startswith;", Growth::Beginning),
            ("file.data; content:\"a\"; within:4;", Growth::Beginning),
            (
                "file.data; content:\"a\"; pcre:\"/^b/\";",
                Growth::Beginning,
            ),
            (
                "file.data; content:\"a\"; byte_test:1,>,4,0;",
                Growth::Beginning,
            ),
            ("file.data; content:\"a\"; content:!\"b\";", Growth::Whole),
            ("file.data; content:\"a\"; endswith;", Growth::Whole),
            (
                "file.data; content:\"a\"; isdataat:!4,relative;",
                Growth::Whole,
            ),
            ("file.data; content:\"a\"; pcre:\"/b$/\";", Growth::Whole),
            (
                "file.data; content:\"a\"; pcre:\"/b(?!c)/\";",
                Growth::Whole,
            ),
            ("file.data; content:\"a\"; bsize:1;", Growth::Whole),
            ("file.data; to_lowercase; content:\"a\";", Growth::Whole),
            (
                "file.data; content:\"a\"; file.name; content:\"b\";",
                Growth::Whole,
            ),
        ] {
            assert_eq!(grown(options), expected, "{options}");
        }
    }
}
