//! What random programs are made of, and how often.
//!
//! Owns the weights: mostly what compilers write, with an access one byte too far, a forgotten check or an odd operand now
//! and then. Invariant: every piece can stand anywhere in a program.

use proptest::prelude::*;

use super::pieces::{
    Access, CONTEXT, COUNTER, Check, Compare, DATA, END, FP, NullCheck, Operand, Piece, Program,
    Start, Step, Variable, Width,
};

/// Strategy for whole programs.
pub(crate) fn program() -> impl Strategy<Value = Program> {
    let start = prop_oneof![
        1 => Just(Start::Nothing),
        6 => small().prop_map(Start::Small),
        3 => big().prop_map(Start::Wide),
        12 => (0u8..14, width()).prop_map(|(at, w)| Start::Packet(at, w)),
        2 => prop_oneof![10 => 3u8..5, 1 => 0u8..7].prop_map(|field| Start::Context(field * 4)),
    ];
    (
        prop_oneof![8 => 14u8..60, 1 => Just(0u8)],
        prop::collection::vec(start, 7),
        prop::collection::vec(piece(), 1..14),
        prop::collection::vec(prop::collection::vec(simple(), 1..6), 0..3),
    )
        .prop_map(|(checked, starts, body, functions)| Program {
            checked,
            starts,
            body,
            functions,
        })
}

fn number() -> impl Strategy<Value = u8> + Clone {
    prop_oneof![12 => 0u8..6, 4 => Just(COUNTER), 1 => 6u8..9]
}

fn small() -> impl Strategy<Value = i32> + Clone {
    prop_oneof![
        4 => 0i32..16,
        2 => -16i32..0,
        2 => prop::sample::select(vec![0xff, 0x100, 0x7fff, 0xffff, 0x1_0000, i32::MAX, i32::MIN, -2, 31, 32, 33, 63, 64]),
        1 => any::<i32>(),
    ]
}

fn big() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        2 => any::<u64>(),
        1 => (0u32..64).prop_map(|s| 1 << s),
        1 => (0u32..64).prop_map(|s| u64::MAX >> s),
        1 => (0u32..64).prop_map(|s| u64::MAX << s),
        1 => any::<u32>().prop_map(u64::from),
    ]
}

fn mask() -> impl Strategy<Value = i32> + Clone {
    prop_oneof![
        6 => prop::sample::select(vec![1, 3, 7, 15, 31, 63, 0xff]),
        1 => small(),
    ]
}

fn width() -> impl Strategy<Value = Width> + Clone {
    prop::sample::select(vec![Width::B1, Width::B2, Width::B4, Width::B8])
}

fn operand() -> impl Strategy<Value = Operand> + Clone {
    prop_oneof![
        1 => number().prop_map(Operand::Register),
        1 => small().prop_map(Operand::Immediate),
    ]
}

fn access() -> impl Strategy<Value = Access> + Clone {
    let atomic = prop::sample::select(vec![
        0x00u8, 0x01, 0x40, 0x41, 0x50, 0x51, 0xa0, 0xa1, 0xe1, 0xf1,
    ]);
    prop_oneof![
        8 => number().prop_map(Access::Load),
        1 => number().prop_map(Access::LoadSigned),
        3 => number().prop_map(Access::Store),
        2 => small().prop_map(Access::StoreImmediate),
        1 => (atomic, number()).prop_map(|(op, src)| Access::Atomic(op, src)),
    ]
}

/// Offset and width of an access to `len` bytes, now and then past them.
fn spot(len: i16) -> impl Strategy<Value = (i16, Width)> + Clone {
    (width(), any::<u16>(), 0u8..40).prop_map(move |(width, at, kind)| {
        let last = (len - width.bytes()).max(0);
        let inside = (at % (last as u16 + 1)) as i16;
        let at = match kind {
            0 => last + 1,
            1 => -1,
            2..8 => last,
            8..20 => inside,
            _ => inside / width.bytes() * width.bytes(),
        };
        (at, width)
    })
}

/// An access to `len` bytes.
fn access_to(len: i16) -> impl Strategy<Value = (i16, Width, Access)> + Clone {
    (spot(len), access()).prop_map(|((at, width), access)| (at, width, access))
}

fn check() -> impl Strategy<Value = Check> + Clone {
    let len =
        prop_oneof![6 => 1i16..64, 2 => prop::sample::select(vec![14i16, 34, 54]), 1 => -2i16..200];
    (len, 0u8..8).prop_map(|(len, way)| Check { len, way })
}

fn null_check() -> impl Strategy<Value = NullCheck> + Clone {
    prop_oneof![
        12 => Just(NullCheck::Good),
        1 => Just(NullCheck::Missing),
        1 => Just(NullCheck::Inverted),
    ]
}

