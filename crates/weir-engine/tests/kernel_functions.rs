//! Programs that call kernel functions, in the user engine and in the running kernel: the same verdicts and, where runs have a model,
//! the same results and bytes.

use crate::common;
use crate::pair::{Pair, compile};
use weir_engine::EngineKind;
use weir_kernel::{KernelError, KernelObject};
use weir_vm::Object;

/// Programs that a run without tasks can carry out.
const RUN: [&str; 9] = [
    "slices_the_packet",
    "writes_the_packet",
    "dynptr_of_a_value",
    "record_of_any_size",
    "passes_a_dynptr",
    "looks_a_connection_up",
    "reads_in_sections",
    "throws",
    "throws_to_a_callback",
];

#[test]
fn programs_with_kernel_functions_do_what_the_kernels_do() {
    if !common::engines().contains(&EngineKind::Kernel) {
        return;
    }
    let elf = compile("kernel", &["-g"]);
    let object = Object::parse(&elf).expect("parses");
    let mut wrong = Vec::new();
    for program in object.programs() {
        let loaded = KernelObject::open(&elf).and_then(|o| o.load(program));
        let accepted = !program.starts_with("no_");
        match loaded {
            Ok(_) if accepted => {}
            Ok(_) => wrong.push(format!("{program}: the kernel accepts it")),
            Err(KernelError::Rejected { .. }) if !accepted => {}
            Err(error) => wrong.push(format!("{program}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for program in RUN {
        let mut pair = Pair::load(&elf, program, &[]);
        pair.start(false);
        for length in [20u8, 34, 60, 200] {
            let frame: Vec<u8> = (0..length).collect();
            pair.packet(&frame)
                .unwrap_or_else(|e| panic!("{program}, {length} bytes: {e}"));
        }
        pair.compare_map("values")
            .unwrap_or_else(|e| panic!("{program}: {e}"));
    }
}
