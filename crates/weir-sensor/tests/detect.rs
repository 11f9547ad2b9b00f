//! Detection: conditions against a reference that tries everything, edge by edge and at random; the kinds of rules; what flows remember; the order that makes workers equal.
#![allow(
    clippy::field_reassign_with_default,
    reason = "other fields are private"
)]

#[path = "material/rules.rs"]
mod build;
mod material;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use build::*;
use material::{Numbers, say};
use weir_sensor::app::{App, Transaction};
use weir_sensor::buffer::Buffer;
use weir_sensor::detect::{Decision, Match, Order, Ruleset, Sequencer};
use weir_sensor::matcher::Engine;
use weir_sensor::packet::Direction::{ToClient, ToServer};
use weir_sensor::rules::*;

const ENGINES: [Engine; 2] = [Engine::Prefilter, Engine::AhoCorasick];

/// Decides conditions in every way that a buffer can come: in a transaction, a packet, a stream at once; all must agree.
fn decided(conditions: &[Condition], bytes: &[u8]) -> bool {
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
fn holds(conditions: &[Condition], bytes: &[u8], wanted: bool) {
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
    let size = |low, high, negated| Condition::Size(Range { low, high, negated });
    holds(&[plain(b"a"), size(3, 3, false)], b"abc", true);
    holds(&[plain(b"a"), size(3, 3, true)], b"abc", false);
    holds(&[plain(b"a"), size(4, u64::MAX, false)], b"abc", false);
}

#[test]
fn numbers_are_tested_jumped_by_and_extracted() {
    let test = |read: Read, operator, value: i64| {
        Condition::ByteTest(ByteTest {
            read,
            negated: false,
            operator,
            value: Number::Is(value),
        })
    };
    holds(
        &[test(read(2, 0), TestOperator::Equal, 0x0102)],
        b"\x01\x02",
        true,
    );
    holds(
        &[test(
            Read {
                little: true,
                ..read(2, 0)
            },
            TestOperator::Equal,
            0x0201,
        )],
        b"\x01\x02",
        true,
    );
    holds(
        &[test(read(2, 1), TestOperator::Greater, 0)],
        b"\x01\x02",
        false,
    );
    holds(
        &[test(read(4, 0), TestOperator::And, 0x80)],
        b"\0\0\0\xc0",
        true,
    );
    holds(
        &[test(
            Read {
                string: Some(10),
                ..read(3, 0)
            },
            TestOperator::Equal,
            123,
        )],
        b"1234",
        true,
    );
    // Without a number of digits: as many as there are.
    for (bytes, is) in [
        (&b"1234 rest"[..], true),
        (b"1234", true),
        (b"12345", false),
        (b"", false),
    ] {
        let digits = Read {
            string: Some(10),
            ..read(0, 0)
        };
        holds(&[test(digits, TestOperator::Equal, 1234)], bytes, is);
    }
    holds(
        &[test(
            Read {
                string: Some(16),
                ..read(4, 0)
            },
            TestOperator::Equal,
            0x1f,
        )],
        b"0x1fz",
        true,
    );
    holds(
        &[test(
            Read {
                string: Some(10),
                ..read(3, 0)
            },
            TestOperator::GreaterEqual,
            0,
        )],
        b"xyz",
        false,
    );
    holds(
        &[test(
            Read {
                bitmask: Some(0xf0),
                ..read(1, 0)
            },
            TestOperator::Equal,
            5,
        )],
        b"\x5a",
        true,
    );
    holds(
        &[
            plain(b"a"),
            test(
                Read {
                    relative: true,
                    ..read(1, 1)
                },
                TestOperator::Equal,
                9,
            ),
        ],
        b"a\x01\x01a\x00\x09",
        true,
    );
    let jump = |change: fn(&mut ByteJump)| {
        let mut j = ByteJump {
            read: read(1, 0),
            multiplier: 1,
            align: false,
            from_beginning: false,
            from_end: false,
            post_offset: Number::Is(0),
        };
        change(&mut j);
        Condition::ByteJump(j)
    };
    let next = with(b"z", |c| (c.distance, c.within) = (is(0), is(1)));
    holds(&[jump(|_| {}), next.clone()], b"\x02xxz", true);
    holds(&[jump(|_| {}), next.clone()], b"\x03xxz", false);
    holds(
        &[jump(|j| j.align = true), next.clone()],
        b"\x02xxxxz",
        true,
    );
    holds(
        &[jump(|j| j.multiplier = 2), next.clone()],
        b"\x01xxz",
        true,
    );
    holds(
        &[jump(|j| j.from_beginning = true), next.clone()],
        b"\x02xz",
        true,
    );
    holds(
        &[
            jump(|j| (j.read, j.from_end, j.post_offset) = (read(0, 0), true, Number::Is(-2))),
            next.clone(),
        ],
        b"xxzx",
        true,
    );
    holds(
        &[jump(|j| j.post_offset = Number::Is(-1)), next],
        b"\x02xz",
        true,
    );
    let extract = Condition::ByteExtract(ByteExtract {
        read: read(1, 0),
        multiplier: 1,
        align: 0,
        name: "n".into(),
    });
    let there = with(b"z", |c| {
        (c.offset, c.depth) = (Some(Number::Variable("n".into())), is(1))
    });
    holds(&[extract.clone(), there.clone()], b"\x03xxz", true);
    holds(&[extract, there], b"\x02xxz", false);
    // An extraction behind a content that occurs twice: the second occurrence is the right one.
    let relative = Condition::ByteExtract(ByteExtract {
        read: Read {
            relative: true,
            ..read(1, 0)
        },
        multiplier: 1,
        align: 0,
        name: "n".into(),
    });
    let within = with(b"z", |c| {
        (c.distance, c.within) = (Some(Number::Variable("n".into())), is(1))
    });
    holds(&[plain(b"a"), relative, within], b"a\x01za\x01xz", true);
    let math = Condition::ByteMath(ByteMath {
        read: read(1, 0),
        operator: MathOperator::Multiply,
        value: Number::Is(2),
        name: "m".into(),
    });
    let at = with(b"z", |c| {
        (c.offset, c.depth) = (Some(Number::Variable("m".into())), is(1))
    });
    holds(&[math, at], b"\x02xxxz", true);
}

#[test]
fn extreme_numbers_do_no_harm() {
    let numbers = [i64::MIN, -1, 0, 1, 255, i64::MAX];
    let extremes = [
        [0xff; 8],
        [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        [0x80, 0, 0, 0, 0, 0, 0, 0],
    ];
    for extreme in extremes {
        let mut bytes = b"abcd".to_vec();
        bytes.extend_from_slice(&extreme);
        for n in numbers {
            for relative in [false, true] {
                let number = || Number::Is(n);
                let variable = || Number::Variable("v".into());
                let extract = |multiplier| {
                    Condition::ByteExtract(ByteExtract {
                        read: Read {
                            relative,
                            ..read(8, if relative { 0 } else { 4 })
                        },
                        multiplier,
                        align: 4,
                        name: "v".into(),
                    })
                };
                let at = |offset| Condition::IsDataAt {
                    offset,
                    relative,
                    negated: false,
                };
                let place = |offset: Number, distance: bool| {
                    with(b"b", |c| {
                        if distance {
                            (c.distance, c.within) = (Some(offset.clone()), Some(offset));
                        } else {
                            (c.offset, c.depth) = (Some(offset.clone()), Some(offset));
                        }
                    })
                };
                let jump = Condition::ByteJump(ByteJump {
                    read: Read {
                        relative,
                        ..read(8, if relative { 0 } else { 4 })
                    },
                    multiplier: u32::MAX,
                    align: true,
                    from_beginning: false,
                    from_end: relative,
                    post_offset: number(),
                });
                let math = |operator| {
                    Condition::ByteMath(ByteMath {
                        read: Read {
                            relative,
                            ..read(8, if relative { 0 } else { 4 })
                        },
                        operator,
                        value: number(),
                        name: "m".into(),
                    })
                };
                for tail in [
                    vec![at(number())],
                    vec![place(number(), true)],
                    vec![place(number(), false)],
                    vec![jump],
                    vec![extract(1), at(variable()), place(variable(), true)],
                    vec![extract(u32::MAX), place(variable(), false)],
                    vec![math(MathOperator::Multiply)],
                    vec![math(MathOperator::Divide)],
                    vec![math(MathOperator::Left)],
                    vec![
                        math(MathOperator::Right),
                        math(MathOperator::Subtract),
                        math(MathOperator::Add),
                    ],
                ] {
                    let mut conditions = vec![plain(b"abcd")];
                    conditions.extend(tail);
                    decided(&conditions, &bytes);
                }
            }
        }
    }
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
    // An expression that would not end is given up.
    let rule = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"aaaa"), pcre("^(a+)+$", |_| {})],
    );
    let mut bed = Bed::new(vec![rule], Engine::Prefilter, 17, App::Unknown);
    let mut long = vec![b'a'; 60];
    long.push(b'!');
    assert!(bed.packet(ToServer, &long).is_empty());
    assert_eq!(bed.detector.counts().evaluation.pcre_limited, 1);
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
}

