//! Soundness of the numbers: exhaustively at small widths, by sampling at 64 bits.
//!
//! The code is generic over the width, so four- and six-bit numbers go through the very instructions of 64-bit ones.
//! What a set of facts means is computed by brute force: the bit set of the numbers that hold. Each operation is then
//! compared with plain arithmetic over all members. `WEIR_LONG=1` tries more pairs.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const OPERATIONS: [Alu; 15] = [
    Alu::Add,
    Alu::Sub,
    Alu::Mul,
    Alu::Div,
    Alu::Mod,
    Alu::Sdiv,
    Alu::Smod,
    Alu::And,
    Alu::Or,
    Alu::Xor,
    Alu::Lsh,
    Alu::Rsh,
    Alu::Arsh,
    Alu::Neg,
    Alu::Mov,
];

const CONDITIONS: [Cond; 11] = [
    Cond::Eq,
    Cond::Ne,
    Cond::Set,
    Cond::Gt,
    Cond::Ge,
    Cond::Lt,
    Cond::Le,
    Cond::Sgt,
    Cond::Sge,
    Cond::Slt,
    Cond::Sle,
];

/// `a op b` in numbers of `bits` bits, as RFC 9669 says.
fn compute(op: Alu, a: u64, b: u64, bits: u32) -> u64 {
    let (sa, sb) = (i128::from(signed(a, bits)), i128::from(signed(b, bits)));
    let count = b % u64::from(bits);
    let result = match op {
        Alu::Add => a.wrapping_add(b),
        Alu::Sub => a.wrapping_sub(b),
        Alu::Mul => a.wrapping_mul(b),
        Alu::Div => a.checked_div(b).unwrap_or(0),
        Alu::Mod => a.checked_rem(b).unwrap_or(a),
        Alu::Sdiv => sa.checked_div(sb).unwrap_or(0) as u64,
        Alu::Smod => sa.checked_rem(sb).unwrap_or(sa) as u64,
        Alu::And => a & b,
        Alu::Or => a | b,
        Alu::Xor => a ^ b,
        Alu::Lsh => a << count,
        Alu::Rsh => a >> count,
        Alu::Arsh => (signed(a, bits) >> count) as u64,
        Alu::Neg => a.wrapping_neg(),
        Alu::Mov => b,
    };
    result & ones(bits)
}

fn compare(cond: Cond, a: u64, b: u64, bits: u32) -> bool {
    let (sa, sb) = (signed(a, bits), signed(b, bits));
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Set => a & b != 0,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Lt => a < b,
        Cond::Le => a <= b,
        Cond::Sgt => sa > sb,
        Cond::Sge => sa >= sb,
        Cond::Slt => sa < sb,
        Cond::Sle => sa <= sb,
    }
}

/// The numbers that satisfy the facts, one bit each.
fn members<const W: u32>(facts: &Number<W>) -> u64 {
    (0..1u64 << W)
        .filter(|n| facts.holds(*n))
        .fold(0, |set, n| set | 1 << n)
}

fn each(set: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(set), |rest| Some(rest & rest.wrapping_sub(1)))
        .take_while(|rest| *rest != 0)
        .map(|rest| u64::from(rest.trailing_zeros()))
}

/// One kind of fact at a time: all known bits, all unsigned and all signed ranges of both widths.
fn single_facts<const W: u32>() -> Vec<Number<W>> {
    let any = Number::<W>::UNKNOWN;
    let half = W / 2;
    let mut facts = vec![any];
    for mask in 0..1u64 << W {
        for value in (0..1u64 << W).filter(|v| v & mask == 0) {
            let tnum = KnownBits { value, mask };
            facts.push(Number { tnum, ..any });
        }
    }
    for min in 0..1u64 << W {
        for max in min..1 << W {
            facts.push(Number {
                umin: min,
                umax: max,
                ..any
            });
            let shift = |v: u64| v as i64 - (1 << (W - 1));
            facts.push(Number {
                smin: shift(min),
                smax: shift(max),
                ..any
            });
        }
    }
    for min in 0..1u32 << half {
        for max in min..1 << half {
            facts.push(Number {
                u32_min: min,
                u32_max: max,
                ..any
            });
            let shift = |v: u32| v as i32 - (1 << (half - 1));
            facts.push(Number {
                s32_min: shift(min),
                s32_max: shift(max),
                ..any
            });
        }
    }
    facts
}