fn compare() -> impl Strategy<Value = Compare> + Clone {
    let operation = prop::sample::select(vec![
        0x10u8, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0,
    ]);
    (operation, any::<bool>()).prop_map(|(operation, wide)| Compare { operation, wide })
}

/// Pieces that stand in loops and functions as well.
fn simple() -> impl Strategy<Value = Piece> + Clone {
    let alu = prop::sample::select(vec![
        0x00u8, 0x10, 0x20, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0,
    ]);
    let stack_at = || {
        prop_oneof![
            6 => (1i16..9).prop_map(|slot| -8 * slot),
            2 => -72i16..-1,
            1 => prop::sample::select(vec![-512i16, -520, -508, -4, 0, 4]),
        ]
    };
    prop_oneof![
        14 => (alu, any::<bool>(), number(), operand()).prop_map(|(operation, wide, dst, operand)| {
            // A shift by a constant is usually below the width.
            let operand = match (operation, operand) {
                (0x60 | 0x70 | 0xc0, Operand::Immediate(n)) if n != 64 && n != -2 => {
                    Operand::Immediate(n & if wide { 63 } else { 31 })
                }
                (_, operand) => operand,
            };
            Piece::Alu { operation, wide, dst, operand }
        }),
        2 => (any::<bool>(), any::<bool>(), any::<bool>(), number(), operand()).prop_map(
            |(remainder, signed, wide, dst, operand)| Piece::Divide { remainder, signed, wide, dst, operand }
        ),
        1 => (any::<bool>(), number()).prop_map(|(wide, dst)| Piece::Negate { wide, dst }),
        2 => (prop::sample::select(vec![(8i16, true), (16, true), (32, true), (8, false), (16, false)]), number(), number())
            .prop_map(|((bits, wide), dst, src)| Piece::SignMove { bits, wide, dst, src }),
        1 => (prop::sample::select(vec![0xd4u8, 0xdc, 0xd7]), prop::sample::select(vec![16i32, 32, 64]), number())
            .prop_map(|(opcode, bits, dst)| Piece::Swap { opcode, bits, dst }),
        1 => (number(), big()).prop_map(|(dst, value)| Piece::Wide { dst, value }),
        6 => check().prop_flat_map(|check| {
            let len = check.len.max(2);
            (Just(check), prop::collection::vec(access_to(len), 1..4))
        }).prop_map(|(check, accesses)| Piece::Packet { check, accesses }),
        5 => (number(), mask(), 0u8..4, check(), -2i16..16, width(), access()).prop_map(
            |(offset, mask, shift, check, at, width, access)| Piece::PacketAt { offset, mask, shift, check, at, width, access }
        ),
        6 => (stack_at(), width(), access(), 0u8..16).prop_map(|(at, width, access, kind)| {
            let aligned = at.div_euclid(width.bytes()) * width.bytes();
            Piece::Stack { at: if kind == 0 { at } else { aligned }, width, access }
        }),
        2 => (variable(), prop_oneof![4 => -80i16..-8, 1 => -520i16..0], width(), access()).prop_map(
            |(variable, base, width, access)| Piece::StackAt { variable, base, width, access }
        ),
        2 => (prop_oneof![Just(DATA), Just(END), Just(CONTEXT), Just(FP)], 1i16..6, number(), 0i16..16, width()).prop_map(
            |(pointer, slot, dst, at, width)| Piece::Spill { pointer, slot: -8 * slot, dst, at, width }
        ),
        8 => lookup(),
        2 => (prop::sample::select(vec![3u8, 3, 3, 0, 7]), 0u32..26, access_to(24)).prop_map(
            |(map, offset, (at, width, access))| Piece::Global { map, offset, at, width, access }
        ),
        1 => (number(),).prop_map(|(dst,)| Piece::Length { dst }),
    ]
}

/// A small number, computed with; often it is proved to be small again.
fn variable() -> impl Strategy<Value = Variable> + Clone {
    let operation = prop::sample::select(vec![
        0x00u8, 0x00, 0x10, 0x20, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xc0,
    ]);
    let alu =
        (operation, any::<bool>(), 0i32..24, small()).prop_map(|(operation, wide, near, far)| {
            let imm = match operation {
                0x60 | 0x70 | 0xc0 => near % 8,
                0x20 => near % 6,
                _ if near < 20 => near,
                _ => far,
            };
            Step::Alu {
                operation,
                wide,
                imm,
            }
        });
    let sign_move = prop::sample::select(vec![
        (8i16, true),
        (16, true),
        (32, true),
        (8, false),
        (16, false),
    ]);
    let limit = prop_oneof![3 => 0i32..64, 1 => small()];
    let step = prop_oneof![
        4 => alu,
        1 => sign_move.prop_map(|(bits, wide)| Step::SignMove { bits, wide }),
        2 => (compare(), limit).prop_map(|(compare, imm)| Step::Leave { compare, imm }),
    ];
    let steps = prop_oneof![2 => Just(Vec::new()), 3 => prop::collection::vec(step, 1..5)];
    (number(), mask(), steps).prop_map(|(register, mask, steps)| Variable {
        register,
        mask,
        steps,
    })
}

