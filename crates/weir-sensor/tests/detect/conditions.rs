//! Conditions, edge by edge: contents and their modifiers, sizes, expressions, base64; each decided in a transaction, a packet and a stream, which must agree.

use weir_sensor::app::App;
use weir_sensor::buffer::Buffer;
use weir_sensor::matcher::Engine;
use weir_sensor::packet::Direction::ToServer;
use weir_sensor::rules::*;

use super::ENGINES;
use super::build::*;

/// Decides conditions in every way that a buffer can come: in a transaction, a packet, a stream at once; all must agree.
pub(super) fn decided(conditions: &[Condition], bytes: &[u8]) -> bool {
    let mut answers = Vec::new();
    for engine in ENGINES {
        let rule = on(1, HeaderProtocol::App, Buffer::HttpUri, conditions.to_vec());
        let mut bed = Bed::new(vec![rule], engine, 6, App::Http1);
        let mut t = request(&[(Buffer::HttpUri, bytes)]);
        answers.push(!bed.transaction(&mut t, false).is_empty());
        if bytes.is_empty() {
            continue;
        }
        let rule = on(1, HeaderProtocol::Udp, Buffer::Payload, conditions.to_vec());
        let mut bed = Bed::new(vec![rule], engine, 17, App::Unknown);
        answers.push(!bed.packet(ToServer, bytes).is_empty());
        let rule = on(
            1,
            HeaderProtocol::TcpStream,
            Buffer::Payload,
            conditions.to_vec(),
        );
        let mut bed = Bed::new(vec![rule], engine, 6, App::Unknown);
        answers.push(!bed.segment(ToServer, bytes, true).is_empty());
    }
    assert!(
        answers.iter().all(|a| *a == answers[0]),
        "{answers:?} for {conditions:?} in {bytes:?}"
    );
    answers[0]
}

#[track_caller]
pub(super) fn holds(conditions: &[Condition], bytes: &[u8], wanted: bool) {
    assert_eq!(
        decided(conditions, bytes),
        wanted,
        "{conditions:?} in {:?}",
        String::from_utf8_lossy(bytes)
    );
}

#[test]
fn contents_stand_where_their_modifiers_say() {
    holds(&[plain(b"abc")], b"xxabc", true);
    holds(&[plain(b"abc")], b"xxABC", false);
    holds(&[with(b"aBc", |c| c.nocase = true)], b"xxAbC", true);
    holds(&[with(b"abc", |c| c.offset = is(2))], b"xxabc", true);
    holds(&[with(b"abc", |c| c.offset = is(3))], b"xxabc", false);
    holds(&[with(b"abc", |c| c.depth = is(5))], b"xxabc", true);
    holds(&[with(b"abc", |c| c.depth = is(4))], b"xxabc", false);
    holds(&[with(b"abc", |c| c.depth = is(400))], b"xxabc", true);
    holds(
        &[with(b"abc", |c| (c.offset, c.depth) = (is(2), is(3)))],
        b"xxabc",
        true,
    );
    holds(&[with(b"abc", |c| c.starts = true)], b"abcx", true);
    holds(&[with(b"abc", |c| c.starts = true)], b"xabc", false);
    holds(&[with(b"abc", |c| c.ends = true)], b"abcabc", true);
    holds(&[with(b"abc", |c| c.ends = true)], b"abcx", false);
    holds(
        &[with(b"abc", |c| (c.starts, c.ends) = (true, true))],
        b"abc",
        true,
    );
    holds(
        &[with(b"abc", |c| (c.starts, c.ends) = (true, true))],
        b"abcabc",
        false,
    );
}

#[test]
fn negated_contents_hold_at_the_edges() {
    let not = |change: fn(&mut Content)| {
        with(b"abc", move |c| {
            c.negated = true;
            change(c);
        })
    };
    holds(&[not(|_| {})], b"ab", true);
    holds(&[not(|_| {})], b"abc", false);
    holds(&[not(|c| c.depth = is(3))], b"xabc", true);
    holds(&[not(|c| c.depth = is(4))], b"xabc", false);
    holds(&[not(|c| c.offset = is(1))], b"abcx", true);
    holds(&[not(|c| c.offset = is(100))], b"abcx", true);
    holds(&[not(|c| c.ends = true)], b"abcx", true);
    holds(&[not(|c| c.ends = true)], b"xabc", false);
    holds(&[not(|c| c.starts = true)], b"xabc", true);
    // Relative: the next occurrence of what came before is tried.
    let after = with(b"c", |c| {
        (c.negated, c.distance, c.within) = (true, is(0), is(1))
    });
    holds(&[plain(b"ab"), after.clone()], b"abc", false);
    holds(&[plain(b"ab"), after.clone()], b"abcabd", true);
    holds(&[plain(b"ab"), after], b"xab", true);
}

