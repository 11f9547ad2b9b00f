//! An object on its way into the kernel, the same for `load` and `replace`: which program, its constants, weir's verdict, maps that exist.
//!
//! Invariant: everything that can be refused without changing anything is refused here.

use std::path::Path;

use weir_kernel::{KernelError, KernelObject, LoadedProgram, Map, MapDefinition};
use weir_object::Value;
use weir_vm::verify::{self, VerifyOptions};
use weir_vm::{ProgramKind, XdpAttach, explain};

use super::store;
use crate::args::prog::LoadingArgs;
use crate::commands::prog::{object, screen};
use crate::failure::Failure;
use crate::output;

/// An object that may be loaded.
pub(super) struct Prepared {
    pub(super) program: String,
    object: KernelObject,
    /// Maps that are shared on request.
    given: Vec<String>,
}

/// Reads and judges an object; `preferred` is the program meant if none is named and the object has it.
pub(super) fn prepare(args: &LoadingArgs, preferred: Option<&str>) -> Result<Prepared, Failure> {
    let path = &args.object;
    let opened = object::open(path, &args.map_sizes)?;
    let preferred = preferred.filter(|p| {
        opened
            .object
            .program_kind(p)
            .is_some_and(ProgramKind::is_xdp)
    });
    let wanted = args.program.as_deref().or(preferred);
    let program = object::program(path, &opened.object, wanted)?;
    match opened.object.program_kind(&program) {
        Some(ProgramKind::Xdp {
            attach: XdpAttach::Device,
            ..
        }) => {}
        Some(kind) => {
            return Err(Failure::usage(format!(
                "program {program} is of kind {kind}; `weir prog load` takes XDP programs for interfaces"
            )));
        }
        None => {
            return Err(Failure::usage(format!(
                "{} has no program {program:?}",
                path.display()
            )));
        }
    }
    let mut kernel = KernelObject::open(&opened.elf).map_err(Failure::usage)?;
    let mut judged = opened.object.clone();
    for (map, entries) in &args.map_sizes {
        kernel
            .set_map_entries(map, *entries)
            .map_err(Failure::usage)?;
    }
    for text in &args.constants {
        let (name, value) = pair(text, "--constant", "NAME=VALUE")?;
        let value =
            Value::read(value).map_err(|e| Failure::usage(format!("--constant {text}: {e}")))?;
        let bytes = weir_object::encode(&opened.object, name, &value)
            .map_err(|e| Failure::usage(format!("--constant {text}: {e}")))?;
        judged.set_rodata(name, &bytes).map_err(Failure::usage)?;
        kernel.set_rodata(name, &bytes).map_err(Failure::usage)?;
    }
    if !args.unverified {
        judge(path, judged, &program)?;
    }
    let mut prepared = Prepared {
        program,
        object: kernel,
        given: Vec::new(),
    };
    for text in &args.maps {
        let (name, source) = pair(text, "--map", "NAME=MAP")?;
        let map = existing(source)?;
        let declared = prepared
            .object
            .map_definition(name)
            .map_err(Failure::usage)?;
        if let Some(differs) = differs(declared, map.definition()) {
            return Err(Failure::usage(format!(
                "--map {text}: map {name} cannot be that one: {differs}"
            )));
        }
        prepared.share(name, &map)?;
        prepared.given.push(name.to_owned());
    }
    Ok(prepared)
}

impl Prepared {
    /// Whether a map was given with `--map`.
    pub(super) fn is_given(&self, map: &str) -> bool {
        self.given.iter().any(|g| g == map)
    }

    /// What a map is declared as; `None` if the object has none of that name.
    pub(super) fn declared(&self, map: &str) -> Option<MapDefinition> {
        self.object.map_definition(map).ok()
    }

    /// Uses a map that exists.
    pub(super) fn share(&mut self, name: &str, map: &Map) -> Result<(), Failure> {
        self.object.share_map(name, map).map_err(Failure::failed)
    }

