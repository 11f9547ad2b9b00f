//! Compiled objects before they meet the kernel: opened, specialised through
//! `.rodata`, their maps sized or shared, then loaded one program at a time.
//!
//! Two states, two types: what only makes sense before loading exists only on
//! [`KernelObject`], what needs the kernel only on [`LoadedProgram`]. This is
//! also where a refused load becomes one line. Invariant: an object that was
//! opened but not loaded has changed nothing on the host.

#![expect(unsafe_code, reason = "libbpf takes the log buffer as a raw pointer")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{AsRawLibbpf, ObjectBuilder, OpenObject};

use crate::declared;
use crate::error::near_names;
use crate::loaded::section_name;
use crate::rodata::{self, Constant};
use crate::slots;
use crate::sys;
use crate::{KernelError, Map, MapDefinition};

pub use crate::loaded::{
    Batch, Hook, LoadedProgram, MapSizes, ProgramInfo, TC_TEST_RUN_MAX, TEST_RUN_LINEAR,
    TEST_RUN_MAX, TEST_RUN_MIN, TestCtx, TestOutcome,
};

/// Room for the verifier's words; only touched pages cost memory.
const LOG_BYTES: usize = 16 << 20;

/// An object that was opened and may still be specialised.
pub struct KernelObject {
    open: OpenObject,
    /// Constants by name: the section's map, offset and size in bytes.
    rodata: BTreeMap<String, Constant>,
    /// Programs that its maps name, which are loaded with any other.
    targets: BTreeSet<String>,
}

impl std::fmt::Debug for KernelObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelObject")
            .field("rodata", &self.rodata)
            .finish_non_exhaustive()
    }
}

impl KernelObject {
    /// Opens an ELF object. Nothing reaches the kernel yet, and no privilege is needed.
    pub fn open(elf: &[u8]) -> Result<Self, KernelError> {
        sys::silence_libbpf();
        if let Some(map) = declared::struct_ops_map(elf) {
            return Err(KernelError::StructOpsMap { map });
        }
        let mut builder = ObjectBuilder::default();
        let mut open = builder
            .name("weir")
            .and_then(|b| b.open_memory(elf))
            .map_err(|e| KernelError::BadObject {
                why: sys::first_complaint().unwrap_or_else(|| e.to_string()),
            })?;
        // An object may ask for its maps to be pinned by name, and then shares those of whoever was there before. Pins are this
        // crate's own affair.
        for map in open.maps_mut() {
            // SAFETY: the map is open; without a path libbpf forgets that it should be pinned.
            let ret = unsafe {
                libbpf_sys::bpf_map__set_pin_path(map.as_libbpf_object().as_ptr(), std::ptr::null())
            };
            sys::check(ret).map_err(|e| KernelError::sys("forget the pin of a map", e))?;
        }
        let rodata = rodata::constants(&open);
        let targets = slots::named_by_maps(elf);
        Ok(Self {
            open,
            rodata,
            targets,
        })
    }

    /// Names of the programs in the object.
    pub fn programs(&self) -> Vec<String> {
        self.open
            .progs()
            .map(|p| p.name().to_string_lossy().into_owned())
            .collect()
    }

    /// Names of the maps in the object, sections such as `.rodata` included.
    pub fn maps(&self) -> Vec<String> {
        self.open
            .maps()
            .map(|m| section_name(&m.name().to_string_lossy()))
            .collect()
    }

    /// Names of the load-time constants (`const volatile` globals).
    pub fn constants(&self) -> impl Iterator<Item = &str> {
        self.rodata.keys().map(String::as_str)
    }

    /// Sets a `const volatile` global before loading. `value` must be exactly
    /// as long as the variable.
    pub fn set_rodata(&mut self, symbol: &str, value: &[u8]) -> Result<(), KernelError> {
        let Some(constant) = self.rodata.get(symbol) else {
            let known: Vec<String> = self.rodata.keys().cloned().collect();
            return Err(KernelError::MissingSymbol {
                symbol: symbol.to_owned(),
                near: near_names(symbol, &known),
            });
        };
        if constant.size != value.len() {
            return Err(KernelError::WrongSize {
                what: format!("constant {symbol}"),
                want: constant.size,
                got: value.len(),
            });
        }
        let constant = constant.clone();
        let mut map = self
            .open
            .maps_mut()
            .find(|m| section_name(&m.name().to_string_lossy()) == constant.section)
            .ok_or_else(|| KernelError::MissingMap {
                map: constant.section.clone(),
                near: Vec::new(),
            })?;
        let end = constant.offset + constant.size;
        let target = map
            .initial_value_mut()
            .and_then(|bytes| bytes.get_mut(constant.offset..end))
            .ok_or_else(|| KernelError::BadObject {
                why: format!(
                    "constant {symbol} lies outside its section {}",
                    constant.section
                ),
            })?;
        target.copy_from_slice(value);
        Ok(())
    }

