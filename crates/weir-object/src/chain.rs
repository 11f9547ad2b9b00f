//! One object's program behind weir's wrapper, or the reason why that cannot be.
//!
//! Owns the order of the questions: is it an object, which program, of which kind, can it be joined. Invariant: a [`Chained`] has the
//! maps and constants of both files under names that do not clash, and the license that its author gave it.

use std::collections::BTreeMap;

use thiserror::Error;
use weir_vm::explain::{Explanation, explain};
use weir_vm::verify::{VerifyOptions, verify};
use weir_vm::{LoadError, Object, ProgramKind, XdpAttach};

use crate::join::{self, Unit};

/// What to join.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The object, an ELF file.
    pub object: &'a [u8],
    /// Its program; `None`: the only one for XDP.
    pub program: Option<&'a str>,
    /// weir's wrapper, an ELF file that calls the function `weir_object`, which it does not have.
    pub wrapper: &'a [u8],
}

/// A program in its wrapper.
#[derive(Clone, Debug)]
pub struct Chained {
    /// The joined file.
    pub elf: Vec<u8>,
    /// Name of the object's program.
    pub program: String,
    /// Whether the object says that its program takes packets of several buffers.
    pub frags: bool,
    /// Whether it calls helpers that change a frame's length.
    pub resizes: bool,
    /// Whether it makes tail calls of its own, which changes how much stack it may use.
    pub tail_calls: bool,
    /// Maps, constants and functions that had to be given another name: old and new.
    pub renamed: BTreeMap<String, String>,
}

/// Why an object cannot be a function of a graph.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ObjectError {
    /// Cut or damaged.
    #[error("not a readable eBPF object: {0}")]
    Malformed(String),
    /// Cannot be read, or uses what weir does not know.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Built without `-g`, or stripped of everything.
    #[error(
        "the object has no type information (.BTF and .BTF.ext), without which it cannot be put into a chain: compile it with `clang -g`, and strip it with `llvm-strip -g` only"
    )]
    NoTypes,
    /// Maps as libbpf took them before its version 1.0.
    #[error(
        "the object defines maps in the retired section `maps`, which libbpf 1.0 and newer does not load: define them in `.maps`, as `struct {{ __uint(type, ..); .. }} NAME SEC(\".maps\")`"
    )]
    OldMaps,
    /// No program for XDP in it.
    #[error("the object has no XDP program; it has {known}")]
    NoXdp {
        /// Programs with their kinds.
        known: String,
    },
    /// Several programs, and none was named.
    #[error("the object has several XDP programs; name one of them as `program`: {known}")]
    Several {
        /// Names.
        known: String,
    },
    /// No program of that name.
    #[error("the object has no program {name:?}; it has {known}")]
    NoProgram {
        /// The name asked for.
        name: String,
        /// Programs with their kinds.
        known: String,
    },
    /// A program of another type.
    #[error("program {program} is of kind {kind}; only XDP programs can be functions of a graph{}", if *tc { ". `weir run --hook tc` is for policies; attach this one with `tc`" } else { "" })]
    NotXdp {
        /// Program.
        program: String,
        /// Its kind, as its section says.
        kind: String,
        /// Whether it is a traffic control program.
        tc: bool,
    },
    /// An XDP program that runs in an element of a map.
    #[error(
        "program {program} is made for elements of a {map} (section {section}), not for interfaces: a function of a graph runs where packets arrive"
    )]
    MapProgram {
        /// Program.
        program: String,
        /// Kind of the map.
        map: &'static str,
        /// Section.
        section: String,
    },
    /// Calls of kernel functions that exist for one device only.
    #[error(
        "program {program} calls {function}, which works in programs bound to one device only; such a program cannot share a chain, nor be called from another"
    )]
    DeviceBound {
        /// Program.
        program: String,
        /// Kernel function.
        function: String,
    },
    /// Code or data that is left out is named by what is not.
    #[error(
        "section {section} names {symbol}, which is not a function, map or variable that a program for XDP can have"
    )]
    Reference {
        /// Section.
        section: String,
        /// What it names.
        symbol: String,
    },
}

/// A program that weir's verifier refuses.
#[derive(Clone, Debug, Error)]
#[error("weir's verifier refuses {}: {}{}", .0.program, .0.message, place(.0))]
pub struct Refused(pub Box<Explanation>);

fn place(explanation: &Explanation) -> String {
    let source = explanation.at.source.as_ref();
    source.map_or_else(String::new, |s| {
        format!(" ({}:{} `{}`)", s.file, s.line, s.text)
    })
}

/// The wrapper's program.
pub const PROGRAM: &str = "object";

