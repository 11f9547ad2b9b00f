//! The kernel's own verifier tests, put to weir's verifier and to the running kernel: what the kernel refuses weir refuses.
//!
//! `scripts/selftests` compiles them (`progs/verifier_*.c` of Linux 6.12, and those of iterators, dynptrs, exceptions, sections and tasks,
//! from Debian's source package) into `target/selftests/objects`, and for tc into `objects-tc`; `make test-long` calls it. The annotations of the sources are not read: the running kernel's
//! verdict about the same program of the same kind is the truth. With `WEIR_LONG=1` all of them are compared, else a sample.
//! `WEIR_SELFTESTS=TEXT` keeps programs whose `object/name` contains the text. Every verdict goes to
//! `target/selftests/verdicts.tsv`.

#![allow(
    clippy::print_stderr,
    reason = "the table of verdicts is said where the test runs"
)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common;
use weir_engine::EngineKind;
use weir_kernel::{KernelError, KernelObject};
use weir_vm::verify::{VerifyOptions, verify};
use weir_vm::{Btf, Object};

/// In front of the names of objects whose programs were compiled for tc.
const TC: &str = "tc:";
/// Programs compared unless `WEIR_LONG=1`: each costs the kernel some 20 ms.
const SAMPLE: usize = 60;

/// Of the programs that the kernel accepts weir accepts this many of 1,000 at least, with `WEIR_LONG=1`. It only rises.
const ACCEPTED_PER_MILLE: usize = 998;

#[test]
fn kernel_verifier_tests_get_the_kernels_verdicts() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let folder = folder();
    let mut objects = objects(&folder.join("objects"), "");
    objects.extend(self::objects(&folder.join("objects-tc"), TC));
    if objects.is_empty() {
        weir_testdata::not_run(
            "the kernel's verifier tests are not compiled: `scripts/selftests` does it",
        );
        return;
    }
    let programs = programs(&objects);
    let long = std::env::var("WEIR_LONG").is_ok_and(|v| v == "1");
    let only = std::env::var("WEIR_SELFTESTS").ok();
    let chosen: Vec<&Program> = match &only {
        Some(text) => {
            let wanted = |p: &&Program| p.label.contains(text.as_str());
            programs.iter().filter(wanted).collect()
        }
        None if long => programs.iter().collect(),
        None => {
            let stride = programs.len().div_ceil(SAMPLE).max(1);
            programs.iter().step_by(stride).collect()
        }
    };
    let types = Arc::new(Btf::of_running_kernel().expect("the kernel shows its types"));
    let mut table = Table::default();
    for program in chosen {
        table.add(program, &types);
    }
    if long || only.is_some() {
        std::fs::write(folder.join("verdicts.tsv"), &table.lines).expect("can be written");
    }
    eprintln!("{table}");
    assert!(
        table.unsound.is_empty(),
        "accepted by weir alone: {:#?}",
        table.unsound
    );
    if long && only.is_none() {
        let accepted = table.both + table.ours.values().map(Vec::len).sum::<usize>();
        assert!(
            table.both * 1000 >= accepted * ACCEPTED_PER_MILLE,
            "weir accepts fewer of the programs that the kernel accepts than before: {table}"
        );
    }
}

/// One program of the tests.
struct Program<'o> {
    /// `object/name`.
    label: String,
    name: String,
    elf: &'o [u8],
    object: &'o Object,
}

/// What came out.
#[derive(Default)]
struct Table {
    /// Accepted by both.
    both: usize,
    /// Refused by both.
    neither: usize,
    /// Kinds that are not compared, and what libbpf cannot load here (kernel functions that this kernel lacks).
    left_out: BTreeMap<String, usize>,
    /// Accepted by the kernel alone, by weir's reason.
    ours: BTreeMap<String, Vec<String>>,
    /// Accepted by weir alone, with the kernel's reason.
    unsound: Vec<String>,
    /// All of them, as a table.
    lines: String,
}