/// Conditions at random: contents of few letters with every modifier, and numbers.
fn random_conditions(n: &mut Numbers, simple: bool) -> Vec<Condition> {
    let small = |n: &mut Numbers| n.below(8) as i64;
    let mut out = vec![];
    let mut extracted = false;
    for i in 0..1 + n.below(4) {
        let bytes: Vec<u8> = (0..1 + n.below(3))
            .map(|_| b"abAB"[n.below(if simple { 2 } else { 4 })])
            .collect();
        let kind = if i == 0 || simple { 0 } else { n.below(10) };
        out.push(match kind {
            0..=5 => with(&bytes, |c| {
                c.nocase = n.chance(3);
                c.negated = !simple && i > 0 && n.chance(4);
                match n.below(5) {
                    0 => c.offset = is(small(n)),
                    1 => (c.offset, c.depth) = (is(small(n)), is(bytes.len() as i64 + small(n))),
                    2 if i > 0 => c.distance = is(small(n) - 3),
                    3 if i > 0 => {
                        (c.distance, c.within) =
                            (is(small(n) - 3), is(bytes.len() as i64 + small(n)))
                    }
                    4 if !simple && n.chance(3) => c.ends = true,
                    4 if n.chance(3) => c.starts = true,
                    _ => {}
                }
                if extracted && n.chance(3) && c.distance.is_some() {
                    c.distance = Some(Number::Variable("v".into()));
                }
                if extracted && n.chance(3) && c.offset.is_some() {
                    c.offset = Some(Number::Variable("v".into()));
                }
            }),
            6 => Condition::IsDataAt {
                offset: Number::Is(small(n)),
                relative: n.chance(2),
                negated: n.chance(2),
            },
            7 => Condition::ByteTest(ByteTest {
                read: Read {
                    relative: n.chance(2),
                    bitmask: n.chance(3).then_some(0x0f),
                    ..read(1, small(n) - 2)
                },
                negated: n.chance(3),
                operator: [
                    TestOperator::Less,
                    TestOperator::Greater,
                    TestOperator::Equal,
                    TestOperator::And,
                ][n.below(4)],
                value: Number::Is([0x61, 0x62, 1, 2][n.below(4)]),
            }),
            8 => {
                extracted = true;
                Condition::ByteExtract(ByteExtract {
                    // Letters are far too large as distances; their low bits are not.
                    read: Read {
                        relative: n.chance(2),
                        bitmask: Some(7),
                        ..read(1, small(n) - 2)
                    },
                    multiplier: 1,
                    align: if n.chance(3) { 2 } else { 0 },
                    name: "v".into(),
                })
            }
            _ => Condition::ByteJump(ByteJump {
                read: Read {
                    relative: n.chance(2),
                    bitmask: Some(3),
                    ..read(1, small(n) - 2)
                },
                multiplier: 1,
                align: n.chance(3),
                from_beginning: n.chance(3),
                from_end: false,
                post_offset: Number::Is(small(n) - 3),
            }),
        });
    }
    out
}

