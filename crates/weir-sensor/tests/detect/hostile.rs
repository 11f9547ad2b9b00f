//! Bodies made to cost much, against the rules that they were made for: the work is counted, not timed.

use weir_sensor::app::{App, Transaction};
use weir_sensor::buffer::Buffer;
use weir_sensor::matcher::Engine;
use weir_sensor::packet::Direction::ToClient;
use weir_sensor::rules::*;

use super::ENGINES;
use super::build::*;
use super::material::say;

fn answer(body: &[u8]) -> Transaction {
    let mut t = Transaction::default();
    t.app = App::Http1;
    t.complete = [false, true];
    t.push(Buffer::FileData, ToClient, body);
    t
}

/// Whether the conditions hold of a body, the units of work for it, and how often they were given up.
fn decided(conditions: &[Condition], body: &[u8]) -> (bool, u64, u64) {
    let mut answers = Vec::new();
    for engine in ENGINES {
        let rule = on(
            1,
            HeaderProtocol::App,
            Buffer::FileData,
            conditions.to_vec(),
        );
        let mut bed = Bed::new(vec![rule], engine, 6, App::Http1);
        let held = !bed.transaction(&mut answer(body), false).is_empty();
        let counts = bed.detector.counts().evaluation;
        let by_rule = bed.detector.limited().get(&(1, 1)).copied().unwrap_or(0);
        assert_eq!(by_rule > 0, counts.limited + counts.pcre_limited > 0);
        answers.push((held, counts.work, by_rule));
    }
    assert_eq!(answers[0], answers[1], "the engines differ");
    answers[0]
}

fn after(bytes: &[u8], nocase: bool) -> Condition {
    with(bytes, |c| (c.distance, c.nocase) = (is(0), nocase))
}

fn within(bytes: &[u8], within: i64) -> Condition {
    with(bytes, |c| (c.distance, c.within) = (is(0), is(within)))
}

/// The rule that five answers of 93 KB stopped a sensor with.
fn lengths() -> [Condition; 4] {
    [
        with(b"<script", |c| c.nocase = true),
        after(b"<", false),
        with(b".length", |c| {
            (c.distance, c.nocase) = (is(0), true);
        }),
        after(b"^=", false),
    ]
}

#[test]
fn a_tail_that_failed_is_not_tried_from_later_places() {
    let mut body = b"<script".to_vec();
    body.extend(b"<".repeat(3000));
    body.extend(b"g".repeat(90_000));
    body.extend(b".length x");
    let (held, work, limited) = decided(&lengths(), &body);
    assert!(!held);
    assert_eq!(limited, 0);
    // Each of the four contents is searched for once.
    assert!(work < 2 * body.len() as u64, "{work} for {}", body.len());
    body.extend(b"^=");
    let (held, _, limited) = decided(&lengths(), &body);
    assert!(held);
    assert_eq!(limited, 0);
}

#[test]
fn a_match_behind_many_tries_is_found() {
    let mut body = b"<".repeat(50_000);
    body.extend(b"x");
    let (held, _, limited) = decided(&[plain(b"<"), within(b"x", 1)], &body);
    assert!(held);
    assert_eq!(limited, 0);
}