impl Table {
    fn add(&mut self, program: &Program<'_>, types: &Arc<Btf>) {
        let kind = program.object.program_kind(&program.name);
        if !kind.is_some_and(weir_vm::ProgramKind::is_runnable) {
            let section = program.object.program_section(&program.name);
            let kind = section
                .unwrap_or_default()
                .split(['/', '.'])
                .find(|s| !s.is_empty());
            let kind = format!("kind {}", kind.unwrap_or_default());
            *self.left_out.entry(kind).or_default() += 1;
            return;
        }
        let kernel = KernelObject::open(program.elf).and_then(|o| o.load(&program.name));
        let refusal = match &kernel {
            Ok(_) => None,
            Err(KernelError::Rejected { line, .. }) => Some(line.clone()),
            Err(error) => {
                let words = error.to_string();
                let short: String = words.chars().take(160).collect();
                let _ = writeln!(self.lines, "not asked\t{}\t{short}\t", program.label);
                *self
                    .left_out
                    .entry("libbpf cannot load it".to_owned())
                    .or_default() += 1;
                return;
            }
        };
        let own = verdict(program, types);
        let text =
            |line: &Option<String>| line.clone().unwrap_or_default().replace(['\n', '\t'], " ");
        let own_text = own
            .clone()
            .err()
            .map(|(rule, words)| format!("{rule}: {words}"));
        let row = match (&own, &refusal) {
            (Ok(()), None) => {
                self.both += 1;
                "both"
            }
            (Err(_), Some(_)) => {
                self.neither += 1;
                "neither"
            }
            (Err((rule, _)), None) => {
                self.ours
                    .entry(rule.clone())
                    .or_default()
                    .push(program.label.clone());
                "kernel only"
            }
            (Ok(()), Some(line)) => {
                self.unsound.push(format!("{}: {line}", program.label));
                "weir only"
            }
        };
        let _ = writeln!(
            self.lines,
            "{row}\t{}\t{}\t{}",
            program.label,
            text(&refusal),
            text(&own_text)
        );
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ours: usize = self.ours.values().map(Vec::len).sum();
        writeln!(
            f,
            "accepted by both {}, refused by both {}, refused by weir alone {ours}, accepted by weir alone {}",
            self.both,
            self.neither,
            self.unsound.len()
        )?;
        for (what, count) in &self.left_out {
            writeln!(f, "left out: {count} ({what})")?;
        }
        let mut rules: Vec<_> = self.ours.iter().collect();
        rules.sort_by_key(|(_, programs)| std::cmp::Reverse(programs.len()));
        for (rule, programs) in rules {
            writeln!(
                f,
                "{} refused by weir alone, {rule}: {}",
                programs.len(),
                programs.join(" ")
            )?;
        }
        Ok(())
    }
}

/// weir's verdict, or the rule and the words of its refusal.
fn verdict(program: &Program<'_>, types: &Arc<Btf>) -> Result<(), (String, String)> {
    let mut object = program.object.clone();
    object.relocate_against(Arc::clone(types));
    let machine = object
        .load(&program.name)
        .map_err(|e| ("load".to_owned(), e.to_string()))?;
    match verify(&machine, &program.name, &VerifyOptions::default()) {
        Ok(_) => Ok(()),
        Err(rejection) => {
            let rule = format!("{:?}", rejection.rule);
            let end = rule.find([' ', '(', '{']).unwrap_or(rule.len());
            Err((rule[..end].to_owned(), rejection.to_string()))
        }
    }
}

fn programs(objects: &[(String, Vec<u8>, Object)]) -> Vec<Program<'_>> {
    let mut found = Vec::new();
    for (file, elf, object) in objects {
        let first = file.strip_prefix(TC);
        let first = first.and_then(|file| objects.iter().find(|(f, ..)| f == file));
        for name in object.programs() {
            // Of the second folder, those that are of another kind there.
            let same = |(.., o): &(String, Vec<u8>, Object)| {
                o.program_kind(name) == object.program_kind(name)
            };
            if first.is_some_and(same) {
                continue;
            }
            found.push(Program {
                label: format!("{file}/{name}"),
                name: name.to_owned(),
                elf,
                object,
            });
        }
    }
    found
}

/// The compiled tests by name. One that weir cannot parse is a failure: its programs would be missing from the table.
fn objects(folder: &Path, prefix: &str) -> Vec<(String, Vec<u8>, Object)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "o"));
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{prefix}{}", name.trim_start_matches("verifier_"));
        let elf = std::fs::read(path).expect("the object can be read");
        let object = Object::parse(&elf).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, elf, object)
    };
    paths.iter().map(read).collect()
}

/// Where `scripts/selftests` works.
fn folder() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    // Cargo takes a relative one from where it was called, which is the root.
    target
        .map_or_else(|| workspace.join("target"), |t| workspace.join(t))
        .join("selftests")
}