fn random_bytes(n: &mut Numbers, most: usize) -> Vec<u8> {
    (0..n.below(most)).map(|_| b"abAB"[n.below(4)]).collect()
}

#[test]
fn random_conditions_are_decided_as_the_reference_decides_them() {
    let seeds = if std::env::var_os("WEIR_LONG").is_some() {
        40_000
    } else {
        1500
    };
    let mut held = 0;
    for seed in 0..seeds {
        let mut n = Numbers(seed);
        let mut conditions = random_conditions(&mut n, false);
        for _ in 0..4 {
            let bytes = random_bytes(&mut n, 20);
            let wanted = reference(&conditions, &bytes);
            held += usize::from(wanted);
            if decided(&conditions, &bytes) == wanted {
                continue;
            }
            // Leave out what does not matter for the difference.
            let mut at = 0;
            while at < conditions.len() && conditions.len() > 1 {
                let mut fewer = conditions.clone();
                fewer.remove(at);
                let valid = std::panic::catch_unwind(|| {
                    decided(&fewer, &bytes) != reference(&fewer, &bytes)
                });
                if matches!(valid, Ok(true)) {
                    conditions = fewer;
                } else {
                    at += 1;
                }
            }
            panic!(
                "seed {seed}: wanted {wanted} of {conditions:?} in {:?}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }
    say(&format!(
        "{seeds} sets of conditions, {held} buffers in which they held"
    ));
    assert!(
        held > seeds as usize / 10,
        "too few of the random buffers match to prove much"
    );
}

#[test]
fn streams_match_however_they_are_cut() {
    let seeds = if std::env::var_os("WEIR_LONG").is_some() {
        40_000
    } else {
        2000
    };
    let mut held = 0;
    for seed in 0..seeds {
        let mut n = Numbers(seed ^ 0x5eed);
        let conditions = random_conditions(&mut n, true);
        let bytes = random_bytes(&mut n, 40);
        let wanted = reference(&conditions, &bytes);
        held += u32::from(wanted);
        for engine in ENGINES {
            for protocol in [HeaderProtocol::TcpStream, HeaderProtocol::Tcp] {
                let rule = on(1, protocol, Buffer::Payload, conditions.clone());
                let mut bed = Bed::new(vec![rule], engine, 6, App::Unknown);
                let mut rest = bytes.as_slice();
                let mut count = 0;
                let mut cuts = Vec::new();
                while !rest.is_empty() {
                    let (now, later) = rest.split_at((1 + n.below(9)).min(rest.len()));
                    count += bed.segment(ToServer, now, later.is_empty()).len();
                    cuts.push(now.len());
                    rest = later;
                }
                // A packet by itself may hold a place counted from its own start: `tcp` may match more.
                let right = if protocol == HeaderProtocol::Tcp {
                    !wanted || count > 0
                } else {
                    (count > 0) == wanted
                };
                assert!(
                    right,
                    "seed {seed}: {count} matches, wanted {wanted}: {conditions:?} in {:?} cut {cuts:?}",
                    String::from_utf8_lossy(&bytes)
                );
            }
        }
    }
    say(&format!("{seeds} streams, {held} of them match"));
}

#[test]
fn a_stream_rule_matches_once_for_the_same_bytes() {
    for engine in ENGINES {
        let plain_rule = on(
            1,
            HeaderProtocol::Tcp,
            Buffer::Payload,
            vec![plain(b"needle")],
        );
        let placed = on(
            2,
            HeaderProtocol::Tcp,
            Buffer::Payload,
            vec![with(b"needle", |c| c.depth = is(20))],
        );
        let mut bed = Bed::new(vec![plain_rule, placed], engine, 6, App::Unknown);
        assert_eq!(bed.segment(ToServer, b"xx nee", false), [0_u32; 0]);
        assert_eq!(bed.segment(ToServer, b"dle yy", false), [1, 2]);
        assert_eq!(bed.segment(ToServer, b"zz", false), [0_u32; 0]);
        // In one packet: the packet and the stream together match once.
        assert_eq!(bed.segment(ToServer, b"needle", false), [2, 1]);
        assert_eq!(bed.segment(ToServer, b"", true), [0_u32; 0]);
        assert_eq!(bed.segment(ToClient, b"needle", false), [2, 1]);
    }
}

#[test]
fn transforms_change_what_is_searched() {
    let mut rule = on(
        1,
        HeaderProtocol::App,
        Buffer::HttpHost,
        vec![with(b".evil.com", |c| c.ends = true)],
    );
    rule.groups[0].transforms = vec![Transform::DotPrefix];
    for engine in ENGINES {
        for (host, wanted) in [
            (&b"evil.com"[..], true),
            (b"a.evil.com", true),
            (b"notevil.com", false),
        ] {
            let mut bed = Bed::new(vec![rule.clone()], engine, 6, App::Http1);
            let mut t = request(&[(Buffer::HttpHost, host)]);
            assert_eq!(!bed.transaction(&mut t, false).is_empty(), wanted);
        }
    }
}

#[test]
fn conditions_of_one_group_hold_for_one_instance() {
    let both = on(
        1,
        HeaderProtocol::App,
        Buffer::DnsQuery,
        vec![plain(b"aaaa"), plain(b"bbbb")],
    );
    for (names, wanted) in [
        (vec![&b"aaaa.bbbb"[..]], true),
        (vec![b"aaaa", b"bbbb"], false),
    ] {
        let mut bed = Bed::new(vec![both.clone()], Engine::Prefilter, 17, App::Dns);
        let mut t = Transaction::default();
        t.app = App::Dns;
        t.complete = [true, false];
        for name in names {
            t.push(Buffer::DnsQuery, ToServer, name);
        }
        assert_eq!(!bed.transaction(&mut t, false).is_empty(), wanted);
    }
}

#[test]
fn absent_buffers_are_asked_for() {
    let absent = |or_else, more: Vec<Condition>| {
        let mut r = on(1, HeaderProtocol::App, Buffer::HttpUserAgent, more);
        r.groups[0].conditions.insert(0, Condition::Absent(or_else));
        r
    };
    let decide = |rule: Rule, buffers: &[(Buffer, &[u8])]| {
        let mut bed = Bed::new(vec![rule], Engine::Prefilter, 6, App::Http1);
        !bed.transaction(&mut request(buffers), false).is_empty()
    };
    let uri: (Buffer, &[u8]) = (Buffer::HttpUri, b"/");
    assert!(decide(absent(false, vec![]), &[uri]));
    assert!(!decide(
        absent(false, vec![]),
        &[uri, (Buffer::HttpUserAgent, b"x")]
    ));
    assert!(decide(absent(true, vec![plain(b"curl")]), &[uri]));
    assert!(decide(
        absent(true, vec![plain(b"curl")]),
        &[(Buffer::HttpUserAgent, b"curl/8")]
    ));
    assert!(!decide(
        absent(true, vec![plain(b"curl")]),
        &[(Buffer::HttpUserAgent, b"wget")]
    ));
    // A negated content wants its buffer there.
    let not = on(
        1,
        HeaderProtocol::App,
        Buffer::HttpUserAgent,
        vec![with(b"curl", |c| c.negated = true)],
    );
    assert!(!decide(not.clone(), &[uri]));
    assert!(decide(not, &[(Buffer::HttpUserAgent, b"wget")]));
}

#[test]
fn rules_of_both_directions_are_decided_once_at_the_end() {
    let mut rule = on(
        1,
        HeaderProtocol::App,
        Buffer::HttpUri,
        vec![plain(b"/admin")],
    );
    rule.groups.push(Group {
        buffer: Buffer::HttpStatusCode,
        transforms: vec![],
        conditions: vec![plain(b"200")],
    });
    for engine in ENGINES {
        let mut bed = Bed::new(vec![rule.clone()], engine, 6, App::Http1);
        let mut t = request(&[(Buffer::HttpUri, b"/admin")]);
        assert!(bed.transaction(&mut t, false).is_empty());
        t.push(Buffer::HttpStatusCode, ToClient, b"200");
        t.complete = [true; 2];
        assert_eq!(bed.transaction(&mut t, false), [1]);
        assert!(bed.transaction(&mut t, true).is_empty());
    }
}

#[test]
fn a_stream_part_waits_for_its_transaction() {
    let mut rule = on(1, HeaderProtocol::App, Buffer::HttpUri, vec![plain(b"/x")]);
    rule.groups.push(Group {
        buffer: Buffer::Payload,
        transforms: vec![],
        conditions: vec![plain(b"weird bytes")],
    });
    for (bytes, wanted) in [(&b"GET /x weird bytes"[..], vec![1]), (b"GET /x", vec![])] {
        let mut bed = Bed::new(vec![rule.clone()], Engine::Prefilter, 6, App::Http1);
        assert!(bed.segment(ToServer, bytes, false).is_empty());
        assert_eq!(
            bed.transaction(&mut request(&[(Buffer::HttpUri, b"/x")]), false),
            wanted
        );
    }
}

fn flowbit(operation: BitOperation, name: &str) -> Bit {
    Bit::Flow {
        operation,
        names: name.split('|').map(str::to_owned).collect(),
    }
}

#[test]
fn bits_are_set_before_they_are_asked_for() {
    // Loaded the wrong way round; and the reader ranks higher by priority.
    let mut reader = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"bbbb")],
    );
    reader.bits = vec![flowbit(BitOperation::IsSet, "other|seen")];
    reader.priority = 1;
    let mut setter = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"aaaa")],
    );
    setter.bits = vec![flowbit(BitOperation::Set, "seen")];
    setter.silent = true;
    let mut clear = on(
        3,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"cccc")],
    );
    clear.bits = vec![flowbit(BitOperation::Unset, "seen")];
    for engine in ENGINES {
        let mut bed = Bed::new(
            vec![reader.clone(), setter.clone(), clear.clone()],
            engine,
            17,
            App::Unknown,
        );
        assert_eq!(bed.packet(ToServer, b"bbbb"), [0_u32; 0]);
        assert_eq!(bed.packet(ToServer, b"aaaa bbbb"), [1]);
        assert_eq!(bed.packet(ToServer, b"bbbb"), [1]);
        assert_eq!(bed.packet(ToServer, b"cccc"), [3]);
        assert_eq!(bed.packet(ToServer, b"bbbb"), [0_u32; 0]);
    }
}

