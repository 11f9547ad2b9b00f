//! What is remembered of failed places changes no answer: conditions at random, also with expressions, Base64 and bytes that were inspected before, decided with and without it.

use super::*;
use crate::rules::Pcre;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % most.max(1) as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn small(&mut self) -> Number {
        Number::Is(self.below(9) as i64 - 2)
    }
}

fn read(n: &mut Numbers) -> Read {
    Read {
        bytes: Number::Is(1),
        offset: n.small(),
        relative: n.chance(2),
        little: false,
        string: n.chance(4).then_some(16),
        dce: false,
        bitmask: n.chance(2).then_some(7),
    }
}

const PATTERNS: [&str; 10] = [
    "a", "^b", "^a*b", "b+", "\\bab", "(?<=a)b", "a.?b", "$", "b*", "[^a]b",
];

fn conditions(n: &mut Numbers) -> Vec<Condition> {
    let mut out = Vec::new();
    let mut named = false;
    for i in 0..1 + n.below(5) {
        out.push(match n.below(if i == 0 { 6 } else { 12 }) {
            0..=5 => {
                let bytes = (0..1 + n.below(2)).map(|_| b"ab"[n.below(2)]).collect();
                let mut c = Content::new(bytes);
                let size = c.bytes.len() as i64;
                c.negated = i > 0 && n.chance(5);
                match n.below(6) {
                    0 if i == 0 => c.offset = Some(Number::Is(n.below(9) as i64)),
                    1 if i > 0 => {
                        c.distance = Some(n.small());
                        c.within = Some(Number::Is(size + n.below(7) as i64));
                    }
                    2..=4 if i > 0 => c.distance = Some(n.small()),
                    5 if n.chance(4) => c.ends = true,
                    _ => {}
                }
                if named && c.distance.is_some() && n.chance(2) {
                    c.distance = Some(Number::Variable("v".into()));
                }
                Condition::Content(c)
            }
            6 | 7 => {
                let mut p = Pcre::new(PATTERNS[n.below(PATTERNS.len())].into());
                p.relative = n.chance(2);
                p.negated = n.chance(6);
                p.anchored = n.chance(6);
                p.multiline = n.chance(6);
                Condition::Pcre(p)
            }
            8 => {
                named = true;
                Condition::ByteExtract(ByteExtract {
                    read: read(n),
                    multiplier: 1,
                    align: 0,
                    name: "v".into(),
                })
            }
            9 => Condition::ByteJump(ByteJump {
                read: read(n),
                multiplier: 1,
                align: false,
                from_beginning: n.chance(3),
                from_end: false,
                post_offset: n.small(),
            }),
            10 => Condition::IsDataAt {
                offset: n.small(),
                relative: true,
                negated: n.chance(2),
            },
            _ => Condition::ByteTest(ByteTest {
                read: read(n),
                negated: n.chance(2),
                operator: TestOperator::Equal,
                value: Number::Is([0x61, 0x62, 1, 2, 10, 11][n.below(6)]),
            }),
        });
    }
    if n.chance(8) {
        out.push(Condition::Base64Decode(Base64 {
            bytes: None,
            offset: 0,
            relative: true,
            mode: None,
        }));
        out.push(Condition::Base64Data);
        out.push(Condition::Content(Content::new(vec![0x69])));
    }
    out
}

#[test]
fn what_is_remembered_changes_no_answer() {
    let seeds = match std::env::var_os("WEIR_LONG") {
        Some(_) => 2_000_000,
        None => 40_000,
    };
    let mut expressions = Expressions::default();
    let (mut held, mut saved, mut over) = (0, 0, 0);
    let mut work = [0_u64; 2];
    for seed in 0..seeds {
        let mut n = Numbers(seed);
        let conditions = conditions(&mut n);
        let Ok(program) = Program::new(&conditions, &mut expressions) else {
            continue;
        };
        for _ in 0..4 {
            let bytes: Vec<u8> = (0..n.below(40)).map(|_| b"aabb\n1"[n.below(6)]).collect();
            let fresh = if n.chance(2) { n.below(bytes.len()) } else { 0 };
            let subject = Subject {
                bytes: &bytes,
                base: if n.chance(3) { 3 } else { 0 },
                fresh,
            };
            let mut answers = [false; 2];
            let mut units = [0; 2];
            let mut given_up = false;
            for (at, forget) in [false, true].into_iter().enumerate() {
                let mut scratch = Scratch {
                    forget,
                    ..Scratch::default()
                };
                answers[at] = program.holds(&subject, &mut scratch);
                units[at] = scratch.counts.work;
                work[at] += units[at];
                given_up |= scratch.counts.limited > 0;
            }
            if given_up {
                over += 1;
                continue;
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert_eq!(
                answers[0], answers[1],
                "seed {seed}: {conditions:?} in {text:?}, new from {fresh}"
            );
            assert!(
                units[0] <= units[1],
                "seed {seed}: remembering costs {units:?}: {conditions:?} in {text:?}"
            );
            held += usize::from(answers[0]);
            saved += usize::from(units[0] < units[1]);
        }
    }
    assert!(over < seeds as usize / 100, "{over} of {seeds} given up");
    assert!(held > seeds as usize / 4, "{held} buffers held of {seeds}");
    assert!(saved > seeds as usize / 40, "{saved} of {seeds}");
    assert!(work[0] < work[1], "{work:?}");
}