    /// Sets how many entries a map will hold.
    pub fn set_map_entries(&mut self, map: &str, n: u32) -> Result<(), KernelError> {
        self.with_map(
            map,
            |m| m.set_max_entries(n),
            |_| format!("give map {map} {n} entries"),
        )
    }

    /// Uses `other`'s map of the same name instead of creating one, so that
    /// several copies of a program (one per port) share it.
    pub fn reuse_map(&mut self, map: &str, other: &LoadedProgram) -> Result<(), KernelError> {
        let fd: BorrowedFd<'_> = other.map_fd(map)?;
        self.with_map(
            map,
            |m| m.reuse_fd(fd),
            |_| format!("share map {map} (its type or sizes differ between the two objects?)"),
        )
    }

    /// What a map of the object will be, as declared and sized so far.
    pub fn map_definition(&self, map: &str) -> Result<MapDefinition, KernelError> {
        let found = self
            .open
            .maps()
            .find(|m| section_name(&m.name().to_string_lossy()) == map)
            .ok_or_else(|| KernelError::MissingMap {
                map: map.to_owned(),
                near: near_names(map, &self.maps()),
            })?;
        let raw = found.as_libbpf_object().as_ptr();
        // SAFETY: the map is open; these only read its description.
        Ok(unsafe {
            MapDefinition {
                kind: libbpf_sys::bpf_map__type(raw),
                key: libbpf_sys::bpf_map__key_size(raw),
                value: libbpf_sys::bpf_map__value_size(raw),
                entries: libbpf_sys::bpf_map__max_entries(raw),
                flags: libbpf_sys::bpf_map__map_flags(raw),
            }
        })
    }

    /// Uses a map that exists instead of creating one. Whether its definition fits is for the caller to compare: the kernel
    /// only minds what the program does with it.
    pub fn share_map(&mut self, map: &str, with: &Map) -> Result<(), KernelError> {
        self.with_map(
            map,
            |m| m.reuse_fd(with.as_fd()),
            |_| format!("share map {map} with {}", with.name()),
        )
    }

    /// Loads `program` and the object's maps, and the programs that program arrays of the object name; the others stay out.
    ///
    /// A verifier rejection is [`KernelError::Rejected`]: one line, and the
    /// whole log through [`KernelError::log`].
    pub fn load(mut self, program: &str) -> Result<LoadedProgram, KernelError> {
        sys::silence_libbpf();
        require_btf(Path::new(sys::KERNEL_BTF))?;
        if !self.programs().iter().any(|p| p == program) {
            return Err(KernelError::MissingProgram {
                program: program.to_owned(),
                near: near_names(program, &self.programs()),
            });
        }
        // libbpf fills it only when a load fails; a zeroed allocation of this
        // size is mapped lazily, so success never touches it.
        let mut logs: Vec<(String, Vec<u8>)> = Vec::new();
        for mut p in self.open.progs_mut() {
            let name = p.name().to_string_lossy().into_owned();
            let wanted = name == program || self.targets.contains(&name);
            p.set_autoload(wanted);
            if wanted {
                name_kind(&mut p);
                let mut log = vec![0u8; LOG_BYTES];
                // SAFETY: the program is open, and `log`, whose bytes stay where they are, outlives the load below, which is
                // the only time libbpf reads or writes the buffer (it refuses to detach it later).
                unsafe {
                    libbpf_sys::bpf_program__set_log_buf(
                        p.as_libbpf_object().as_ptr(),
                        log.as_mut_ptr().cast(),
                        log.len() as libbpf_sys::size_t,
                    )
                };
                logs.push((name, log));
            }
        }
        let loaded = self.open.load();
        let object = match loaded {
            Ok(object) => object,
            Err(e) => {
                let said = logs.iter().find(|(_, log)| log.first() != Some(&0));
                let (name, log) = match said {
                    Some((name, log)) => (name.as_str(), sys::text_until_nul(log)),
                    None => (program, String::new()),
                };
                return Err(load_error(name, &e, &log));
            }
        };
        LoadedProgram::new(object, program)
    }

    fn with_map(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut libbpf_rs::OpenMapMut<'_>) -> libbpf_rs::Result<()>,
        what: impl FnOnce(&str) -> String,
    ) -> Result<(), KernelError> {
        let known = self.maps();
        let mut map = self
            .open
            .maps_mut()
            .find(|m| section_name(&m.name().to_string_lossy()) == name)
            .ok_or_else(|| KernelError::MissingMap {
                map: name.to_owned(),
                near: near_names(name, &known),
            })?;
        change(&mut map).map_err(|e| KernelError::sys(what(name), into_io(&e)))
    }
}