#[test]
fn counters_count() {
    let flowint = |operator: &str, value: i64| Bit::Counter {
        name: "n".into(),
        operator: operator.into(),
        value: is(value),
    };
    let mut count = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"fail")],
    );
    count.bits = vec![flowint("+", 1)];
    count.silent = true;
    let mut ask = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"fail")],
    );
    ask.bits = vec![flowint(">=", 3)];
    let mut bed = Bed::new(vec![ask, count], Engine::Prefilter, 17, App::Unknown);
    let got: Vec<usize> = (0..4)
        .map(|_| bed.packet(ToServer, b"fail").len())
        .collect();
    assert_eq!(got, [0, 0, 1, 1]);
}

#[test]
fn pass_rules_silence_packets_and_flows() {
    let alert = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"evil")],
    );
    let mut pass = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"good")],
    );
    pass.action = Action::Pass;
    let mut bed = Bed::new(
        vec![alert.clone(), pass],
        Engine::Prefilter,
        17,
        App::Unknown,
    );
    assert_eq!(bed.packet(ToServer, b"evil"), [1]);
    assert_eq!(bed.packet(ToServer, b"evil good"), [0_u32; 0]);
    assert_eq!(bed.packet(ToServer, b"evil"), [1]);
    let mut whole = rule(3, HeaderProtocol::Udp);
    whole.action = Action::Pass;
    whole.header.source = address(Ipv4Addr::new(10, 0, 0, 1));
    let mut bed = Bed::new(vec![alert, whole], Engine::Prefilter, 17, App::Unknown);
    assert_eq!(bed.packet(ToServer, b"evil"), [0_u32; 0]);
    assert_eq!(bed.packet(ToClient, b"evil"), [0_u32; 0]);
    assert!(bed.state.is_passed());
}