/// Both facts at once, before they learn from each other.
fn combined<const W: u32>(a: &Number<W>, b: &Number<W>) -> Option<Number<W>> {
    a.tnum.overlaps(b.tnum).then(|| Number {
        tnum: a.tnum.intersect(b.tnum),
        umin: a.umin.max(b.umin),
        umax: a.umax.min(b.umax),
        smin: a.smin.max(b.smin),
        smax: a.smax.min(b.smax),
        u32_min: a.u32_min.max(b.u32_min),
        u32_max: a.u32_max.min(b.u32_max),
        s32_min: a.s32_min.max(b.s32_min),
        s32_max: a.s32_max.min(b.s32_max),
    })
}

/// A fixed sequence of numbers for choosing samples (xorshift).
fn sequence(mut state: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

/// Different facts that hold for some number, each from up to three single ones.
fn population<const W: u32>(size: usize) -> Vec<Number<W>> {
    let single = single_facts::<W>();
    let mut next = sequence(0x5eed);
    let mut seen = HashSet::new();
    let mut facts = Vec::new();
    for _ in 0..size * 4 {
        if facts.len() == size {
            break;
        }
        let mut number = single[next(single.len())];
        for _ in 0..next(3) {
            number = combined(&number, &single[next(single.len())]).unwrap_or(number);
        }
        number.sync();
        if members(&number) != 0 && seen.insert(number) {
            facts.push(number);
        }
    }
    facts
}

fn long() -> bool {
    std::env::var_os("WEIR_LONG").is_some_and(|value| value == "1")
}

#[test]
fn no_deduction_loses_a_number() {
    fn check<const W: u32>(step: usize) {
        let single = single_facts::<W>();
        let pairs = single
            .iter()
            .flat_map(|a| single.iter().map(move |b| (a, b)));
        for facts in pairs.step_by(step).filter_map(|(a, b)| combined(a, b)) {
            let mut synced = facts;
            synced.sync();
            let (before, after) = (members(&facts), members(&synced));
            if before == 0 {
                // Facts that contradict each other may become any others.
                continue;
            }
            assert_eq!(before & !after, 0, "{facts:?} became {synced:?}");
            assert!(!synced.is_contradictory(), "{facts:?} became {synced:?}");
        }
    }
    check::<4>(1);
    check::<6>(if long() { 1 } else { 13 });
}

#[test]
fn no_operation_misses_a_result() {
    fn check<const W: u32>(size: usize) {
        let facts = population::<W>(size);
        let sets: Vec<u64> = facts.iter().map(members).collect();
        for wide in [true, false] {
            let bits = if wide { W } else { W / 2 };
            for op in OPERATIONS {
                for (a, sa) in facts.iter().zip(&sets) {
                    for (b, sb) in facts.iter().zip(&sets) {
                        let result = a.alu(op, wide, b);
                        let set = members(&result);
                        for (x, y) in each(*sa).flat_map(|x| each(*sb).map(move |y| (x, y))) {
                            let r = compute(op, x & ones(bits), y & ones(bits), bits);
                            assert!(
                                set >> r & 1 == 1,
                                "{x:#x} {op:?} {y:#x} = {r:#x} is not in {result:?} = {a:?} {op:?} {b:?} (wide: {wide})"
                            );
                        }
                    }
                }
            }
        }
    }
    check::<4>(if long() { 2000 } else { 250 });
    check::<6>(if long() { 600 } else { 90 });
}

#[test]
fn no_extension_misses_a_result() {
    fn check<const W: u32>(size: usize) {
        for facts in population::<W>(size) {
            let set = members(&facts);
            for bits in 1..=W / 2 {
                let zero = facts.zero_extend(bits);
                assert!(
                    each(set).all(|n| zero.holds(n & ones(bits))),
                    "{facts:?} {bits} {zero:?}"
                );
                let wide = facts.sign_extend(bits, true);
                let narrow = facts.sign_extend(bits, false);
                for n in each(set) {
                    let extended = signed(n, bits) as u64;
                    assert!(wide.holds(extended & ones(W)), "{facts:?} {bits} {wide:?}");
                    assert!(
                        narrow.holds(extended & ones(W / 2)),
                        "{facts:?} {bits} {narrow:?}"
                    );
                }
            }
        }
    }
    check::<4>(20_000);
    check::<6>(20_000);
}

#[test]
fn no_branch_loses_a_pair_and_no_outcome_is_wrong() {
    fn check<const W: u32>(size: usize) {
        let facts = population::<W>(size);
        let sets: Vec<u64> = facts.iter().map(members).collect();
        for wide in [true, false] {
            let bits = if wide { W } else { W / 2 };
            let low = |n: u64| n & ones(bits);
            for cond in CONDITIONS {
                for (a, sa) in facts.iter().zip(&sets) {
                    for taken in [false, true] {
                        let mut refined = *a;
                        let possible = Number::refine_itself(cond, wide, taken, &mut refined);
                        let there = |n: &u64| compare(cond, low(*n), low(*n), bits) == taken;
                        let mut there = each(*sa).filter(there);
                        assert!(
                            there.all(|n| possible && refined.holds(n)),
                            "{a:?} {cond:?} itself, {taken} (wide: {wide}), became {refined:?}"
                        );
                    }
                    for (b, sb) in facts.iter().zip(&sets) {
                        let decided = a.decide(cond, wide, b);
                        let branch = |taken| {
                            let (mut x, mut y) = (*a, *b);
                            let possible = Number::refine(cond, wide, taken, &mut x, &mut y);
                            (possible, members(&x), members(&y))
                        };
                        let branches = [branch(false), branch(true)];
                        for (x, y) in each(*sa).flat_map(|x| each(*sb).map(move |y| (x, y))) {
                            let outcome = compare(cond, low(x), low(y), bits);
                            assert_ne!(
                                decided,
                                Some(!outcome),
                                "{a:?} {cond:?} {b:?} (wide: {wide})"
                            );
                            let (possible, left, right) = branches[usize::from(outcome)];
                            assert!(
                                possible && left >> x & 1 == 1 && right >> y & 1 == 1,
                                "{x:#x} {cond:?} {y:#x} is {outcome}, which {a:?} {cond:?} {b:?} loses (wide: {wide})"
                            );
                        }
                    }
                }
            }
        }
    }
    check::<4>(if long() { 1500 } else { 180 });
    check::<6>(if long() { 400 } else { 60 });
}

#[test]
fn within_is_an_order_that_implies_inclusion() {
    let facts = population::<4>(if long() { 1200 } else { 200 });
    let sets: Vec<u64> = facts.iter().map(members).collect();
    let mut inside = 0;
    for (a, sa) in facts.iter().zip(&sets) {
        assert!(a.within(a) && a.within(&Number::UNKNOWN));
        for (b, sb) in facts.iter().zip(&sets) {
            if !a.within(b) {
                continue;
            }
            inside += 1;
            assert_eq!(sa & !sb, 0, "{a:?} within {b:?}");
            assert!(!b.within(a) || a == b, "{a:?} and {b:?}");
            let wider = facts.iter().filter(|c| b.within(c));
            assert!(wider.into_iter().all(|c| a.within(c)), "{a:?} within {b:?}");
        }
    }
    assert!(
        inside > facts.len(),
        "only equal facts were within each other"
    );
}

#[test]
fn what_linux_can_know_is_known() {
    let byte = Scalar::UNKNOWN.zero_extend(8);
    assert_eq!((byte.umax, byte.smin, byte.smax), (255, 0, 255));
    assert_eq!(
        byte.tnum,
        KnownBits {
            value: 0,
            mask: 0xff
        }
    );
    // (x & 15) * 4: a length of an IPv4 header, never over 60.
    let words = byte.alu(Alu::And, true, &Scalar::constant(15));
    let length = words.alu(Alu::Lsh, true, &Scalar::constant(2));
    assert_eq!((length.umax, length.tnum.is_aligned(4)), (60, true));
    // x << 32 s>> 32 of a byte keeps its range.
    let thirty_two = Scalar::constant(32);
    let back = byte
        .alu(Alu::Lsh, true, &thirty_two)
        .alu(Alu::Arsh, true, &thirty_two);
    assert_eq!((back.smin, back.smax), (0, 255));
    let mut low = Scalar::UNKNOWN;
    assert!(Scalar::refine(
        Cond::Lt,
        false,
        true,
        &mut low,
        &mut Scalar::constant(10)
    ));
    assert_eq!((low.u32_max, low.umax), (9, 0xffff_ffff_0000_0009));
    assert_eq!(
        low.decide(Cond::Eq, true, &Scalar::constant(10)),
        Some(false)
    );
    assert_eq!(low.alu(Alu::Mov, false, &low).umax, 9);
    let odd = Scalar::UNKNOWN.alu(Alu::Or, true, &Scalar::constant(1));
    let even = Scalar::UNKNOWN.alu(Alu::And, true, &Scalar::constant(!1));
    assert_eq!(odd.decide(Cond::Eq, true, &even), Some(false));
    let swapped = byte.byte_order(16, true);
    assert_eq!(
        (swapped.umax, swapped.smax, swapped.tnum.mask),
        (0xff00, 0xff00, 0xff00)
    );
    assert_eq!(byte.byte_order(16, false), byte);
    assert_eq!(Scalar::between_signed(-4095, 0).umin, 0);
    assert_eq!(Scalar::between_signed(-4, -1).umin, -4i64 as u64);
}

/// w = (byte & 31) - 1, signed from -1 to 30, and not below 31 unsigned: only -1 is left. Linux 6.18 refuses to add it to a pointer.
#[test]
fn a_half_over_zero_learns_from_its_unsigned_range() {
    let few = Scalar::UNKNOWN.zero_extend(5);
    let less = few.alu(Alu::Sub, false, &Scalar::constant(1));
    assert_eq!((less.s32_min, less.s32_max), (-1, 30));
    let mut negative = less;
    assert!(Scalar::refine(
        Cond::Lt,
        false,
        false,
        &mut negative,
        &mut Scalar::constant(31)
    ));
    assert_eq!(negative, Scalar::constant(0xffff_ffff));
    let mut positive = less;
    assert!(Scalar::refine(
        Cond::Le,
        false,
        true,
        &mut positive,
        &mut Scalar::constant(40)
    ));
    assert_eq!((positive.u32_min, positive.u32_max), (0, 30));
    assert_eq!((positive.s32_min, positive.s32_max), (0, 30));
}

/// Of numbers from 7 to 2^32 + 6 whose lower half is 0 there is one. Linux 6.18 refuses to add it to a pointer.
#[test]
fn the_only_number_of_range_and_bits_is_known() {
    let few = Scalar::UNKNOWN.zero_extend(5);
    let half = few.alu(Alu::Sub, false, &Scalar::constant(8));
    let mut sum = half.alu(Alu::Add, true, &Scalar::constant(7));
    assert_eq!((sum.umin, sum.umax), (7, 0x1_0000_0006));
    let branch = Scalar::refine(Cond::Eq, false, true, &mut sum, &mut Scalar::constant(0));
    assert!(branch && sum == Scalar::constant(0x1_0000_0000), "{sum:?}");
}

#[test]
fn the_member_after_a_number_is_the_least_above_it() {
    for mask in 0..64_u64 {
        for value in (0..64).filter(|value| value & mask == 0) {
            let bits = KnownBits::<8> { value, mask };
            for number in 0..256 {
                let least = (number + 1..256).find(|n| bits.holds(*n));
                let wanted = least.unwrap_or(bits.max());
                assert_eq!(bits.after(number), wanted, "{value}/{mask} {number}");
            }
        }
    }
}

/// Numbers near the ends of ranges more often than others.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..16,
        any::<u32>().prop_map(u64::from),
        any::<i32>().prop_map(|n| i64::from(n) as u64),
        (0u32..64, any::<u64>(), 0u64..4).prop_map(|(shift, sign, near)| (1u64 << shift)
            .wrapping_add(near)
            .wrapping_sub(2)
            ^ (sign & (1 << 63))),
        (any::<u64>(), 0u32..64).prop_map(|(n, shift)| n >> shift),
    ]
}