/// Gives programs in sections such as `xdp/name` and `xdp_name` their kind, which libbpf no longer reads out of such names.
fn name_kind(program: &mut libbpf_rs::OpenProgramMut<'_>) {
    let section = program.section().to_string_lossy().into_owned();
    let under = ["xdp/", "xdp_", "xdp.frags/"];
    let unnamed = program.prog_type() == libbpf_rs::ProgramType::Unspec;
    if unnamed && under.iter().any(|prefix| section.starts_with(prefix)) {
        program.set_prog_type(libbpf_rs::ProgramType::Xdp);
        program.set_attach_type(libbpf_rs::ProgramAttachType::Xdp);
    }
}

/// Whether the kernel shows its type information at `path`.
pub fn require_btf(path: &Path) -> Result<(), KernelError> {
    if path.exists() {
        return Ok(());
    }
    Err(KernelError::NoBtf {
        path: PathBuf::from(path),
    })
}

fn into_io(e: &libbpf_rs::Error) -> io::Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>()
            && let Some(code) = io.raw_os_error()
        {
            return io::Error::from_raw_os_error(code);
        }
        source = cause.source();
    }
    use libbpf_rs::ErrorKind as K;
    let code = match e.kind() {
        K::PermissionDenied => libc::EPERM,
        K::NotFound => libc::ENOENT,
        K::AlreadyExists => libc::EEXIST,
        K::InvalidInput => libc::EINVAL,
        K::OutOfMemory => libc::ENOMEM,
        _ => return io::Error::other(e.to_string()),
    };
    io::Error::from_raw_os_error(code)
}

/// Sorts a failed load: the verifier's word if it spoke, else privilege, else
/// libbpf's first complaint.
fn load_error(program: &str, e: &libbpf_rs::Error, log: &str) -> KernelError {
    let source = into_io(e);
    if !log.trim().is_empty() {
        return KernelError::Rejected {
            program: program.to_owned(),
            line: rejection_line(log),
            log: log.to_owned(),
        };
    }
    if matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES)) {
        return KernelError::NoPermission {
            what: format!("load program {program}"),
        };
    }
    let what = match sys::first_complaint() {
        Some(complaint) => format!("load program {program} ({complaint})"),
        None => format!("load program {program}"),
    };
    KernelError::Sys { what, source }
}

/// The reason out of a verifier log: its last statement that is neither
/// statistics nor a register dump, with the source line printed last before it.
fn rejection_line(log: &str) -> String {
    let is_statistics = |l: &str| {
        l.starts_with("processed ")
            || l.starts_with("verification time")
            || l.starts_with("stack depth")
            || l.starts_with("insns_total")
    };
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let Some(at) = lines.iter().rposition(|l| !is_statistics(l)) else {
        return "the verifier gave no reason".to_owned();
    };
    let source = lines[..at]
        .iter()
        .rev()
        .find_map(|l| l.strip_prefix("; "))
        .map(str::trim);
    match source {
        Some(source) => format!("{} (at `{source}`)", lines[at]),
        None => lines[at].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_statement_with_its_source_line() {
        let log = "0: R1=ctx() R10=fp0\n; return *(__u8 *)data; @ x.c:9\n0: (61) r1 = *(u32 *)(r1 +0)\n\
                   1: (71) r0 = *(u8 *)(r1 +0)\ninvalid access to packet, off=0 size=1, R1(id=0,off=0,r=0)\n\
                   processed 2 insns (limit 1000000) max_states_per_insn 0\n";
        assert_eq!(
            rejection_line(log),
            "invalid access to packet, off=0 size=1, R1(id=0,off=0,r=0) (at `return *(__u8 *)data; @ x.c:9`)"
        );
        assert_eq!(rejection_line(""), "the verifier gave no reason");
        assert_eq!(
            rejection_line("processed 0 insns"),
            "the verifier gave no reason"
        );
    }

    #[test]
    fn bytes_that_are_no_object_are_one_line() {
        let e = KernelObject::open(b"not an elf").unwrap_err();
        assert!(matches!(e, KernelError::BadObject { .. }), "{e:?}");
        assert!(!e.to_string().contains('\n'));
    }

    #[test]
    fn a_missing_btf_file_is_named() {
        let e = require_btf(Path::new("/nonexistent/btf")).unwrap_err();
        assert!(e.to_string().contains("/nonexistent/btf"));
    }
}