#[test]
fn rules_about_addresses_are_decided_once_in_each_direction() {
    let mut from_client = rule(1, HeaderProtocol::Ip);
    from_client.header.source = address(Ipv4Addr::new(10, 0, 0, 1));
    let every = rule(2, HeaderProtocol::Udp);
    let mut each = rule(3, HeaderProtocol::Udp);
    each.flow.to_server = Some(true);
    let mut both = rule(4, HeaderProtocol::Ip);
    both.header.destination = address(Ipv4Addr::new(10, 0, 0, 1));
    both.header.both_ways = true;
    let mut bed = Bed::new(
        vec![from_client, every, each, both],
        Engine::Prefilter,
        17,
        App::Unknown,
    );
    assert_eq!(bed.packet(ToServer, b"x"), [1, 2, 3, 4]);
    assert_eq!(bed.packet(ToServer, b"x"), [3]);
    assert_eq!(bed.packet(ToClient, b"x"), [2, 4]);
    assert_eq!(bed.packet(ToClient, b"x"), [0_u32; 0]);
}

#[test]
fn headers_and_packet_conditions_are_checked() {
    let mut port = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"data")],
    );
    port.header.destination_ports = PortSet {
        any: false,
        ranges: Arc::from([(80, 80)]),
    };
    let mut size = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"data")],
    );
    size.packet = vec![PacketCondition::PayloadSize(Range {
        low: 4,
        high: 4,
        negated: false,
    })];
    let mut ttl = rule(3, HeaderProtocol::Ip);
    ttl.packet = vec![PacketCondition::Ttl(Range {
        low: 65,
        high: 255,
        negated: true,
    })];
    let mut app = on(
        4,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"data")],
    );
    app.apps = vec![(App::Dns, true)];
    let mut bed = Bed::new(
        vec![port, size, ttl, app],
        Engine::Prefilter,
        17,
        App::Unknown,
    );
    // Not `!dns`: the protocol is not known yet.
    assert_eq!(bed.packet(ToServer, b"data"), [1, 2, 3]);
    assert_eq!(bed.packet(ToClient, b"data."), [3]);
    bed.view.app = App::Failed;
    assert_eq!(bed.packet(ToClient, b"data."), [3, 4]);
}