/// Asks weir's verifier about a joined file, with constants as they will be set; yields the bytes of stack that it needs.
/// `options` say how far it walks: the kernel's million instructions unless told.
///
/// # Errors
/// [`LoadError`] outside: the user engine cannot load it. [`Refused`] inside: the rule that is broken and where. The kernel may be of
/// another opinion, but rarely is (docs/design/verifier.md).
pub fn check<'c>(
    elf: &[u8],
    constants: impl IntoIterator<Item = (&'c str, &'c [u8])>,
    options: &VerifyOptions,
) -> Result<Result<u32, Refused>, LoadError> {
    let mut object = Object::parse(elf)?;
    for (name, value) in constants {
        object.set_rodata(name, value)?;
    }
    let machine = object.load(PROGRAM)?;
    Ok(match verify(&machine, PROGRAM, options) {
        Ok(verified) => Ok(verified.stack_bytes),
        Err(rejection) => Err(Refused(Box::new(explain(&machine, &rejection)))),
    })
}

/// The function that the wrapper calls.
const HOLE: &str = "weir_object";

/// Puts a program behind its wrapper.
///
/// # Errors
/// [`ObjectError`]: everything that can be said without a kernel and without running the verifier.
pub fn chain(request: &Request<'_>) -> Result<Chained, ObjectError> {
    // Whether there are maps that the user engine does not have, its verifier says.
    let object = Object::parse_without_maps(request.object)?;
    let program = choose(&object, request.program)?;
    let guest = Unit::read(request.object)?;
    if guest.file.section("maps").is_some() {
        return Err(ObjectError::OldMaps);
    }
    let wrapper = Unit::read(request.wrapper)?;
    let entry = guest.program(&program).ok_or_else(|| {
        ObjectError::Malformed(format!("program {program} has no symbol of its own"))
    })?;
    let targets = guest.tail_targets();
    let helpers = guest.helpers();
    let joined = join::join(&wrapper, &guest, HOLE, entry, &targets)?;
    let mut asked = joined.externals.into_iter();
    if let Some(function) = asked.find(|name| name.starts_with("bpf_xdp_metadata_")) {
        return Err(ObjectError::DeviceBound { program, function });
    }
    let frags = matches!(
        object.program_kind(&program),
        Some(ProgramKind::Xdp { frags: true, .. })
    );
    Ok(Chained {
        elf: joined.elf,
        program,
        frags,
        resizes: helpers.contains(&ADJUST_HEAD) || helpers.contains(&ADJUST_TAIL),
        tail_calls: helpers.contains(&TAIL_CALL),
        renamed: joined.renamed,
    })
}

/// Linux's numbers of helpers.
const TAIL_CALL: i32 = 12;
const ADJUST_HEAD: i32 = 44;
const ADJUST_TAIL: i32 = 65;

fn choose(object: &Object, wanted: Option<&str>) -> Result<String, ObjectError> {
    let kind = |name: &str| object.program_kind(name).cloned();
    let known = || {
        let all = object.programs().map(|p| match kind(p) {
            Some(kind) => format!("{p} ({kind})"),
            None => p.to_owned(),
        });
        let all: Vec<String> = all.collect();
        match all.is_empty() {
            true => "no program at all".to_owned(),
            false => all.join(", "),
        }
    };
    let on_devices = |name: &&str| {
        let device = XdpAttach::Device;
        matches!(kind(name), Some(ProgramKind::Xdp { attach, .. }) if attach == device)
    };
    let name = match wanted {
        Some(name) => name,
        None => {
            let all: Vec<&str> = object.programs().filter(on_devices).collect();
            match all.as_slice() {
                [] => return Err(ObjectError::NoXdp { known: known() }),
                [one] => *one,
                _ => {
                    return Err(ObjectError::Several {
                        known: all.join(", "),
                    });
                }
            }
        }
    };
    let section = || object.program_section(name).unwrap_or_default().to_owned();
    match kind(name) {
        None => Err(ObjectError::NoProgram {
            name: name.to_owned(),
            known: known(),
        }),
        Some(ProgramKind::Xdp {
            attach: XdpAttach::Device,
            ..
        }) => Ok(name.to_owned()),
        Some(ProgramKind::Xdp { attach, .. }) => Err(ObjectError::MapProgram {
            program: name.to_owned(),
            map: if attach == XdpAttach::Devmap {
                "devmap"
            } else {
                "cpumap"
            },
            section: section(),
        }),
        Some(kind) => Err(ObjectError::NotXdp {
            program: name.to_owned(),
            tc: kind == ProgramKind::SchedCls,
            kind: kind.to_string(),
        }),
    }
}