fn lookup() -> impl Strategy<Value = Piece> + Clone {
    let map = prop_oneof![12 => prop::sample::select(vec![0u8, 1, 2, 3, 7]), 1 => 0u8..8];
    (map, operand(), null_check())
        .prop_flat_map(|(map, key, null)| {
            let size = [64, 16, 32, 24, 8, 4, 4, 16]
                .get(map as usize)
                .copied()
                .unwrap_or(8);
            (
                Just((map, key, null)),
                prop::collection::vec(access_to(size), 0..4),
                prop_oneof![2 => Just(None), 3 => variable().prop_map(Some)],
            )
        })
        .prop_map(|((map, key, null), accesses, variable)| Piece::Lookup {
            map,
            key,
            null,
            accesses,
            variable,
        })
}

fn piece() -> impl Strategy<Value = Piece> {
    let stack_buffer = || prop_oneof![6 => (1i16..9).prop_map(|slot| -8 * slot), 1 => -600i16..8];
    let size = || prop_oneof![5 => 1i32..40, 1 => -2i32..70];
    prop_oneof![
        30 => simple(),
        1 => (check(), -4i16..16, width(), access()).prop_map(|(check, at, width, access)| Piece::Meta { check, at, width, access }),
        1 => (0u8..8, small(), stack_buffer(), 0i32..4).prop_map(|(map, key, size, flags)| Piece::Update { map, key, size, flags }),
        1 => (0u8..8, small()).prop_map(|(map, key)| Piece::Delete { map, key }),
        2 => (prop::sample::select(vec![44i32, 54, 65]), prop_oneof![-20i32..20, Just(-4), Just(4)], prop_oneof![4 => Just(true), 1 => Just(false)])
            .prop_map(|(helper, delta, reload)| Piece::Adjust { helper, delta, reload }),
        1 => (stack_buffer(), size(), number()).prop_map(|(at, length, seed)| Piece::Checksum { at, length, seed }),
        1 => (any::<bool>(), 0i32..64, stack_buffer(), prop_oneof![size().prop_map(Operand::Immediate), number().prop_map(Operand::Register)], mask())
            .prop_map(|(store, offset, at, length, mask)| Piece::Bytes { store, offset, at, length, mask }),
        2 => (size(), null_check(), prop::option::of(access_to(8)), prop_oneof![6 => Just(132i32), 4 => Just(133), 1 => Just(0)])
            .prop_map(|(size, null, access, finish)| Piece::Ring { size, null, access, finish }),
        1 => (prop::sample::select(vec![84i32, 85, 99]), null_check(), prop::option::of((prop::sample::select(vec![0i16, 4, 8, 16, 24, 28, 44, 48, 52, 72, 76, 80]), width())),
            prop_oneof![6 => Just(true), 1 => Just(false)])
            .prop_map(|(helper, null, load, release)| Piece::Socket { helper, null, load, release }),
        1 => (operand(), any::<bool>()).prop_map(|(index, reload)| Piece::TailCall { index, reload }),
        1 => (operand(), 0i32..5).prop_map(|(index, flags)| Piece::RedirectMap { index, flags }),
        14 => (compare(), number(), operand(), 1u8..5).prop_map(|(compare, dst, operand, over)| Piece::Skip { compare, dst, operand, over }),
        3 => (prop_oneof![8 => 1i32..10, 1 => 10i32..30, 1 => -3i32..1], prop_oneof![8 => Just(1i32), 1 => Just(2), 1 => Just(3)],
            prop_oneof![60 => Just(Compare { operation: 0xa0, wide: true }), 20 => Just(Compare { operation: 0xc0, wide: false }),
                16 => Just(Compare { operation: 0x50, wide: true }), 1 => compare()],
            prop_oneof![40 => Just(true), 1 => Just(false)],
            prop_oneof![8 => Just(false), 1 => Just(true)],
            prop::collection::vec(simple(), 0..3)).prop_map(|(bound, step, compare, kept, escape, body)| {
                // Not equal is reached by steps of one only.
                let (bound, step) = if compare.operation == 0x50 { (bound.max(1), 1) } else { (bound, step) };
                Piece::Loop { bound, step, compare, kept, escape, body }
            }),
        3 => (0u8..3, [number(), number()]).prop_map(|(function, arguments)| Piece::Call { function, arguments }),
        3 => (compare(), number(), operand(), 0i32..5).prop_map(|(compare, dst, operand, value)| Piece::Leave { compare, dst, operand, value }),
        1 => (prop::sample::select(vec![0x00u8, 0x10, 0x50, 0x20, 0xa0]), 6u8..9, operand()).prop_map(|(operation, dst, operand)| Piece::Pointer { operation, dst, operand }),
    ]
}