/// A number and facts that it satisfies.
fn known_number() -> impl Strategy<Value = (u64, Scalar)> {
    (
        number(),
        number(),
        prop::collection::vec((number(), 0u8..6), 0..5),
    )
        .prop_map(|(n, mask, facts)| {
            let mut known = Scalar::UNKNOWN;
            for (other, kind) in facts {
                let (low, low_other) = (n as u32, other as u32);
                match kind {
                    0 => {
                        known.tnum = known.tnum.intersect(KnownBits {
                            value: n & !mask,
                            mask,
                        });
                    }
                    1 => {
                        known.umin = known.umin.max(n.min(other));
                        known.umax = known.umax.min(n.max(other));
                    }
                    2 => {
                        known.smin = known.smin.max((n as i64).min(other as i64));
                        known.smax = known.smax.min((n as i64).max(other as i64));
                    }
                    3 => {
                        known.u32_min = known.u32_min.max(low.min(low_other));
                        known.u32_max = known.u32_max.min(low.max(low_other));
                    }
                    4 => {
                        known.s32_min = known.s32_min.max((low as i32).min(low_other as i32));
                        known.s32_max = known.s32_max.min((low as i32).max(low_other as i32));
                    }
                    _ => known = Scalar::constant(n),
                }
            }
            known.sync();
            (n, known)
        })
}