#[test]
fn relative_contents_try_earlier_matches_again() {
    let next = |d: i64, w: i64| with(b"b", move |c| (c.distance, c.within) = (is(d), is(w)));
    holds(&[plain(b"a"), next(0, 1)], b"ab", true);
    holds(&[plain(b"a"), next(0, 1)], b"axbaxbab", true);
    holds(&[plain(b"a"), next(1, 1)], b"aaxb", true);
    holds(&[plain(b"a"), next(2, 1)], b"axb", false);
    // A negative distance goes back, but not before the start.
    holds(&[plain(b"ca"), next(-3, 1)], b"bca", true);
    holds(&[plain(b"a"), next(-10, 10)], b"bxa", true);
    holds(&[plain(b"a"), next(-10, 9)], b"bxa", true);
    holds(&[plain(b"a"), next(-10, 7)], b"bxa", false);
    // Nothing fits within 0.
    holds(&[plain(b"a"), next(0, 0)], b"ab", false);
    // Three in a chain, where only the second occurrence of the first leads on.
    let third = with(b"c", |c| (c.distance, c.within) = (is(0), is(1)));
    holds(&[plain(b"a"), next(0, 2), third.clone()], b"axbxabc", true);
    holds(&[plain(b"a"), next(0, 2), third], b"axbxabxc", false);
    // What is not relative does not depend on the place of what came before.
    holds(&[plain(b"b"), plain(b"a")], b"ab", true);
}

#[test]
fn data_and_sizes_are_counted_to_the_byte() {
    let at = |n: i64, relative: bool, negated: bool| Condition::IsDataAt {
        offset: Number::Is(n),
        relative,
        negated,
    };
    holds(&[plain(b"a"), at(2, false, false)], b"abc", true);
    holds(&[plain(b"a"), at(3, false, false)], b"abc", false);
    holds(&[plain(b"a"), at(3, false, true)], b"abc", true);
    holds(&[plain(b"a"), at(2, true, false)], b"abc", true);
    holds(&[plain(b"a"), at(3, true, false)], b"abc", false);
    holds(&[plain(b"c"), at(1, true, true)], b"abc", true);
    holds(&[plain(b"b"), at(1, true, true)], b"abc", false);
    holds(&[plain(b"b"), at(1, true, true)], b"abcb", true);
    let size = |low, high, negated| Condition::Size(Range::new(low, high, negated));
    holds(&[plain(b"a"), size(3, 3, false)], b"abc", true);
    holds(&[plain(b"a"), size(3, 3, true)], b"abc", false);
    holds(&[plain(b"a"), size(4, u64::MAX, false)], b"abc", false);
}

#[test]
fn expressions_begin_where_they_are_told() {
    holds(&[plain(b"a"), pcre("b+c", |_| {})], b"abbc", true);
    holds(
        &[plain(b"a"), pcre("^b", |p| p.relative = true)],
        b"xab",
        true,
    );
    holds(
        &[plain(b"a"), pcre("^b", |p| p.relative = true)],
        b"xaxab",
        true,
    );
    holds(
        &[plain(b"a"), pcre("^b", |p| p.relative = true)],
        b"bxa",
        false,
    );
    holds(
        &[plain(b"a"), pcre("B", |p| p.caseless = true)],
        b"ab",
        true,
    );
    holds(
        &[plain(b"a"), pcre("b", |p| p.negated = true)],
        b"ab",
        false,
    );
    holds(&[plain(b"a"), pcre("c", |p| p.negated = true)], b"ab", true);
    holds(
        &[plain(b"a"), pcre("b", |p| p.anchored = true)],
        b"ab",
        false,
    );
    // A content relative to an expression: its later matches are tried.
    let next = with(b"c", |c| (c.distance, c.within) = (is(0), is(1)));
    holds(&[plain(b"a"), pcre("b", |_| {}), next], b"abxbc", true);
    // An expression that would go back without an end: an automaton decides it, or it is given up.
    for (pattern, limited) in [("^(a+)+$", 0), ("^(a+)+\\1$", 1)] {
        let rule = on(
            1,
            HeaderProtocol::Udp,
            Buffer::Payload,
            vec![plain(b"aaaa"), pcre(pattern, |_| {})],
        );
        let mut bed = Bed::new(vec![rule], Engine::Prefilter, 17, App::Unknown);
        let mut long = vec![b'a'; 60];
        long.push(b'!');
        assert!(bed.packet(ToServer, &long).is_empty());
        let counts = bed.detector.counts().evaluation;
        assert_eq!(counts.pcre_limited, limited, "{pattern}");
    }
}

#[test]
fn base64_is_decoded_and_inspected() {
    let how = Base64 {
        bytes: None,
        offset: 0,
        relative: true,
        mode: None,
    };
    let conditions = [
        plain(b"data="),
        Condition::Base64Decode(how),
        Condition::Base64Data,
        plain(b"hello"),
    ];
    holds(&conditions, b"data=aGVsbG8=", true);
    holds(&conditions, b"data=aGVsbGw=", false);
    holds(&conditions, b"data=!!!!hello", false);
    holds(&conditions, b"data=zzzz data=aGVsbG8=", true);
    // Padding ends a group; half a byte is none, and then nothing was encoded.
    holds(&conditions, b"data=eA==aGVsbG8=", true);
    holds(&conditions, b"data=aGVsbG8=&x", true);
    holds(&conditions, b"data=aGVsbG8=x", false);
    holds(&conditions, b"data=aGVsbG8==", false);
}
