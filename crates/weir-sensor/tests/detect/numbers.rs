//! Conditions on numbers in bytes: tested, jumped by, extracted, and extreme ones.

use weir_sensor::rules::*;

use super::build::*;
use super::conditions::{decided, holds};

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
    // To the end is inside, behind it is not; before the start is the start.
    holds(&[jump(|_| {})], b"\x02xx", true);
    holds(&[jump(|_| {})], b"\x03xx", false);
    let first = with(b"\x01", |c| (c.distance, c.within) = (is(0), is(1)));
    holds(
        &[
            jump(|j| (j.from_beginning, j.post_offset) = (true, Number::Is(-4))),
            first,
        ],
        b"\x01xz",
        true,
    );
    // What follows a number in digits stands behind the last digit that there is.
    let digits = Condition::ByteExtract(ByteExtract {
        read: Read {
            string: Some(10),
            ..read(4, 0)
        },
        multiplier: 1,
        align: 0,
        name: "n".into(),
    });
    let behind = with(b"z", |c| (c.distance, c.within) = (is(0), is(1)));
    holds(&[digits.clone(), behind.clone()], b"12zx", true);
    holds(&[digits, behind], b"12xxz", false);
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
