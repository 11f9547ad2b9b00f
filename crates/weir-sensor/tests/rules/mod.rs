//! Rules of both dialects: written by hand, to the exact model; what is refused, where and why; tables beside the rules; properties of values; words and published sets.

mod analysis;
mod files;
mod language;
mod options;
mod phrases;
mod refusals;
mod sets;
mod values;
mod words;

use weir_sensor::buffer::Buffer;
use weir_sensor::rules::*;

fn loaded_with(settings: &LoadSettings, text: &str) -> Loaded {
    let mut loader = Loader::new(settings);
    loader.text("test.rules", text.as_bytes());
    loader.finish()
}

fn loaded(dialect: Dialect, text: &str) -> Loaded {
    let settings = LoadSettings {
        dialect,
        ..LoadSettings::default()
    };
    loaded_with(&settings, text)
}

/// The rule with these options, in a dialect and under a header.
fn rule_of(dialect: Dialect, head: &str, options: &str) -> Rule {
    let text = format!("{head} ({options} sid:7;)");
    let mut loaded = loaded(dialect, &text);
    if let Some(refused) = loaded.refused.first() {
        panic!("{}", refused.explain());
    }
    assert_eq!(loaded.rules.len(), 1, "{text}");
    loaded.rules.remove(0)
}

const TCP: &str = "alert tcp any any -> any any";

const HTTP: &str = "alert http any any -> any any";

fn suricata(options: &str) -> Rule {
    rule_of(Dialect::Suricata, TCP, options)
}

fn http(options: &str) -> Rule {
    rule_of(Dialect::Suricata, HTTP, options)
}

fn snort(options: &str) -> Rule {
    rule_of(Dialect::Snort, TCP, options)
}

/// Line, column, sort and reason of the only rule, which must be refused.
fn refused_of(dialect: Dialect, text: &str) -> Refused {
    let mut loaded = loaded(dialect, text);
    assert!(loaded.rules.is_empty(), "this loads: {text}");
    assert_eq!(loaded.refused.len(), 1, "{text}");
    loaded.refused.remove(0)
}

/// What the carets are under, the sort and the reason.
fn problem(head: &str, options: &str) -> (String, Kind, String) {
    problem_in(Dialect::Suricata, head, options)
}

fn problem_in(dialect: Dialect, head: &str, options: &str) -> (String, Kind, String) {
    let text = format!("{head} ({options} sid:7;)");
    let refused = refused_of(dialect, &text);
    assert_eq!(refused.sid, Some(7));
    let from = refused.column as usize - 1;
    let marked = text
        .chars()
        .skip(from)
        .take(refused.width as usize)
        .collect();
    (marked, refused.kind, refused.reason)
}

fn content(bytes: &[u8]) -> Content {
    Content::new(bytes.to_vec())
}

fn group(buffer: Buffer, conditions: Vec<Condition>) -> Group {
    Group {
        way: None,
        buffer,
        transforms: Vec::new(),
        conditions,
    }
}

fn exactly(n: u64) -> Range {
    Range::new(n, n, false)
}

fn read(bytes: i64, offset: i64) -> Read {
    Read {
        bytes: Number::Is(bytes),
        offset: Number::Is(offset),
        relative: false,
        little: false,
        string: None,
        dce: false,
        bitmask: None,
    }
}
