//! The rows of the paper's Tables 2 and 3: what is tracked of a register, and the kinds it can have.

use super::{Program, p};

pub(super) const PROGRAMS: &[Program] = &[
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
];