#[test]
fn what_cannot_be_decided_is_refused_with_its_reason() {
    let mut jump = read(4, 0);
    jump.dce = true;
    let dce = on(
        1,
        HeaderProtocol::Tcp,
        Buffer::Payload,
        vec![
            plain(b"abcd"),
            Condition::ByteTest(ByteTest {
                read: jump,
                negated: false,
                operator: TestOperator::Equal,
                value: Number::Is(1),
            }),
        ],
    );
    let broken = on(
        2,
        HeaderProtocol::Tcp,
        Buffer::Payload,
        vec![plain(b"abcd"), pcre("(", |_| {})],
    );
    let unknown = on(
        3,
        HeaderProtocol::Tcp,
        Buffer::Payload,
        vec![with(b"abcd", |c| {
            c.offset = Some(Number::Variable("x".into()))
        })],
    );
    let good = on(
        4,
        HeaderProtocol::Tcp,
        Buffer::Payload,
        vec![plain(b"abcd")],
    );
    let (ruleset, refused) = Ruleset::build(
        vec![dce, broken, unknown, good],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    assert_eq!(ruleset.len(), 1);
    let sids: Vec<u32> = refused.iter().map(|r| r.sid).collect();
    assert_eq!(sids, [1, 2, 3]);
    assert!(refused[0].reason.contains("DCE"), "{}", refused[0].reason);
    assert!(refused[2].reason.contains("`x`"), "{}", refused[2].reason);
}

fn found(rule: u32, packet: u64, source: u8) -> Match {
    Match {
        rule,
        packet,
        order: 0,
        time: packet * SECOND,
        flow: Some(1),
        direction: Some(ToServer),
        source: (IpAddr::V4(Ipv4Addr::new(10, 0, 0, source)), 1),
        destination: (SERVER, 80),
        protocol: 17,
        app: App::Unknown,
        transaction: None,
        stream: false,
        whole_flow: false,
    }
}

fn threshold(kind: ThresholdKind, count: u32, seconds: u32) -> Option<Threshold> {
    Some(Threshold {
        kind,
        track: Track::Source,
        count,
        seconds,
    })
}

fn filters(kinds: Vec<FilterKind>) -> Vec<Filter> {
    let place = Place {
        file: "test".into(),
        line: 1,
    };
    let filter = |kind| Filter {
        gid: 1,
        sid: 1,
        kind,
        place: place.clone(),
    };
    kinds.into_iter().map(filter).collect()
}

fn alerts(rule: Rule, kinds: Vec<FilterKind>, matches: &[Match]) -> Vec<bool> {
    let (ruleset, _) = Ruleset::build(
        vec![rule],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    let mut sequencer = Sequencer::new(Arc::new(ruleset), &filters(kinds));
    matches
        .iter()
        .map(|m| matches!(sequencer.decide(m), Decision::Alert(_)))
        .collect()
}

#[test]
fn thresholds_count_as_the_language_says() {
    let every_second: Vec<Match> = (0..8).map(|i| found(0, i, 1)).collect();
    let base = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"abcd")],
    );
    let with_threshold = |t| Rule {
        threshold: t,
        ..base.clone()
    };
    let t = |kind| {
        alerts(
            with_threshold(threshold(kind, 2, 100)),
            vec![],
            &every_second,
        )
    };
    assert_eq!(
        t(ThresholdKind::Limit),
        [true, true, false, false, false, false, false, false]
    );
    assert_eq!(
        t(ThresholdKind::Threshold),
        [false, true, false, true, false, true, false, true]
    );
    assert_eq!(
        t(ThresholdKind::Both),
        [false, true, false, false, false, false, false, false]
    );
    let filter = Rule {
        detection_filter: threshold(ThresholdKind::Filter, 2, 100),
        ..base.clone()
    };
    assert_eq!(
        alerts(filter, vec![], &every_second),
        [false, false, true, true, true, true, true, true]
    );
    // A period that is over begins anew; hosts are counted apart.
    let limited = with_threshold(threshold(ThresholdKind::Limit, 1, 3));
    assert_eq!(
        alerts(limited.clone(), vec![], &every_second),
        [true, false, false, false, true, false, false, false]
    );
    let hosts: Vec<Match> = (0..4).map(|i| found(0, i, i as u8 % 2)).collect();
    assert_eq!(alerts(limited, vec![], &hosts), [true, true, false, false]);
    // The configuration suppresses, replaces, and changes actions.
    let suppress = FilterKind::Suppress {
        track: Some(Track::Source),
        addresses: address(Ipv4Addr::new(10, 0, 0, 0)),
    };
    assert_eq!(
        alerts(base.clone(), vec![suppress], &hosts),
        [false, true, false, true]
    );
    let (ruleset, _) = Ruleset::build(
        vec![base],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    let rate = Threshold {
        kind: ThresholdKind::Threshold,
        track: Track::Rule,
        count: 3,
        seconds: 100,
    };
    let mut sequencer = Sequencer::new(
        Arc::new(ruleset),
        &filters(vec![FilterKind::Rate {
            threshold: rate,
            action: Action::Drop,
            timeout: 2,
        }]),
    );
    let actions: Vec<Decision> = every_second.iter().map(|m| sequencer.decide(m)).collect();
    let (a, d) = (
        Decision::Alert(Action::Alert),
        Decision::Alert(Action::Drop),
    );
    assert_eq!(actions, [a, a, d, d, d, a, a, d]);
}