    /// Loads it; nothing is kept yet.
    pub(super) fn load(self, log: bool) -> Result<LoadedProgram, Failure> {
        self.object.load(&self.program).map_err(|error| {
            match error.log().filter(|_| log) {
                Some(text) => output::tell(text),
                None if matches!(error, KernelError::Rejected { .. }) => {
                    return Failure::failed(format!(
                        "{error}; --log prints all that its verifier said"
                    ));
                }
                None => {}
            }
            Failure::failed(error)
        })
    }
}

/// How two definitions differ where a program would notice; `None` if one can stand for the other.
pub(super) fn differs(declared: MapDefinition, there: MapDefinition) -> Option<String> {
    /// `BPF_F_RDONLY_PROG`, which the kernel adds to maps of devices by itself.
    const READ_ONLY: u32 = 1 << 7;
    let flags = |d: MapDefinition| d.flags & !READ_ONLY;
    // 0: as many as the machine has CPUs.
    let entries = declared.entries == 0 || declared.entries == there.entries;
    let same =
        (declared.kind, declared.key, declared.value) == (there.kind, there.key, there.value);
    if same && entries && flags(declared) == flags(there) {
        return None;
    }
    Some(format!(
        "the object declares {declared}, but the map is {there}"
    ))
}

/// Asks weir's verifier, and explains a refusal as `weir prog verify` does.
fn judge(path: &Path, object: weir_vm::Object, program: &str) -> Result<(), Failure> {
    let shown = path.display();
    let machine = object.load(program).map_err(|e| {
        Failure::failed(format!(
            "{shown}: weir cannot verify it: {e}; --unverified loads it without this check"
        ))
    })?;
    match verify::verify(&machine, program, &VerifyOptions::default()) {
        Ok(_) => Ok(()),
        Err(rejection) => {
            output::tell(&screen::explanation(&explain::explain(
                &machine, &rejection,
            )));
            Err(Failure::failed(format!(
                "{shown}: program {program} was not loaded, because weir's verifier refuses it as the kernel's would; \
                 --unverified leaves the judgement to the kernel"
            )))
        }
    }
}

/// A map that exists: a pinned file, or PROGRAM:MAP.
fn existing(source: &str) -> Result<Map, Failure> {
    if source.contains('/') {
        let map = Map::open(Path::new(source)).map_err(Failure::failed)?;
        return map.ok_or_else(|| Failure::usage(format!("no map is pinned at {source}")));
    }
    let Some((program, name)) = source.split_once(':') else {
        return Err(Failure::usage(format!(
            "{source:?} names no map: write a path below /sys/fs/bpf, or PROGRAM:MAP of a loaded program"
        )));
    };
    let kept = store::find(program)?;
    let maps = kept.maps()?;
    let names: Vec<String> = maps.iter().map(|(name, _)| name.clone()).collect();
    let found = maps
        .into_iter()
        .find(|(n, _)| n == name)
        .map(|(_, map)| map);
    found.ok_or_else(|| {
        Failure::usage(format!(
            "program {kept} has no map {name:?}; it has {}",
            names.join(", ")
        ))
    })
}

fn pair<'t>(text: &'t str, option: &str, form: &str) -> Result<(&'t str, &'t str), Failure> {
    text.split_once('=')
        .filter(|(name, value)| !name.is_empty() && !value.is_empty())
        .ok_or_else(|| Failure::usage(format!("{option} {text}: write {form}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_compared_as_programs_see_them() {
        let array = MapDefinition {
            kind: 2,
            key: 4,
            value: 8,
            entries: 4,
            flags: 0,
        };
        assert_eq!(differs(array, array), None);
        let larger = MapDefinition {
            entries: 8,
            ..array
        };
        let text = differs(array, larger).expect("differs");
        assert!(
            text.contains("array of 4 entries") && text.contains("array of 8 entries"),
            "{text}"
        );
        let perf = MapDefinition {
            kind: 4,
            key: 4,
            value: 4,
            entries: 0,
            flags: 0,
        };
        assert_eq!(differs(perf, MapDefinition { entries: 2, ..perf }), None);
        let devices = MapDefinition { kind: 14, ..array };
        assert_eq!(
            differs(
                devices,
                MapDefinition {
                    flags: 1 << 7,
                    ..devices
                }
            ),
            None
        );
    }
}
