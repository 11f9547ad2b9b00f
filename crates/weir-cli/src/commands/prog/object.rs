//! Objects as `weir prog` takes them: read from a file, and the program that is meant.
//!
//! Invariant: an object with one XDP program needs no `--prog`; with several, the error names them.

use std::path::Path;
use std::sync::Arc;

use weir_vm::{Btf, Object, ProgramKind};

use crate::failure::Failure;
use crate::output;

/// An object and where it came from.
pub(super) struct Opened {
    /// The ELF file.
    pub(super) elf: Vec<u8>,
    pub(super) object: Object,
}

/// Reads an object. Where its code depends on the kernel's types (CO-RE), it is adapted to those of the running kernel, as loading it
/// there would; where the kernel does not show them, the layout stays as compiled, and that is said. `sizes` are entries of maps that
/// `--map-size` gives.
pub(super) fn open(path: &Path, sizes: &[(String, u32)]) -> Result<Opened, Failure> {
    let shown = path.display();
    let elf = std::fs::read(path)
        .map_err(|e| Failure::usage(format!("cannot read {shown}: {e}; check the path")))?;
    let mut object = Object::parse(&elf).map_err(|e| Failure::usage(format!("{shown}: {e}")))?;
    for (map, entries) in sizes {
        object
            .set_map_entries(map, *entries)
            .map_err(|e| Failure::usage(format!("--map-size {map}={entries}: {e}")))?;
    }
    if object.is_relocatable() {
        match Btf::of_running_kernel() {
            Ok(types) => object.relocate_against(Arc::new(types)),
            Err(error) => {
                output::complain(&format!(
                    "{shown} depends on the kernel's types: {error}; it keeps the layout it was compiled with"
                ));
            }
        }
    }
    Ok(Opened { elf, object })
}

/// The program `wanted`, or the only one.
pub(super) fn program(
    path: &Path,
    object: &Object,
    wanted: Option<&str>,
) -> Result<String, Failure> {
    let shown = path.display();
    let all: Vec<&str> = object.programs().collect();
    let xdp: Vec<&str> = all
        .iter()
        .copied()
        .filter(|p| object.program_kind(p).is_some_and(ProgramKind::is_xdp))
        .collect();
    // Programs of other kinds need to be asked for, and are shown where there is nothing else.
    let programs = if xdp.is_empty() { &all } else { &xdp };
    let list = programs.join(", ");
    match (wanted, programs.as_slice()) {
        (Some(name), _) if all.contains(&name) => Ok(name.to_owned()),
        (_, []) => Err(Failure::usage(format!(
            "{shown} has no program: a program is a global function in a section such as \"xdp\""
        ))),
        (Some(name), _) => Err(Failure::usage(format!(
            "{shown} has no program {name:?}; it has {list}"
        ))),
        (None, [only]) => Ok((*only).to_owned()),
        (None, _) if xdp.is_empty() => Err(Failure::usage(format!(
            "{shown} has no XDP program; name another one with --prog: {list}"
        ))),
        (None, _) => Err(Failure::usage(format!(
            "{shown} has several XDP programs; choose one with --prog: {list}"
        ))),
    }
}

/// Some program of the object, for commands that look at all of them.
pub(super) fn any_program(path: &Path, object: &Object) -> Result<String, Failure> {
    let first = object.runnable_programs().next().map(str::to_owned);
    first.map_or_else(|| program(path, object, None), Ok)
}

/// The program `wanted`, or all that weir runs.
pub(super) fn chosen(
    path: &Path,
    object: &Object,
    wanted: Option<&str>,
) -> Result<Vec<String>, Failure> {
    let all: Vec<String> = object.runnable_programs().map(str::to_owned).collect();
    if wanted.is_none() && !all.is_empty() {
        return Ok(all);
    }
    program(path, object, wanted).map(|one| vec![one])
}