#[test]
fn bits_of_hosts_reach_over_flows_and_expire() {
    let bit = |operation, track| Bit::Host {
        operation,
        name: "seen".into(),
        track,
        expire: 3,
    };
    let mut set = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"abcd")],
    );
    set.bits = vec![bit(BitOperation::Set, Track::Source)];
    set.silent = true;
    let mut ask = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"abcd")],
    );
    ask.bits = vec![bit(BitOperation::IsSet, Track::Source)];
    let (ruleset, refused) = Ruleset::build(
        vec![ask, set],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    assert!(refused.is_empty());
    let index = |sid| {
        ruleset
            .rules()
            .iter()
            .position(|r| r.sid == sid)
            .expect("is there") as u32
    };
    let (set, ask) = (index(1), index(2));
    assert!(set < ask, "setters rank first");
    let mut s = Sequencer::new(Arc::new(ruleset), &[]);
    assert_eq!(s.decide(&found(ask, 1, 1)), Decision::Void);
    assert_eq!(s.decide(&found(set, 2, 1)), Decision::Silent);
    assert_eq!(s.decide(&found(ask, 3, 1)), Decision::Alert(Action::Alert));
    assert_eq!(s.decide(&found(ask, 3, 2)), Decision::Void);
    assert_eq!(s.decide(&found(ask, 5, 1)), Decision::Alert(Action::Alert));
    assert_eq!(s.decide(&found(ask, 6, 1)), Decision::Void);
}

