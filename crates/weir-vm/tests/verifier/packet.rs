//! Packet bounds: every direction of the comparison with the end, off by one each.

use super::{Program, p};

pub(super) const PROGRAMS: &[Program] = &[
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
];
