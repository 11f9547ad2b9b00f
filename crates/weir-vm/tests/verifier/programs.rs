//! Small programs, each with the verdict it must get: for every rule one that breaks it and one nearly equal that does not.
//!
//! Maps by number: 0 array (4-byte keys, 4 values of 16 bytes), 1 hash (8, 8), 2 ring buffer, 3 program array, 4 read-only
//! data (`.rodata`, 8 bytes: 3, 0, 0, 0, "abc\0"), 5 hash (4, 16) with a lock at 0, 6 devmap, 7 per-CPU array (4, 8),
//! 8 array of one value of 64 bytes, 9 array of arrays like 0.

/// A program and the name of the rule it breaks; empty for none.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) text: &'static str,
}

const fn p(name: &'static str, rule: &'static str, text: &'static str) -> Program {
    Program { name, rule, text }
}

/// Loads data into r2 and data_end into r3.
macro_rules! packet {
    ($($rest:literal),*) => {
        concat!("ldxw r2, [r1]\nldxw r3, [r1+4]\n", $($rest),*)
    };
}

/// Looks up key 0 of map 1 (a hash) into r0.
macro_rules! lookup {
    ($($rest:literal),*) => {
        concat!(
            "mov r6, r1\nstdw [r10-8], 0\nmov r2, r10\nadd r2, -8\nlddw r1, map 1\ncall 1\n",
            $($rest),*
        )
    };
}

/// Looks up key 0 of map 5 (a hash of values with a lock) into r0, null-checked, and keeps it in r6.
macro_rules! locked {
    ($($rest:literal),*) => {
        concat!(
            "stw [r10-4], 0\nmov r2, r10\nadd r2, -4\nlddw r1, map 5\ncall 1\njne r0, 0, found\nmov r0, 0\nexit\n",
            "found:\nmov r6, r0\n", $($rest),*
        )
    };
}

/// Reserves 16 bytes in map 2 into r0.
macro_rules! reserve {
    ($($rest:literal),*) => {
        concat!("lddw r1, map 2\nmov r2, 16\nmov r3, 0\ncall 131\n", $($rest),*)
    };
}

