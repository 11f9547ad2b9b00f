//! What Linux offers to XDP and tc programs, and since when: helpers, map kinds, instructions, program features.
//!
//! Owns the one table of helpers with their prototypes (the verifier checks calls against it), the table of map kinds,
//! and the answer to "which kernel does this program need". Whether this engine implements a helper is not said here:
//! that is `helpers`. Versions are those of the first release; distributions may have more in older kernels.
//! Invariant: helper `n` stands at index `n - 1`.

mod context;
mod functions;
mod helpers;
mod maps;
mod needs;

use std::fmt;

pub(crate) use functions::{
    DynptrKind, Effect, KERNEL_FUNCTION, KernelFunction, flags, kernel_function,
    kernel_function_number, parameter_name,
};
pub use maps::{MAP_KINDS, MapKindInfo};
pub use needs::{Need, Requirement};

/// A kernel release, `major.minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kernel(pub u8, pub u8);

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A text that is no kernel release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no kernel release: write major.minor, as in 6.12")]
pub struct NoRelease(pub String);

impl std::str::FromStr for Kernel {
    type Err = NoRelease;

    /// `6.12`, or a full version such as `6.12.57-amd64`, of which the first two numbers count.
    fn from_str(text: &str) -> Result<Kernel, NoRelease> {
        let release = || {
            let (major, rest) = text.split_once('.')?;
            let end = rest.find(|c: char| !c.is_ascii_digit());
            let minor = rest.get(..end.unwrap_or(rest.len()))?;
            Some(Kernel(major.parse().ok()?, minor.parse().ok()?))
        };
        release().ok_or_else(|| NoRelease(text.to_owned()))
    }
}

/// A helper function of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperInfo {
    /// `BPF_FUNC_` number.
    pub number: u32,
    /// Name without `bpf_`.
    pub name: &'static str,
    /// First kernel that has it.
    pub since: Kernel,
    /// Whether XDP programs may call it in Linux 6.18.
    pub xdp: bool,
    /// Whether tc programs (`sched_cls`) may call it in Linux 6.18.
    pub tc: bool,
    /// How it is called; nothing for helpers whose arguments this engine does not check.
    pub call: Option<Call>,
}

/// The prototype of a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Arguments in r1 and on; registers beyond may hold anything.
    pub arguments: &'static [Argument],
    /// Result in r0.
    pub result: Outcome,
    /// Packet pointers loaded before the call are stale after it.
    pub moves_packet: bool,
}

/// What an argument must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Any readable register; no pointer into the stack is taken for memory.
    Any,
    /// The program's context.
    Context,
    /// The program's context or null.
    ContextOrNull,
    /// A map known when the program is loaded; kinds are per helper.
    Map,
    /// Readable memory of the map's key size.
    Key,
    /// Readable memory of the map's value size.
    Value,
    /// Writable memory of the map's value size, initialised by the call.
    ValueOut,
    /// Readable memory; its length is the next argument.
    Read,
    /// As [`Argument::Read`], or null with length 0.
    ReadOrNull,
    /// Writable memory, initialised by the call; its length is the next argument.
    Write,
    /// As [`Argument::Write`], or null with length 0.
    WriteOrNull,
    /// Initialised memory that is read and written; its length is the next argument.
    ReadWrite,
    /// Readable memory of this many bytes.
    ReadBytes(u32),
    /// Writable, naturally aligned memory of this many bytes, initialised by the call.
    WriteBytes(u32),
    /// Initialised, naturally aligned memory of this many bytes that is read and written.
    ReadWriteBytes(u32),
    /// Length of the memory before, not 0.
    Size,
    /// Length of the memory before, may be 0.
    SizeOrZero,
    /// Length of a ring buffer record: a constant.
    RecordSize,
    /// A reserved ring buffer record; the call releases it.
    Record,
    /// A `struct bpf_spin_lock` in a map value.
    SpinLock,
    /// A `struct bpf_timer` in a map value.
    Timer,
    /// A function of the program.
    Callback,
    /// A pointer to the stack, or null: what the callback gets.
    StackOrNull,
    /// A zero-terminated string in a read-only map value.
    ConstantString,
    /// A socket.
    Socket,
    /// A socket, or a kernel object that is one.
    AnySocket,
    /// A kernel object of this struct.
    Object(&'static str),
    /// As [`Argument::Object`], or null.
    ObjectOrNull(&'static str),
    /// Readable memory of the map's value size, or null.
    ValueOrNull,
    /// A dynptr.
    Dynptr,
    /// Stack where the call makes a dynptr over memory.
    NewDynptr,
    /// Stack where the call makes a dynptr that holds a ring buffer record.
    NewRecordDynptr,
    /// A dynptr that holds a ring buffer record; the call releases it.
    RecordDynptr,
}

/// What a helper leaves in r0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: r0 cannot be read.
    Nothing,
    /// Any number.
    Number,
    /// A number below the number of possible CPUs.
    CpuNumber,
    /// A pointer to a value of the map passed (to a map, for maps of maps), or null.
    ValueOrNull,
    /// A ring buffer record of the size passed that must be submitted or discarded, or null.
    RecordOrNull,
    /// A socket, or null; looked up ones must be released.
    SocketOrNull,
    /// An error number, or a number up to the size passed.
    NumberUpToSize,
    /// A trusted kernel object of this struct.
    Object(&'static str),
    /// A kernel object of this struct, found by walking.
    PlainObject(&'static str),
    /// The socket passed as a kernel object of this struct, or null.
    SocketObjectOrNull(&'static str),
    /// A pointer into a dynptr's memory of the size passed, or null.
    DynptrMemoryOrNull,
}

/// The helper with `BPF_FUNC_` number `number`.
pub fn helper(number: u32) -> Option<&'static HelperInfo> {
    helpers::HELPERS.get((number as usize).checked_sub(1)?)
}

/// All helpers, by number.
pub fn all_helpers() -> &'static [HelperInfo] {
    &helpers::HELPERS
}

/// Name of a helper without `bpf_`, or `unknown`.
pub fn helper_name(number: u32) -> &'static str {
    if let Some(function) = kernel_function(number) {
        return function.name;
    }
    helper(number).map_or("unknown", |helper| helper.name)
}