#[test]
fn work_is_in_proportion_to_the_buffer() {
    let jump = Condition::ByteJump(ByteJump {
        read: Read {
            relative: true,
            ..read(2, 0)
        },
        multiplier: 1,
        align: false,
        from_beginning: true,
        from_end: false,
        post_offset: Number::Is(4),
    });
    let relative = |pattern: &str| pcre(pattern, |p| p.relative = true);
    let long = |n: usize| {
        let mut body = b"<a <bstart".to_vec();
        body.extend(b"<a ".repeat(n / 3));
        body
    };
    let same = |n: usize| [b"a".repeat(60), b"b cd start".to_vec(), b"a".repeat(n)].concat();
    let numbers = |n: usize| {
        let mut body = b"nonestart".to_vec();
        for i in 0..n / 3 {
            let to = (i * 7919 % n) as u16;
            body.extend([b'<', (to >> 8) as u8, to as u8]);
        }
        body
    };
    type Body<'a> = &'a dyn Fn(usize) -> Vec<u8>;
    let cases: [(&str, Vec<Condition>, Body<'_>); 9] = [
        (
            "bounded contents",
            vec![
                plain(b"start"),
                after(b"<", false),
                within(b"a", 90),
                within(b" ", 90),
                within(b"<a <b", 900),
            ],
            &long,
        ),
        (
            "one byte again and again",
            vec![
                plain(b"start"),
                after(b"a", false),
                within(b"a", 400),
                within(b"a", 400),
                within(b"a", 400),
                after(b"b", false),
            ],
            &same,
        ),
        (
            "a negated content",
            vec![
                plain(b"start"),
                after(b"<", false),
                with(b"\x00", |c| (c.negated, c.distance) = (true, is(0))),
                within(b"b", 1),
            ],
            &long,
        ),
        (
            "what almost fits",
            vec![
                plain(b"start"),
                after(&[&[b'a'; 60][..], b"b"].concat(), true),
            ],
            &same,
        ),
        (
            "an expression ahead",
            vec![plain(b"start"), after(b"a", false), relative("[bc]d")],
            &same,
        ),
        (
            "an expression here",
            vec![plain(b"start"), after(b"a", false), relative("^\\s*=")],
            &same,
        ),
        (
            "an expression that goes far",
            vec![plain(b"start"), after(b"a", false), relative("^[a-z]+=")],
            &same,
        ),
        (
            "jumps",
            vec![
                plain(b"start"),
                after(b"<", false),
                jump,
                after(b"none", false),
            ],
            &numbers,
        ),
        (
            "Base64",
            vec![
                plain(b"start"),
                after(b"a", false),
                Condition::Base64Decode(Base64 {
                    bytes: None,
                    offset: 0,
                    relative: true,
                    mode: None,
                }),
                Condition::Base64Data,
                plain(b"none"),
            ],
            &same,
        ),
    ];
    for (name, conditions, body) in cases {
        let each = [10_000, 60_000].map(|n| {
            let body = body(n);
            let (held, work, limited) = decided(&conditions, &body);
            assert!(!held, "{name}");
            say(&format!(
                "{name}: {n} bytes, {:.1} units a byte, given up {limited} times",
                work as f64 / body.len() as f64
            ));
            work as f64 / body.len() as f64
        });
        assert!(each[1] < 17.0, "{name}: {each:?}");
        assert!(each[1] < 1.2 * each[0] + 1.0, "{name}: {each:?}");
    }
}

#[test]
fn a_rule_that_is_given_up_is_named() {
    let conditions = [
        plain(b"start"),
        after(b"a", false),
        pcre("^[a-z]+=", |p| p.relative = true),
    ];
    let body = [b"start".to_vec(), b"a".repeat(50_000)].concat();
    let (held, work, limited) = decided(&conditions, &body);
    assert!(!held);
    assert_eq!(limited, 1);
    assert!(work <= 16 * (body.len() as u64 + 1000), "{work}");
    // Given up by the library, it is named as well.
    let rule = on(
        7,
        HeaderProtocol::App,
        Buffer::FileData,
        vec![plain(b"aaaa"), pcre("^(a+)+\\1$", |_| {})],
    );
    let mut bed = Bed::new(vec![rule], Engine::Prefilter, 6, App::Http1);
    let body = [b"a".repeat(60), b"!".to_vec()].concat();
    assert!(bed.transaction(&mut answer(&body), false).is_empty());
    assert_eq!(bed.detector.limited().get(&(1, 7)), Some(&1));
}

/// What PCRE2 could not decide in a few steps is charged: places at which it goes back cost more than places at which it does not.
#[test]
fn steps_of_the_library_are_charged() {
    let work = |times: usize| {
        let conditions = [plain(b"start"), pcre("^(a+)+\\1$", |p| p.relative = true)];
        let body = [b"start".to_vec(), b"a".repeat(times), b"?".to_vec()].concat();
        let (held, work, limited) = decided(&conditions, &body);
        assert!(!held);
        assert_eq!(limited, 0, "{times}");
        work
    };
    let [few, some, many] = [3, 7, 9].map(work);
    assert!(few < 128, "{few}");
    assert!((few + 64..few + 64 + 512).contains(&some), "{some}");
    assert!(many > few + 64 + 512, "{many}");
}