pub(crate) const PROGRAMS: &[Program] = &[
    // --- the paper's Table 2: what is tracked of a register ---
    p(
        "type: a packet pointer is not a number",
        "NotMemory",
        "mov r2, 8\nldxb r0, [r2]\nexit",
    ),
    p("type: the context is memory", "", "ldxw r0, [r1+12]\nexit"),
    p(
        "id: a check of one copy holds for the other",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r4, r3, out\nldxb r0, [r2+7]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "id: a check of another base does not",
        "PacketBounds",
        packet!(
            "ldxw r4, [r1+16]\nand r4, 7\nmov r5, r2\nadd r5, r4\nmov r4, r5\nadd r4, 8\njgt r4, r3, out\nldxb r0, [r2+7]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "id: null checks hold for copies",
        "",
        lookup!("mov r7, r0\njeq r7, 0, out\nldxdw r0, [r0]\nexit\nout:\nmov r0, 0\nexit"),
    ),
    p(
        "fixed offset: inside",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r4, r3, out\nadd r2, 4\nldxw r0, [r2]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "fixed offset: outside by one",
        "PacketBounds",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r4, r3, out\nadd r2, 5\nldxw r0, [r2]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "unsigned range: index bounded",
        "",
        lookup!(
            "jeq r0, 0, out\nldxw r1, [r6+16]\njgt r1, 4, out\nadd r0, r1\nldxw r0, [r0]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "unsigned range: index one too large",
        "MapValueBounds",
        lookup!(
            "jeq r0, 0, out\nldxw r1, [r6+16]\njgt r1, 5, out\nadd r0, r1\nldxw r0, [r0]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "signed range: below zero is excluded",
        "",
        lookup!(
            "jeq r0, 0, out\nldxdw r1, [r0]\njsgt r1, 7, out\njslt r1, 0, out\nadd r0, r1\nldxb r0, [r0]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "signed range: below zero is possible",
        "PointerDistance",
        lookup!(
            "jeq r0, 0, out\nldxdw r1, [r0]\njsgt r1, 7, out\nadd r0, r1\nldxb r0, [r0]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "tnum: masked index",
        "",
        lookup!(
            "jeq r0, 0, out\nldxdw r1, [r0]\nand r1, 7\nadd r0, r1\nldxb r0, [r0]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "tnum: mask one bit too wide",
        "MapValueBounds",
        lookup!(
            "jeq r0, 0, out\nldxdw r1, [r0]\nand r1, 15\nadd r0, r1\nldxb r0, [r0]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "tnum: known low bits make it aligned",
        "",
        "ldxw r1, [r1+16]\nand r1, 8\nmov r2, r10\nadd r2, -16\nadd r2, r1\nstdw [r10-16], 0\nstdw [r10-8], 0\nldxdw r0, [r2]\nexit",
    ),
    p(
        "tnum: unknown low bits do not",
        "Misaligned",
        "ldxw r1, [r1+16]\nand r1, 9\nmov r2, r10\nadd r2, -24\nadd r2, r1\nstdw [r10-16], 0\nldxdw r0, [r2]\nexit",
    ),
    // --- the paper's Table 3: kinds, and arithmetic on them ---
    p("not initialised", "UninitRegister", "mov r0, r3\nexit"),
    p("initialised", "", "mov r3, 1\nmov r0, r3\nexit"),
    p("number: arithmetic", "", "mov r0, 1\nadd r0, 1\nexit"),
    p(
        "number: no memory",
        "NotMemory",
        "mov r0, 1\nldxb r0, [r0]\nexit",
    ),
    p(
        "context: arithmetic, but no access behind it",
        "ContextMoved",
        "add r1, 4\nldxw r0, [r1]\nexit",
    ),
    p(
        "context: arithmetic alone",
        "",
        "add r1, 4\nmov r0, 0\nexit",
    ),
    p(
        "map: no arithmetic",
        "PointerArithmetic",
        "lddw r1, map 1\nadd r1, 8\nmov r0, 0\nexit",
    ),
    p("map: as it is", "", "lddw r1, map 1\nmov r0, 0\nexit"),
    p(
        "map value: arithmetic",
        "",
        lookup!("jeq r0, 0, out\nadd r0, 4\nldxw r0, [r0]\nexit\nout:\nmov r0, 0\nexit"),
    ),
    p(
        "map value: beyond",
        "MapValueBounds",
        lookup!("jeq r0, 0, out\nadd r0, 8\nldxw r0, [r0]\nexit\nout:\nmov r0, 0\nexit"),
    ),
    p(
        "map value or null: no arithmetic",
        "ArithmeticBeforeNullCheck",
        lookup!("add r0, 4\njeq r0, 0, out\nldxw r0, [r0]\nexit\nout:\nmov r0, 0\nexit"),
    ),
    p(
        "map value or null: no access",
        "NullValue",
        lookup!("ldxw r0, [r0]\nexit"),
    ),
    p(
        "stack: arithmetic",
        "",
        "stdw [r10-8], 0\nmov r1, r10\nadd r1, -8\nldxdw r0, [r1]\nexit",
    ),
    p(
        "stack: subtraction",
        "StackSubtraction",
        "stdw [r10-8], 0\nmov r1, r10\nsub r1, 8\nldxdw r0, [r1]\nexit",
    ),
    p(
        "packet: arithmetic",
        "",
        packet!("add r2, 1\nmov r0, 0\nexit"),
    ),
    p(
        "packet: multiplication",
        "PointerOperator",
        packet!("mul r2, 2\nmov r0, 0\nexit"),
    ),
    p(
        "packet end: no arithmetic",
        "PointerArithmetic",
        packet!("add r3, 1\nmov r0, 0\nexit"),
    ),
    p(
        "packet end: comparison",
        "",
        packet!("mov r0, 0\njgt r2, r3, out\nmov r0, 2\nout:\nexit"),
    ),
    // --- packet bounds, all directions, off by one ---
    p(
        "p+8 > end",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r4, r3, out\nldxdw r0, [r2]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "p+8 > end, one more",
        "PacketBounds",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r4, r3, out\nldxb r0, [r2+8]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "p+8 > end, wrong side",
        "PacketBounds",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r4, r3, out\nmov r0, 0\nexit\nout:\nldxb r0, [r2]\nexit"
        ),
    ),
    p(
        "end > p+8 proves one more byte",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r3, r4, in\nmov r0, 0\nexit\nin:\nldxb r0, [r2+8]\nexit"
        ),
    ),
    p(
        "end > p+8 does not prove two more",
        "PacketBounds",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r3, r4, in\nmov r0, 0\nexit\nin:\nldxb r0, [r2+9]\nexit"
        ),
    ),
    p(
        "p+8 >= end, not taken, proves one more",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njge r4, r3, out\nldxb r0, [r2+8]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "end >= p+8",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njge r3, r4, in\nmov r0, 0\nexit\nin:\nldxb r0, [r2+7]\nexit"
        ),
    ),
    p(
        "end >= p+8, one more",
        "PacketBounds",
        packet!(
            "mov r4, r2\nadd r4, 8\njge r3, r4, in\nmov r0, 0\nexit\nin:\nldxb r0, [r2+8]\nexit"
        ),
    ),
    p(
        "p+8 < end",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njlt r4, r3, in\nmov r0, 0\nexit\nin:\nldxb r0, [r2+8]\nexit"
        ),
    ),
    p(
        "p+8 <= end",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njle r4, r3, in\nmov r0, 0\nexit\nin:\nldxdw r0, [r2]\nexit"
        ),
    ),
    p(
        "p+8 <= end, one more",
        "PacketBounds",
        packet!(
            "mov r4, r2\nadd r4, 8\njle r4, r3, in\nmov r0, 0\nexit\nin:\nldxb r0, [r2+8]\nexit"
        ),
    ),
    p(
        "end < p+8, not taken",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njlt r3, r4, out\nldxdw r0, [r2]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "end <= p+8, not taken, proves one more",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njle r3, r4, out\nldxb r0, [r2+8]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "variable offset, then a check",
        "",
        packet!(
            "ldxw r4, [r1+16]\nand r4, 255\nadd r2, r4\nmov r5, r2\nadd r5, 4\njgt r5, r3, out\nldxw r0, [r2]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "variable offset behind the check",
        "PacketBounds",
        packet!(
            "ldxw r4, [r1+16]\nand r4, 255\nmov r5, r2\nadd r5, 4\njgt r5, r3, out\nadd r2, r4\nldxw r0, [r2]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "offset that may be negative",
        "PacketNegative",
        packet!(
            "ldxw r4, [r1+16]\nand r4, 7\nsub r2, r4\nmov r5, r2\nadd r5, 4\njgt r5, r3, out\nldxw r0, [r2]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "metadata against data",
        "",
        "ldxw r2, [r1+8]\nldxw r3, [r1]\nmov r4, r2\nadd r4, 4\njgt r4, r3, out\nldxw r0, [r2]\nexit\nout:\nmov r0, 0\nexit",
    ),
    p(
        "metadata without a check",
        "PacketBounds",
        "ldxw r2, [r1+8]\nldxw r0, [r2]\nexit",
    ),
    p(
        "stale after adjust_head",
        "NotMemory",
        "mov r6, r1\nldxw r7, [r6]\nldxw r8, [r6+4]\nmov r4, r7\nadd r4, 4\njgt r4, r8, out\nmov r2, 0\ncall 44\nldxw r0, [r7]\nexit\nout:\nmov r0, 0\nexit",
    ),
    p(
        "loaded again after adjust_head",
        "",
        "mov r6, r1\nmov r2, 0\ncall 44\nldxw r7, [r6]\nldxw r8, [r6+4]\nmov r4, r7\nadd r4, 4\njgt r4, r8, out\nldxw r0, [r7]\nexit\nout:\nmov r0, 0\nexit",
    ),
    // --- control flow ---
    p(
        "unreachable",
        "Unreachable",
        "mov r0, 0\nexit\nmov r0, 1\nexit",
    ),
    p(
        "all reachable",
        "",
        "mov r0, 0\njeq r1, 1, other\nexit\nother:\nmov r0, 1\nexit",
    ),
    p("falls off the end", "FallsOffEnd", "mov r0, 0"),
    p(
        "ends in a jump back",
        "",
        "mov r0, 0\nja over\nback:\nexit\nover:\nja back",
    ),
    p(
        "jumps into another function",
        "JumpLeavesFunction",
        "call local f\njeq r0, 0, inside\nexit\nf:\nmov r0, 0\ninside:\nmov r0, 1\nexit",
    ),
    p(
        "nine frames",
        "CallDepth",
        "call local a\nexit\na:\ncall local b\nexit\nb:\ncall local c\nexit\nc:\ncall local d\nexit\nd:\ncall local e\nexit\ne:\ncall local f\nexit\nf:\ncall local g\nexit\ng:\ncall local h\nexit\nh:\nmov r0, 0\nexit",
    ),
    p(
        "eight frames",
        "",
        "call local a\nexit\na:\ncall local b\nexit\nb:\ncall local c\nexit\nc:\ncall local d\nexit\nd:\ncall local e\nexit\ne:\ncall local f\nexit\nf:\ncall local g\nexit\ng:\nmov r0, 0\nexit",
    ),
    p(
        "too much stack together",
        "CombinedStack",
        "stdw [r10-256], 0\ncall local f\nexit\nf:\nstdw [r10-264], 0\nmov r0, 0\nexit",
    ),
    p(
        "just enough stack together",
        "",
        "stdw [r10-256], 0\ncall local f\nexit\nf:\nstdw [r10-256], 0\nmov r0, 0\nexit",
    ),
    p(
        "tail call below 256 bytes of stack",
        "TailCallStack",
        "stdw [r10-256], 0\ncall local f\nmov r0, 0\nexit\nf:\nlddw r2, map 3\nmov r3, 0\ncall 12\nmov r0, 0\nexit",
    ),
    p(
        "tail call below less",
        "",
        "stdw [r10-240], 0\ncall local f\nmov r0, 0\nexit\nf:\nlddw r2, map 3\nmov r3, 0\ncall 12\nmov r0, 0\nexit",
    ),
    p(
        "recursion",
        "Recursion",
        "call local f\nexit\nf:\nmov r0, 0\njeq r1, 0, out\ncall local f\nout:\nexit",
    ),
    p(
        "endless loop",
        "EndlessLoop",
        "mov r0, 0\nagain:\nadd r1, 0\nja again",
    ),
    p(
        "bounded loop",
        "",
        "mov r0, 0\nagain:\nadd r0, 1\njlt r0, 100, again\nexit",
    ),
    p(
        "a loop too long",
        "Budget",
        "mov r0, 0\nagain:\nadd r0, 1\njlt r0, 1000000, again\nexit",
    ),
    p(
        "calls through registers",
        "IndirectCall",
        "lddw r2, function f\ncall r2\nexit\nf:\nmov r0, 0\nexit",
    ),
    // --- registers and arithmetic ---
    p("r0 missing at the end", "UninitRegister", "exit"),
    p(
        "r1 after a call",
        "UninitRegister",
        "call 7\nmov r0, r1\nexit",
    ),
    p("r6 after a call", "", "mov r6, 1\ncall 7\nmov r0, r6\nexit"),
    p(
        "shift by the width",
        "ShiftAmount",
        "mov r0, 1\nlsh r0, 64\nexit",
    ),
    p("shift by less", "", "mov r0, 1\nlsh r0, 63\nexit"),
    p(
        "narrow shift by the width",
        "ShiftAmount",
        "mov r0, 1\nlsh32 r0, 32\nexit",
    ),
    p(
        "division by zero",
        "DivisionByZero",
        "mov r0, 1\ndiv r0, 0\nexit",
    ),
    p("division", "", "mov r0, 1\ndiv r0, 2\nexit"),
    p(
        "division by a register that may be zero",
        "",
        "ldxw r1, [r1+16]\nmov r0, 1\ndiv r0, r1\nexit",
    ),
    p(
        "narrow pointer arithmetic",
        "NarrowPointer",
        packet!("add32 r2, 1\nmov r0, 0\nexit"),
    ),
    p(
        "number minus pointer",
        "NumberMinusPointer",
        packet!("mov r4, 1\nsub r4, r2\nmov r0, 0\nexit"),
    ),
    p(
        "pointer minus pointer",
        "",
        packet!("sub r3, r2\nmov r0, r3\nexit"),
    ),
    p(
        "pointer plus pointer",
        "TwoPointers",
        packet!("add r2, r3\nmov r0, 0\nexit"),
    ),
    p(
        "distance without bounds",
        "PointerDistance",
        lookup!("jeq r0, 0, out\nldxdw r1, [r0]\nadd r0, r1\nout:\nmov r0, 0\nexit"),
    ),
    p(
        "number plus pointer",
        "",
        packet!(
            "mov r4, 4\nadd r4, r2\njgt r4, r3, out\nldxw r0, [r2]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    // --- stack ---
    p(
        "below the frame",
        "StackBounds",
        "stdw [r10-520], 0\nmov r0, 0\nexit",
    ),
    p(
        "at the bottom of the frame",
        "",
        "stdw [r10-512], 0\nmov r0, 0\nexit",
    ),
    p(
        "above the frame",
        "StackBounds",
        "stdw [r10], 0\nmov r0, 0\nexit",
    ),
    p("never written, as root may", "", "ldxdw r0, [r10-8]\nexit"),
    p(
        "misaligned",
        "Misaligned",
        "stdw [r10-12], 0\nmov r0, 0\nexit",
    ),
    p(
        "a pointer stored in four bytes",
        "PartialSpill",
        "stxw [r10-8], r1\nmov r0, 0\nexit",
    ),
    p(
        "a pointer stored whole and loaded",
        "",
        "stxdw [r10-8], r1\nldxdw r2, [r10-8]\nldxw r0, [r2+16]\nexit",
    ),
    p(
        "four bytes of a stored pointer",
        "PartialFill",
        "stxdw [r10-8], r1\nldxw r0, [r10-8]\nexit",
    ),
    p(
        "a pointer overwritten in part is no pointer",
        "NotMemory",
        "stxdw [r10-8], r1\nstb [r10-8], 0\nldxdw r2, [r10-8]\nldxw r0, [r2+16]\nexit",
    ),
    p(
        "stored number keeps its bounds",
        "",
        lookup!(
            "jeq r0, 0, out\nldxdw r1, [r0]\nand r1, 7\nstxdw [r10-16], r1\nldxdw r2, [r10-16]\nadd r0, r2\nldxb r0, [r0]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "stored narrow number keeps its bounds",
        "",
        lookup!(
            "jeq r0, 0, out\nldxdw r1, [r0]\nand r1, 7\nstxw [r10-16], r1\nldxw r2, [r10-16]\nadd r0, r2\nldxb r0, [r0]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "a bound learned of a copy on the stack",
        "",
        lookup!(
            "jeq r0, 0, out\nldxw r1, [r6+16]\nstxdw [r10-16], r1\njgt r1, 7, out\nldxdw r2, [r10-16]\nadd r0, r2\nldxb r0, [r0]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "offset from a sibling",
        "",
        lookup!(
            "jeq r0, 0, out\nldxw r1, [r6+16]\nmov r2, r1\nadd r2, 2\njgt r1, 5, out\nadd r0, r2\nldxb r0, [r0]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "offset from a sibling, too far",
        "MapValueBounds",
        lookup!(
            "jeq r0, 0, out\nldxw r1, [r6+16]\nmov r2, r1\nadd r2, 3\njgt r1, 5, out\nadd r0, r2\nldxb r0, [r0]\nexit\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "variable offset, bounded",
        "",
        "ldxw r1, [r1+16]\nand r1, 7\nmov r2, r10\nadd r2, -8\nadd r2, r1\nstdw [r10-8], 0\nldxb r0, [r2]\nexit",
    ),
    p(
        "variable offset, out of the frame",
        "StackBounds",
        "ldxw r1, [r1+16]\nand r1, 15\nmov r2, r10\nadd r2, -8\nadd r2, r1\nstdw [r10-8], 0\nldxb r0, [r2]\nexit",
    ),
    p(
        "variable store into a stored pointer leaves bytes",
        "",
        "ldxw r3, [r1+16]\nand r3, 3\nstxdw [r10-8], r1\nmov r2, r10\nadd r2, -8\nadd r2, r3\nstb [r2], 1\nldxdw r0, [r10-8]\nexit",
    ),
    p(
        "a stack pointer in the caller's frame",
        "SpillToCaller",
        "mov r1, r10\nadd r1, -8\ncall local f\nmov r0, 0\nexit\nf:\nstxdw [r1], r10\nmov r0, 0\nexit",
    ),
    p(
        "a number in the caller's frame",
        "",
        "mov r1, r10\nadd r1, -8\ncall local f\nldxdw r0, [r10-8]\nexit\nf:\nstdw [r1], 3\nmov r0, 0\nexit",
    ),
    p(
        "returns a stack pointer",
        "ReturnsStackPointer",
        "call local f\nmov r0, 0\nexit\nf:\nmov r0, r10\nexit",
    ),
    // --- context ---
    p("field by half", "ContextField", "ldxh r0, [r1+12]\nexit"),
    p(
        "field by eight bytes",
        "ContextField",
        "ldxdw r0, [r1]\nexit",
    ),
    p(
        "behind the context",
        "ContextField",
        "ldxw r0, [r1+24]\nexit",
    ),
    p("between fields", "ContextField", "ldxw r0, [r1+2]\nexit"),
    p("written", "ContextField", "stw [r1+16], 0\nmov r0, 0\nexit"),
    p(
        "egress_ifindex outside devmap programs",
        "ContextField",
        "ldxw r0, [r1+20]\nexit",
    ),
    p(
        "variable offset of the context",
        "VariableOffset",
        "ldxw r2, [r1+16]\nand r2, 4\nadd r1, r2\nldxw r0, [r1]\nexit",
    ),
    p(
        "context on one path, stack on the other",
        "MixedPointers",
        "mov r2, r1\nldxw r3, [r1+16]\nstw [r10-4], 0\njeq r3, 0, go\nmov r2, r10\nadd r2, -16\ngo:\nldxw r0, [r2+12]\nexit",
    ),
    // --- maps ---
    p("key of the stack", "", lookup!("mov r0, 0\nexit")),
    p(
        "key reaching out of the stack",
        "StackBounds",
        "mov r2, r10\nadd r2, -4\nlddw r1, map 1\ncall 1\nmov r0, 0\nexit",
    ),
    p(
        "no map in r1",
        "HelperArgument",
        "mov r2, r10\nadd r2, -8\ncall 1\nmov r0, 0\nexit",
    ),
    p(
        "read-only data is constant",
        "",
        "lddw r1, value 4+0\nldxw r2, [r1]\nlddw r1, value 8+0\njeq r2, 3, ok\nldxb r0, [r1+64]\nexit\nok:\nldxb r0, [r1+63]\nexit",
    ),
    p(
        "behind read-only data",
        "MapValueBounds",
        "lddw r1, value 4+0\nldxw r0, [r1+8]\nexit",
    ),
    p(
        "writes read-only data",
        "ReadOnlyMap",
        "lddw r1, value 4+0\nstw [r1], 0\nmov r0, 0\nexit",
    ),
    p(
        "writes data",
        "",
        "lddw r1, value 8+60\nstw [r1], 0\nmov r0, 0\nexit",
    ),
    p(
        "constant key of an array needs no check",
        "",
        "stw [r10-8], 3\nmov r2, r10\nadd r2, -8\nlddw r1, map 0\ncall 1\nldxdw r0, [r0]\nexit",
    ),
    p(
        "constant key behind an array does",
        "NullValue",
        "stw [r10-8], 4\nmov r2, r10\nadd r2, -8\nlddw r1, map 0\ncall 1\nldxdw r0, [r0]\nexit",
    ),
    p(
        "map in a map",
        "",
        "stw [r10-4], 0\nmov r2, r10\nadd r2, -4\nlddw r1, map 9\ncall 1\njeq r0, 0, out\nmov r1, r0\nldxw r3, [r10-4]\nstxw [r10-8], r3\nmov r2, r10\nadd r2, -8\ncall 1\njeq r0, 0, out\nldxdw r0, [r0+8]\nexit\nout:\nmov r0, 0\nexit",
    ),
    p(
        "map in a map, unchecked",
        "HelperArgument",
        "stw [r10-4], 0\nmov r2, r10\nadd r2, -4\nlddw r1, map 9\ncall 1\nmov r1, r0\nmov r2, r10\nadd r2, -4\ncall 1\nmov r0, 0\nexit",
    ),
    p(
        "lookup in a ring buffer",
        "HelperMap",
        "stw [r10-4], 0\nmov r2, r10\nadd r2, -4\nlddw r1, map 2\ncall 1\nmov r0, 0\nexit",
    ),
    p(
        "redirect to a devmap",
        "",
        "lddw r1, map 6\nmov r2, 0\nmov r3, 0\ncall 51\nexit",
    ),
    p(
        "redirect to a hash",
        "HelperMap",
        "lddw r1, map 1\nmov r2, 0\nmov r3, 0\ncall 51\nexit",
    ),
    p(
        "update from the packet",
        "",
        packet!(
            "mov r4, r2\nadd r4, 16\njgt r4, r3, out\nlddw r1, map 1\nmov r3, r2\nadd r3, 8\nmov r4, 0\ncall 2\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "update from an unchecked packet",
        "PacketBounds",
        packet!("lddw r1, map 1\nmov r3, r2\nmov r4, 0\ncall 2\nmov r0, 0\nexit"),
    ),
    // --- sizes ---
    p(
        "bounded size",
        "",
        "ldxw r4, [r1+16]\nand r4, 7\nadd r4, 1\nmov r2, 0\nmov r3, r10\nadd r3, -8\ncall 189\nmov r0, 0\nexit",
    ),
    p(
        "size past the buffer",
        "StackBounds",
        "ldxw r4, [r1+16]\nand r4, 15\nadd r4, 1\nmov r2, 0\nmov r3, r10\nadd r3, -8\ncall 189\nmov r0, 0\nexit",
    ),
    p(
        "size that may be zero",
        "SizeZero",
        "ldxw r4, [r1+16]\nand r4, 7\nmov r2, 0\nmov r3, r10\nadd r3, -8\ncall 189\nmov r0, 0\nexit",
    ),
    p(
        "size without a bound",
        "SizeUnbounded",
        "ldxw r4, [r1+16]\nadd r4, 1\nmov r2, 0\nmov r3, r10\nadd r3, -8\ncall 189\nmov r0, 0\nexit",
    ),
    p(
        "size that may be negative",
        "SizeNegative",
        lookup!(
            "jeq r0, 0, out\nldxdw r4, [r0]\njsgt r4, 8, out\nmov r1, r6\nmov r2, 0\nmov r3, r10\nadd r3, -8\ncall 189\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "packet bytes where the helper takes none",
        "HelperPacket",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r4, r3, out\nmov r3, r2\nmov r2, 0\nmov r4, 8\ncall 190\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "checksum of packet bytes",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r4, r3, out\nmov r1, 0\nmov r3, r2\nmov r2, 0\nmov r4, 8\nmov r5, 0\ncall 28\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "null with a size",
        "NotMemory",
        "mov r1, 0\nmov r2, 4\nmov r3, 0\nmov r4, 0\nmov r5, 0\ncall 28\nmov r0, 0\nexit",
    ),
    p(
        "helper unknown to XDP",
        "UnknownHelper",
        "call 26\nmov r0, 0\nexit",
    ),
    // --- ring buffer ---
    p(
        "record submitted",
        "",
        reserve!(
            "jeq r0, 0, out\nstdw [r0+8], 0\nmov r1, r0\nmov r2, 0\ncall 132\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "record leaked",
        "LeakedReference",
        reserve!("jeq r0, 0, out\nstdw [r0+8], 0\nout:\nmov r0, 0\nexit"),
    ),
    p(
        "record never checked",
        "HelperNull",
        reserve!("mov r1, r0\nmov r2, 0\ncall 132\nmov r0, 0\nexit"),
    ),
    p(
        "behind the record",
        "MemoryBounds",
        reserve!(
            "jeq r0, 0, out\nmov r6, r0\nstdw [r0+16], 0\nmov r1, r6\nmov r2, 0\ncall 132\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "submitted twice",
        "NotHeld",
        reserve!(
            "jeq r0, 0, out\nmov r6, r0\nmov r1, r0\nmov r2, 0\ncall 132\nmov r1, r6\nmov r2, 0\ncall 132\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "moved before it is submitted",
        "ReleaseMoved",
        reserve!(
            "jeq r0, 0, out\nmov r1, r0\nadd r1, 8\nmov r2, 0\ncall 132\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "written after it was submitted",
        "NotMemory",
        reserve!(
            "jeq r0, 0, out\nmov r6, r0\nmov r1, r0\nmov r2, 0\ncall 132\nstdw [r6], 0\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "size of a record not constant",
        "ConstantRequired",
        "ldxw r2, [r1+16]\nlddw r1, map 2\nmov r3, 0\ncall 131\nmov r0, 0\nexit",
    ),
    p(
        "leaked into a tail call",
        "LeakedReference",
        "mov r7, r1\nlddw r1, map 2\nmov r2, 16\nmov r3, 0\ncall 131\njeq r0, 0, out\nmov r6, r0\nmov r1, r7\nlddw r2, map 3\nmov r3, 0\ncall 12\nmov r1, r6\nmov r2, 0\ncall 132\nout:\nmov r0, 0\nexit",
    ),
    // --- atomics ---
    p(
        "atomic on a map value",
        "",
        lookup!("jeq r0, 0, out\nmov r1, 1\nlock add [r0], r1\nout:\nmov r0, 0\nexit"),
    ),
    p(
        "atomic on the packet",
        "AtomicTarget",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r4, r3, out\nmov r1, 1\nlock add [r2], r1\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "atomic on the context",
        "AtomicTarget",
        "mov r2, 1\nlock add [r1], r2\nmov r0, 0\nexit",
    ),
    p(
        "misaligned atomic",
        "Misaligned",
        "lddw r1, value 8+4\nmov r2, 1\nlock add [r1], r2\nmov r0, 0\nexit",
    ),
    p(
        "aligned atomic",
        "",
        "lddw r1, value 8+8\nmov r2, 1\nlock add [r1], r2\nmov r0, 0\nexit",
    ),
    p(
        "misaligned load of a map value",
        "",
        "lddw r1, value 8+4\nldxdw r0, [r1]\nexit",
    ),
    // --- locks ---
    p(
        "locked and unlocked",
        "",
        locked!("mov r1, r6\ncall 93\nstdw [r6+8], 1\nmov r1, r6\ncall 94\nmov r0, 0\nexit"),
    ),
    p(
        "never unlocked",
        "LeakedLock",
        locked!("mov r1, r6\ncall 93\nmov r0, 0\nexit"),
    ),
    p(
        "helper under the lock",
        "CallUnderLock",
        locked!("mov r1, r6\ncall 93\ncall 5\nmov r1, r6\ncall 94\nmov r0, 0\nexit"),
    ),
    p(
        "locked twice",
        "CallUnderLock",
        locked!("mov r1, r6\ncall 93\nmov r1, r6\ncall 93\nmov r0, 0\nexit"),
    ),
    p(
        "unlocked without a lock",
        "OtherLock",
        locked!("mov r1, r6\ncall 94\nmov r0, 0\nexit"),
    ),
    p(
        "lock as data",
        "LockAccess",
        locked!("stw [r6], 0\nmov r0, 0\nexit"),
    ),
    p(
        "beside the lock",
        "",
        locked!("stw [r6+4], 0\nmov r0, 0\nexit"),
    ),
    p(
        "lock at another place",
        "NoLock",
        locked!("mov r1, r6\nadd r1, 4\ncall 93\nmov r0, 0\nexit"),
    ),
    // --- callbacks ---
    p(
        "bpf_loop",
        "",
        "mov r1, 10\nlddw r2, function f\nmov r3, 0\nmov r4, 0\ncall 181\nmov r0, 0\nexit\nf:\nmov r0, 0\nexit",
    ),
    p(
        "bpf_loop whose callback counts on the stack",
        "",
        "stdw [r10-8], 0\nldxw r1, [r1+16]\nlddw r2, function f\nmov r3, r10\nadd r3, -8\nmov r4, 0\ncall 181\nmov r0, 0\nexit\nf:\nldxdw r1, [r2]\nadd r1, 1\nstxdw [r2], r1\nmov r0, 0\nexit",
    ),
    p(
        "the count is not trusted",
        "MapValueBounds",
        "stdw [r10-8], 0\nldxw r1, [r1+16]\nlddw r2, function f\nmov r3, r10\nadd r3, -8\nmov r4, 0\ncall 181\nldxdw r1, [r10-8]\nlddw r2, value 8+0\njgt r1, 70, out\nadd r2, r1\nldxb r0, [r2]\nexit\nout:\nmov r0, 0\nexit\nf:\nldxdw r1, [r2]\nadd r1, 1\nstxdw [r2], r1\nmov r0, 0\nexit",
    ),
    p(
        "callback returns 2",
        "CallbackResult",
        "mov r1, 10\nlddw r2, function f\nmov r3, 0\nmov r4, 0\ncall 181\nmov r0, 0\nexit\nf:\nmov r0, 2\nexit",
    ),
    p(
        "callback returns a pointer",
        "ReturnsNoNumber",
        "mov r6, r1\nmov r1, 10\nlddw r2, function f\nmov r3, r10\nmov r4, 0\ncall 181\nmov r0, 0\nexit\nf:\nlddw r0, map 1\nexit",
    ),
    p(
        "no function as callback",
        "CallbackExpected",
        "mov r1, 10\nmov r2, 0\nmov r3, 0\nmov r4, 0\ncall 181\nmov r0, 0\nexit",
    ),
    p(
        "for_each_map_elem",
        "",
        "lddw r1, map 0\nlddw r2, function f\nmov r3, 0\nmov r4, 0\ncall 164\nmov r0, 0\nexit\nf:\nldxw r4, [r2]\nstxw [r3+12], r4\nmov r0, 0\nexit",
    ),
    p(
        "writes a key",
        "ReadOnlyMemory",
        "lddw r1, map 0\nlddw r2, function f\nmov r3, 0\nmov r4, 0\ncall 164\nmov r0, 0\nexit\nf:\nstw [r2], 0\nmov r0, 0\nexit",
    ),
    p(
        "past a key",
        "MemoryBounds",
        "lddw r1, map 0\nlddw r2, function f\nmov r3, 0\nmov r4, 0\ncall 164\nmov r0, 0\nexit\nf:\nldxdw r0, [r2]\nmov r0, 0\nexit",
    ),
    p(
        "context of the callback must be stack or null",
        "HelperArgument",
        "mov r3, r1\nmov r1, 10\nlddw r2, function f\nmov r4, 0\ncall 181\nmov r0, 0\nexit\nf:\nmov r0, 0\nexit",
    ),
    // --- static functions ---
    p(
        "pointer passed to a function",
        "",
        packet!(
            "mov r4, r2\nadd r4, 8\njgt r4, r3, out\nmov r1, r2\ncall local f\nexit\nout:\nmov r0, 0\nexit\nf:\nldxdw r0, [r1]\nexit"
        ),
    ),
    p(
        "bound learned in a function",
        "",
        "ldxw r6, [r1+16]\nmov r1, r6\ncall local f\nlddw r1, value 8+0\nadd r1, r0\nldxb r0, [r1]\nexit\nf:\nmov r0, r1\nand r0, 63\nexit",
    ),
    p(
        "precision through a function's result",
        "MapValueBounds",
        "ldxw r6, [r1+16]\nmov r1, r6\ncall local f\nlddw r1, value 8+0\nadd r1, r0\nldxb r0, [r1]\nexit\nf:\nmov r0, 64\njeq r1, 7, out\nmov r0, 63\nout:\nexit",
    ),
    // Two paths meet with different numbers; the second must not be taken for the first.
    p(
        "a number that matters later",
        "MapValueBounds",
        "ldxw r2, [r1+16]\nmov r6, 1\njeq r2, 0, a\nmov r6, 64\na:\nmov r3, 0\njeq r2, 5, b\nmov r3, 1\nb:\njeq r2, 6, c\nadd r3, 1\nc:\nlddw r1, value 8+0\nadd r1, r6\nldxb r0, [r1]\nexit",
    ),
    p(
        "a number that matters later, through the stack",
        "MapValueBounds",
        "ldxw r2, [r1+16]\nmov r6, 1\njeq r2, 0, a\nmov r6, 64\na:\nstxdw [r10-8], r6\nmov r3, 0\njeq r2, 5, b\nmov r3, 1\nb:\njeq r2, 6, c\nadd r3, 1\nc:\nldxdw r6, [r10-8]\nlddw r1, value 8+0\nadd r1, r6\nldxb r0, [r1]\nexit",
    ),
    p(
        "stack offset without bounds",
        "PointerDistance",
        lookup!(
            "jeq r0, 0, out\nldxdw r1, [r0]\nmov r2, r10\nadd r2, r1\nstdw [r2], 0\nout:\nmov r0, 0\nexit"
        ),
    ),
    p(
        "stack offset far away",
        "StackBounds",
        "ldxw r2, [r1+16]\nand r2, 1023\nmov r3, r10\nadd r3, -512\nadd r3, r2\nldxb r0, [r3]\nexit",
    ),
    p(
        "stack offset with a bound too high",
        "StackUnbounded",
        "ldxw r2, [r1+16]\nmov r3, r10\nadd r3, -512\nadd r3, r2\nldxb r0, [r3]\nexit",
    ),
    p(
        "record of a size that is never there",
        "",
        "lddw r1, map 2\nlddw r2, 0x20000000\nmov r3, 0\ncall 131\njeq r0, 0, out\nmov r1, r0\nmov r2, 0\ncall 133\nout:\nmov r0, 0\nexit",
    ),
    p(
        "call into the middle of nothing",
        "CallTarget",
        "lddw r2, function +1000\nmov r0, 0\nexit",
    ),
    p(
        "packet pointers outlive a tail call that found nothing",
        "",
        "mov r6, r1\nldxw r7, [r6]\nldxw r8, [r6+4]\nmov r4, r7\nadd r4, 4\njgt r4, r8, out\nlddw r2, map 3\nmov r3, 0\ncall 12\nldxw r0, [r7]\nexit\nout:\nmov r0, 0\nexit",
    ),
];