/// The kind of map with `BPF_MAP_TYPE_` number `number`.
pub fn map_kind(number: u32) -> Option<&'static MapKindInfo> {
    MAP_KINDS.iter().find(|kind| kind.number == number)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::Btf;

    /// Values of an enumeration of the running kernel by name without prefix; nothing without BTF.
    fn kernel_enumeration(name: &str, prefix: &str) -> Option<HashMap<String, i64>> {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux").ok()?;
        let btf = Btf::parse(&bytes).expect("the kernel's BTF parses");
        let values = btf.enumeration(name).expect("the kernel has the type");
        let short = values.into_iter().filter_map(|(value, number)| {
            Some((value.strip_prefix(prefix)?.to_lowercase(), number))
        });
        Some(short.collect())
    }

    #[test]
    fn releases_are_read_as_kernels_print_them() {
        for (text, kernel) in [
            ("6.12", Kernel(6, 12)),
            ("5.15.0-91-generic", Kernel(5, 15)),
            ("6.18-rc2", Kernel(6, 18)),
        ] {
            assert_eq!(text.parse(), Ok(kernel));
        }
        for text in ["", "6", "six.one", "6.", "6.x", "-6.1", "999.1", " 6.1"] {
            assert_eq!(text.parse::<Kernel>(), Err(NoRelease(text.to_owned())));
        }
    }

    #[test]
    fn helpers_stand_at_their_numbers_with_the_kernels_names() {
        for (index, helper) in all_helpers().iter().enumerate() {
            assert_eq!(helper.number as usize, index + 1, "{}", helper.name);
        }
        let Some(known) = kernel_enumeration("bpf_func_id", "BPF_FUNC_") else {
            return;
        };
        for helper in all_helpers() {
            // A kernel older than the helper does not have it.
            let number = known.get(helper.name).copied();
            let expected = Some(i64::from(helper.number));
            assert!(
                number.is_none() || number == expected,
                "{helper:?} is {number:?}"
            );
        }
        for (name, number) in known {
            let newest = all_helpers().len() as i64;
            if (1..=newest).contains(&number) {
                assert_eq!(helper_name(number as u32), name);
            }
        }
    }

    #[test]
    fn map_kinds_have_the_kernels_names() {
        let Some(known) = kernel_enumeration("bpf_map_type", "BPF_MAP_TYPE_") else {
            return;
        };
        for kind in MAP_KINDS {
            let number = known.get(kind.name).copied();
            let expected = Some(i64::from(kind.number));
            assert!(
                number.is_none() || number == expected,
                "{kind:?} is {number:?}"
            );
        }
        let listed = |number: &i64| MAP_KINDS.iter().any(|k| i64::from(k.number) == *number);
        let newest = MAP_KINDS.iter().map(|k| i64::from(k.number)).max();
        for (name, number) in known {
            assert!(
                number == 0 || Some(number) > newest || listed(&number),
                "{name} is missing"
            );
        }
    }

    #[test]
    fn prototypes_are_well_formed() {
        for helper in all_helpers() {
            let Some(call) = helper.call else {
                continue;
            };
            assert!(call.arguments.len() <= 5, "{helper:?}");
            assert!(helper.xdp || helper.tc, "{helper:?}");
            for (at, argument) in call.arguments.iter().enumerate() {
                let next = call.arguments.get(at + 1);
                let sized = matches!(
                    argument,
                    Argument::Read
                        | Argument::ReadOrNull
                        | Argument::Write
                        | Argument::WriteOrNull
                        | Argument::ReadWrite
                );
                let size = matches!(next, Some(Argument::Size | Argument::SizeOrZero));
                assert_eq!(sized, size, "{helper:?} at {at}");
                let keyed = matches!(
                    argument,
                    Argument::Key | Argument::Value | Argument::ValueOut | Argument::ValueOrNull
                );
                assert!(!keyed || call.arguments[0] == Argument::Map, "{helper:?}");
            }
        }
        let versions: Vec<Kernel> = all_helpers().iter().map(|h| h.since).collect();
        assert!(
            versions.is_sorted(),
            "numbers are given in the order of releases"
        );
    }

    #[test]
    fn what_is_known_about_some_helpers() {
        let lookup = helper(1).expect("the first");
        assert_eq!(
            (lookup.name, lookup.since),
            ("map_lookup_elem", Kernel(3, 19))
        );
        assert_eq!(helper_name(44), "xdp_adjust_head");
        assert!(
            helper(44)
                .and_then(|h| h.call)
                .is_some_and(|c| c.moves_packet)
        );
        assert_eq!(helper_name(211), "cgrp_storage_delete");
        assert_eq!(helper_name(0), "unknown");
        assert_eq!(helper_name(212), "unknown");
        assert_eq!(map_kind(27).map(|k| k.since), Some(Kernel(5, 8)));
        assert!(Kernel(5, 9) < Kernel(5, 10));
        assert_eq!(Kernel(5, 10).to_string(), "5.10");
    }
}
