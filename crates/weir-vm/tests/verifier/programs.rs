//! Small programs, each with the verdict it must get: for every rule one that breaks it and one nearly equal that does not.
//!
//! Maps by number: 0 array (4-byte keys, 4 values of 16 bytes), 1 hash (8, 8), 2 ring buffer, 3 program array, 4 read-only
//! data (`.rodata`, 8 bytes: 3, 0, 0, 0, "abc\0"), 5 hash (4, 16) with a lock at 0, 6 devmap, 7 per-CPU array (4, 8),
//! 8 array of one value of 64 bytes, 9 array of arrays like 0.

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Program> {
    [
        paper::PROGRAMS,
        packet::PROGRAMS,
        flow::PROGRAMS,
        memory::PROGRAMS,
    ]
    .into_iter()
    .flatten()
}

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

// Below the macros, which they use.
mod flow;
mod memory;
mod packet;
mod paper;
