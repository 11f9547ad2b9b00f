//! Control flow, arithmetic on registers, callbacks, static functions, and paths that meet with different numbers.

use super::{Program, p};

pub(super) const PROGRAMS: &[Program] = &[
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
        "a loop that only may_goto ends",
        "",
        "mov r2, 0\nagain:\nmay_goto out\nadd r2, 1\nja again\nout:\nmov r0, 0\nexit",
    ),
    p(
        "a loop that nothing ends",
        "EndlessLoop",
        "mov r2, 0\nagain:\nja on\non:\nja again",
    ),
    p(
        "may_goto bounds rounds, not numbers",
        "MapValueBounds",
        "stw [r10-4], 0\nlddw r1, map 0\nmov r2, r10\nadd r2, -4\ncall 1\njeq r0, 0, out\nmov r7, 0\nagain:\nmay_goto out\nmov r8, r0\nadd r8, r7\nldxb r1, [r8+0]\nadd r7, 1\nja again\nout:\nmov r0, 0\nexit",
    ),
    p(
        "may_goto with a bound on the number",
        "",
        "stw [r10-4], 0\nlddw r1, map 0\nmov r2, r10\nadd r2, -4\ncall 1\njeq r0, 0, out\nmov r7, 0\nagain:\nmay_goto out\njge r7, 16, out\nmov r8, r0\nadd r8, r7\nldxb r1, [r8+0]\nadd r7, 1\nja again\nout:\nmov r0, 0\nexit",
    ),
    p(
        "what a round stores the next one finds",
        "NotMemory",
        "stdw [r10-8], 0\nmov r6, r10\nagain:\nmay_goto out\nldxdw r3, [r10-8]\njne r3, 0, use\nstdw [r10-8], 1\nmov r6, 8\nja again\nuse:\nldxb r1, [r6-1]\nja again\nout:\nmov r0, 0\nexit",
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
