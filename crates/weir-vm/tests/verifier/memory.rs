//! Memory that is no packet: stack, context, maps, sizes handed to helpers, ring buffers, atomics, locks.

use super::{Program, p};

pub(super) const PROGRAMS: &[Program] = &[
    p(
        "no bytes below the frame",
        "StackBounds",
        "mov r1, 0\nmov r2, 0\nmov r3, r10\nadd r3, -513\nmov r4, 0\nmov r5, 0\ncall 28\nmov r0, 0\nexit",
    ),
    p(
        "no bytes behind the frame",
        "StackBounds",
        "mov r1, 0\nmov r2, 0\nmov r3, r10\nadd r3, 0\nmov r4, 0\nmov r5, 0\ncall 28\nmov r0, 0\nexit",
    ),
    p(
        "no bytes of the frame",
        "",
        "mov r1, 0\nmov r2, 0\nmov r3, r10\nadd r3, -512\nmov r4, 0\nmov r5, 0\ncall 28\nmov r0, 0\nexit",
    ),
    p(
        "socket looked up and released",
        "",
        "stdw [r10-16], 0\nstdw [r10-8], 0\nmov r2, r10\nadd r2, -16\nmov r3, 12\nmov r4, -1\nmov r5, 0\ncall 84\njeq r0, 0, out\nldxw r6, [r0+16]\nmov r1, r0\ncall 86\nout:\nmov r0, 0\nexit",
    ),
    p(
        "socket not released",
        "LeakedReference",
        "stdw [r10-16], 0\nstdw [r10-8], 0\nmov r2, r10\nadd r2, -16\nmov r3, 12\nmov r4, -1\nmov r5, 0\ncall 84\nmov r0, 0\nexit",
    ),
    p(
        "socket released unchecked",
        "HelperNull",
        "stdw [r10-16], 0\nstdw [r10-8], 0\nmov r2, r10\nadd r2, -16\nmov r3, 12\nmov r4, -1\nmov r5, 0\ncall 84\nmov r1, r0\ncall 86\nmov r0, 0\nexit",
    ),
    p(
        "socket used after its release",
        "NotMemory",
        "stdw [r10-16], 0\nstdw [r10-8], 0\nmov r2, r10\nadd r2, -16\nmov r3, 12\nmov r4, -1\nmov r5, 0\ncall 84\njeq r0, 0, out\nmov r6, r0\nmov r1, r0\ncall 86\nldxw r6, [r6+16]\nout:\nmov r0, 0\nexit",
    ),
    p(
        "socket released twice",
        "NotHeld",
        "stdw [r10-16], 0\nstdw [r10-8], 0\nmov r2, r10\nadd r2, -16\nmov r3, 12\nmov r4, -1\nmov r5, 0\ncall 84\njeq r0, 0, out\nmov r6, r0\nmov r1, r0\ncall 86\nmov r1, r6\ncall 86\nout:\nmov r0, 0\nexit",
    ),
    p(
        "a field of any socket that only full ones have",
        "SocketField",
        "stdw [r10-16], 0\nstdw [r10-8], 0\nmov r2, r10\nadd r2, -16\nmov r3, 12\nmov r4, -1\nmov r5, 0\ncall 99\njeq r0, 0, out\nldxw r6, [r0+16]\nmov r1, r0\ncall 86\nout:\nmov r0, 0\nexit",
    ),
    p(
        "a write to a socket",
        "NotMemory",
        "stdw [r10-16], 0\nstdw [r10-8], 0\nmov r2, r10\nadd r2, -16\nmov r3, 12\nmov r4, -1\nmov r5, 0\ncall 84\njeq r0, 0, out\nstw [r0+16], 0\nmov r1, r0\ncall 86\nout:\nmov r0, 0\nexit",
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
];