#[test]
fn tables_forget_the_oldest_at_their_cap() {
    let mut base = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"abcd")],
    );
    base.threshold = threshold(ThresholdKind::Limit, 1, 1000);
    let (ruleset, _) = Ruleset::build(
        vec![base],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    let mut s = Sequencer::with_cap(Arc::new(ruleset), &[], 4);
    let mut alert = |i: u64, host: u8| matches!(s.decide(&found(0, i, host)), Decision::Alert(_));
    assert!((0..5).all(|h| alert(u64::from(h), h)));
    assert!(!alert(6, 4), "the newest is known");
    assert!(alert(7, 0), "the oldest was forgotten");
    assert_eq!(s.counts().thresholds_forgotten, 2);
}

/// The same packets spread over workers in many ways give the same alerts.
#[test]
fn any_number_of_workers_gives_the_same_alerts() {
    let mut limited = on(
        1,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"abab")],
    );
    limited.threshold = Some(Threshold {
        kind: ThresholdKind::Threshold,
        track: Track::Destination,
        count: 3,
        seconds: 5,
    });
    let mut set = on(
        2,
        HeaderProtocol::Udp,
        Buffer::Payload,
        vec![plain(b"bbbb")],
    );
    set.bits = vec![Bit::Host {
        operation: BitOperation::Toggle,
        name: "x".into(),
        track: Track::Destination,
        expire: 9,
    }];
    let mut ask = on(3, HeaderProtocol::Udp, Buffer::Payload, vec![plain(b"aaa")]);
    ask.bits = vec![Bit::Host {
        operation: BitOperation::IsSet,
        name: "x".into(),
        track: Track::Destination,
        expire: 9,
    }];
    let (ruleset, _) = Ruleset::build(
        vec![limited, set, ask],
        Expressions::default(),
        Arc::default(),
        Engine::Prefilter,
    );
    let ruleset = Arc::new(ruleset);
    let mut n = Numbers(1);
    let packets: Vec<(u64, usize, Vec<u8>)> = (1..800)
        .map(|number| {
            let letters = (0..12).map(|_| b"ab"[n.below(2)]).collect();
            (number, n.below(16), letters)
        })
        .collect();
    let mut first: Option<Vec<(u64, u32, Decision)>> = None;
    for (workers, seed) in [(1, 0), (2, 1), (3, 2), (4, 3), (8, 4), (4, 5)] {
        let mut n = Numbers(seed);
        let place: Vec<usize> = (0..16).map(|_| n.below(workers)).collect();
        let mut detectors: Vec<_> = (0..workers)
            .map(|_| weir_sensor::detect::Detector::new(ruleset.clone()))
            .collect();
        let mut states: Vec<_> = (0..16)
            .map(|_| weir_sensor::detect::FlowState::default())
            .collect();
        // Each worker by itself, as far ahead of the others as it likes.
        let mut given: Vec<Vec<Match>> = vec![Vec::new(); workers];
        for (worker, detector) in detectors.iter_mut().enumerate() {
            for (number, flow, payload) in packets.iter().filter(|(_, f, _)| place[*f] == worker) {
                let packet = packet(*number, ToServer, false, payload);
                let v = weir_sensor::detect::FlowView {
                    id: *flow as u64,
                    ..view(17, App::Unknown)
                };
                let flow = weir_sensor::detect::PacketFlow {
                    view: &v,
                    state: &mut states[*flow],
                    direction: ToServer,
                    offset: None,
                };
                detector.packet(&packet, Default::default(), Some(flow));
            }
            given[worker] = detector.matches().to_vec();
        }
        let mut order = Order::new(workers);
        let mut sequencer = Sequencer::new(ruleset.clone(), &[]);
        let mut out = Vec::new();
        let mut left: Vec<std::collections::VecDeque<Match>> =
            given.into_iter().map(Into::into).collect();
        while left.iter().any(|l| !l.is_empty()) {
            let worker = n.below(workers);
            let count = n.below(20).min(left[worker].len());
            let some: Vec<Match> = left[worker].drain(..count).collect();
            let done = left[worker].front().map_or(u64::MAX, |m| m.packet - 1);
            order.give(worker, some, done);
            while let Some(m) = order.pop() {
                out.push((m.packet, m.rule, sequencer.decide(&m)));
            }
        }
        for worker in 0..workers {
            order.give(worker, [], u64::MAX);
        }
        while let Some(m) = order.pop() {
            out.push((m.packet, m.rule, sequencer.decide(&m)));
        }
        assert!(out.len() > 100);
        match &first {
            None => first = Some(out),
            Some(first) => assert_eq!(&out, first, "{workers} workers"),
        }
    }
}
