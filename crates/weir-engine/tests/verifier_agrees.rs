//! The verifier's example programs put to the running kernel: it accepts and refuses the same.
//!
//! Left out are programs that the kernel takes with type information only: locks and callbacks, and maps in maps.

#[path = "../../weir-vm/tests/asm/mod.rs"]
mod asm;
#[path = "../../weir-vm/tests/object/mod.rs"]
mod object;
#[path = "../../weir-vm/tests/verifier/programs.rs"]
mod programs;

use crate::common;
use weir_kernel::raw::{RawMap, RawMapSpec, RawProgram};

/// Kind, key size, value size, entries and flags of the maps that the programs name; the kernel's numbers.
const MAPS: [(u32, u32, u32, u32, u32); 10] = [
    (2, 4, 16, 4, 0),
    (1, 8, 8, 16, 0),
    (27, 0, 0, 4096, 0),
    (3, 4, 4, 4, 0),
    (2, 4, 8, 1, 1 << 7),
    (1, 4, 16, 4, 0),
    (14, 4, 4, 4, 0),
    (6, 4, 8, 4, 0),
    (2, 4, 64, 1, 0),
    (2, 4, 4, 2, 0),
];

#[test]
fn the_kernel_gives_the_same_verdicts() {
    if !common::engines().contains(&weir_engine::EngineKind::Kernel) {
        return;
    }
    let maps: Vec<RawMap> = MAPS
        .iter()
        .map(|(kind, key_size, value_size, max_entries, flags)| {
            RawMap::create(RawMapSpec {
                kind: *kind,
                key_size: *key_size,
                value_size: *value_size,
                max_entries: *max_entries,
                flags: *flags,
            })
            .expect("creates")
        })
        .collect();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for program in programs::all() {
        let typed = ["map 5", "map 9", "function "]
            .iter()
            .any(|t| program.text.contains(t))
            // Constant only once user space has frozen the map.
            || program.name == "read-only data is constant"
            // Tail calls in functions need type information.
            || program.name.starts_with("tail call below");
        if typed {
            continue;
        }
        compared += 1;
        let code = asm::assemble(program.text).expect("assembles");
        let verdict = RawProgram::load_xdp(&code, &maps, false).expect("the kernel answers");
        match verdict {
            Ok(_) if program.rule.is_empty() => {}
            Ok(_) => wrong.push(format!("{}: the kernel accepts it", program.name)),
            Err(refusal) if program.rule.is_empty() => {
                wrong.push(format!(
                    "{}: the kernel says {}",
                    program.name,
                    refusal.line()
                ));
            }
            Err(_) => {}
        }
    }
    eprintln!(
        "{compared} of {} programs compared",
        programs::all().count()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Programs that need type information, compiled; their names say which rule they break, or that they break none.
#[test]
fn the_kernel_gives_compiled_programs_the_same_verdicts() {
    if !common::engines().contains(&weir_engine::EngineKind::Kernel) {
        return;
    }
    let bytes = object::compile("verdicts");
    let object = weir_vm::Object::parse(&bytes).expect("parses");
    let mut wrong = Vec::new();
    for program in object.programs() {
        let broken = program
            .strip_prefix("no_")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
        let loaded = weir_kernel::KernelObject::open(&bytes).and_then(|o| o.load(program));
        match loaded {
            Ok(_) if broken => wrong.push(format!("{program}: the kernel accepts it")),
            Err(error) if !broken => wrong.push(format!("{program}: {error}")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