fn samples() -> ProptestConfig {
    ProptestConfig {
        cases: if long() { 400_000 } else { 8_000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(samples())]

    #[test]
    fn a_concrete_number_satisfies_its_facts_through_every_operation(
        (a, known_a) in known_number(),
        (b, known_b) in known_number(),
        count in 0u64..64,
    ) {
        prop_assert!(known_a.holds(a), "{known_a:?} lost {a:#x}");
        for wide in [true, false] {
            let bits = if wide { 64 } else { 32 };
            for op in OPERATIONS {
                let shift = matches!(op, Alu::Lsh | Alu::Rsh | Alu::Arsh);
                let (b, known_b) = if shift { (count, Scalar::constant(count)) } else { (b, known_b) };
                let result = compute(op, a & ones(bits), b & ones(bits), bits);
                let known = known_a.alu(op, wide, &known_b);
                prop_assert!(known.holds(result), "{known_a:?} {op:?} {known_b:?} (wide: {wide}) is {known:?}, not {result:#x}");
                prop_assert!(!known.is_contradictory());
            }
        }
        for bits in [8, 16, 32] {
            prop_assert!(known_a.zero_extend(bits).holds(a & ones(bits)));
            prop_assert!(known_a.sign_extend(bits, true).holds(signed(a, bits) as u64));
            prop_assert!(known_a.sign_extend(bits, false).holds(signed(a, bits) as u64 & ones(32)));
        }
        for bits in [16, 32, 64] {
            let low = a & ones(bits);
            let reversed = low.swap_bytes() >> (64 - bits);
            prop_assert!(known_a.byte_order(bits, false).holds(low), "{known_a:?} {bits}");
            prop_assert!(known_a.byte_order(bits, true).holds(reversed), "{known_a:?} {bits}");
        }
    }

    #[test]
    fn a_concrete_pair_satisfies_its_facts_on_the_branch_it_takes(
        (a, known_a) in known_number(),
        (b, known_b) in known_number(),
    ) {
        for wide in [true, false] {
            let bits = if wide { 64 } else { 32 };
            for cond in CONDITIONS {
                let outcome = compare(cond, a & ones(bits), b & ones(bits), bits);
                prop_assert_ne!(known_a.decide(cond, wide, &known_b), Some(!outcome));
                let (mut left, mut right) = (known_a, known_b);
                prop_assert!(Scalar::refine(cond, wide, outcome, &mut left, &mut right));
                prop_assert!(left.holds(a), "{known_a:?} {cond:?} {known_b:?} (wide: {wide}, {outcome}) lost {a:#x}: {left:?}");
                prop_assert!(right.holds(b), "{known_a:?} {cond:?} {known_b:?} (wide: {wide}, {outcome}) lost {b:#x}: {right:?}");
            }
        }
    }
}
