//! What the tests of all parsers share, and tests over all of them.

use super::*;
use crate::buffer::BufferSet;
use crate::packet::Direction;

/// Everything, with limits that no small test meets.
pub(crate) fn wanted() -> Asked {
    Asked::from(Wanted {
        buffers: BufferSet::all(),
        request_body: 100_000,
        response_body: 100_000,
        decompressed: 1 << 20,
        records: true,
        sums: crate::app::Sums::default(),
        whole_files: false,
        keys: true,
        said: crate::app::Said::ALL,
    })
}

/// Everything that transactions say, to be compared.
pub(super) fn dump(out: &Transactions) -> Vec<String> {
    out.live
        .iter()
        .map(|t| {
            let buffers: Vec<_> = t
                .all()
                .map(|(b, d, bytes)| format!("{b:?} {d:?} {:?}", String::from_utf8_lossy(bytes)))
                .collect();
            format!(
                "{} {:?} {:?} {:?} {:?} {:?} {:?} {:#?}",
                t.id, t.app, t.complete, t.done, t.events, t.facts, t.files, buffers
            ) + &serde_json::to_string(&(&t.record, &t.beside)).unwrap()
        })
        .collect()
}

/// Feeds a conversation in pieces of `step` bytes.
pub(super) fn converse(parts: &[(Direction, &[u8])], step: usize, ports: Ports) -> Conversation {
    let w = wanted();
    let mut c = Conversation::stream(ports);
    for (d, bytes) in parts {
        for piece in bytes.chunks(step) {
            c.data(*d, piece, 9, &w);
        }
    }
    c.close();
    c
}

/// Feeds whole and in pieces: all must agree.
pub(super) fn converse_all(parts: &[(Direction, &[u8])], ports: Ports) -> Conversation {
    let whole = converse(parts, usize::MAX, ports);
    for step in [1, 2, 3, 5, 7, 11, 64, 500] {
        let cut = converse(parts, step, ports);
        assert_eq!(cut.app(), whole.app());
        let (a, b) = (dump(&cut.transactions), dump(&whole.transactions));
        for (a, b) in a.iter().zip(&b) {
            assert_eq!(a, b, "pieces of {step}");
        }
        assert_eq!(a.len(), b.len());
    }
    whole
}

#[test]
fn each_protocol_has_one_row() {
    for app in App::ALL.iter().skip(2) {
        let rows = PROTOCOLS.iter().filter(|p| p.app == *app).count();
        assert_eq!(rows, 1, "{app:?}");
    }
    assert_eq!(PROTOCOLS.len() + 2, App::ALL.len());
}

/// The protocol and the event that a rule names, if something raises it.
fn raised(app: &str, name: &str) -> Option<(&'static str, &'static str)> {
    let found = event(app, name).filter(|asking| asking.raised)?;
    Some((found.app, found.event))
}

#[test]
fn rows_agree_with_themselves() {
    let asked = wanted();
    let mut keywords = std::collections::HashSet::new();
    for row in PROTOCOLS {
        let name = row.app.name();
        // What tells transactions apart is a parser.
        if let Some(kind) = row.kind {
            assert_eq!(kind.app, row.app, "{name}");
            assert!(kind.events.is_sorted(), "{name}");
            for stream in [true, false] {
                assert!(parser(row.app, stream, &asked).is_some(), "{name}");
            }
            for (older, now) in row.older_events {
                assert_eq!(raised(name, older), Some((name, *now)));
            }
            for unraised in row.unraised_events {
                assert!(!kind.events.contains(unraised), "{name}: {unraised}");
                assert!(event(name, unraised).is_some_and(|asking| !asking.raised));
            }
        } else {
            assert!(row.facts.is_empty() && row.hooks.is_empty(), "{name}");
        }
        for fact in row.facts {
            assert!(!fact.what.is_empty(), "{}", fact.keyword);
            for word in [fact.keyword].iter().chain(fact.aliases) {
                assert!(keywords.insert(*word), "{word} has two rows");
                assert!(crate::buffer::Buffer::sticky(word).is_none(), "{word}");
            }
        }
    }
}

#[test]
fn events_are_known_by_all_names_of_their_protocol() {
    let known = Some(("http", "range_invalid"));
    assert_eq!(raised("http1", "range_invalid"), known);
    assert_eq!(raised("http", "range_invalid"), known);
    assert_eq!(event("http", "range_inavlid"), None);
    assert_eq!(
        raised("tftp", "too_many_transactions"),
        Some(("tftp", TOO_MANY))
    );
    assert_eq!(event("telnet", "too_many_transactions"), None);
}

#[test]
fn each_parser_is_fuzzed() {
    let corpora = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for row in PROTOCOLS.iter().filter(|p| p.parser.is_some()) {
        let folder = corpora.join(format!("sensor_{}", row.app.name()));
        let seeds = std::fs::read_dir(&folder).map_or(0, Iterator::count);
        assert!(seeds > 0, "{}: no inputs to begin with", folder.display());
    }
}
