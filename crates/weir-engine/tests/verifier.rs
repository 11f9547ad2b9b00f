//! The user engine's verifier over the compiled data plane: every set of features is accepted, within the kernel's work.
//!
//! The kernel's counts are those of benches/record/verified-insns.tsv. Times are printed, never asserted.

use std::time::Instant;

use crate::common;
use crate::features::{RECORD, SETS};
use weir_bpf::abi::DIMS;
use weir_kernel::KernelObject;
use weir_vm::Object;
use weir_vm::verify::{Verified, VerifyOptions, verify};

#[test]
fn the_middlebox_is_accepted_with_every_set_of_features() {
    let record = std::fs::read_to_string(RECORD).expect("the record is in the tree");
    for (name, features) in SETS {
        for mode in [0u32, 1] {
            let label = format!("{name}{}", if mode == 1 { "+offloaded" } else { "" });
            let kernel: u64 = record
                .lines()
                .find_map(|line| {
                    let mut cells = line.split('\t');
                    (cells.next() == Some(&label)).then(|| cells.next())?
                })
                .and_then(|n| n.parse().ok())
                .expect("the record has every set");
            let begun = Instant::now();
            let verified = middlebox(*features, mode);
            eprintln!(
                "{label}: {} walked, the kernel {kernel}; {} states, at most {}; {:.1?}",
                verified.processed,
                verified.states,
                verified.peak_states,
                begun.elapsed()
            );
            assert!(
                2 * verified.processed <= 3 * kernel,
                "{label}: far more work than the kernel's"
            );
        }
    }
}

fn middlebox(features: u32, mode: u32) -> Verified {
    let mut object =
        Object::parse(weir_bpf::object("middlebox").expect("compiled")).expect("parses");
    let constants = [
        ("weir_features", features),
        ("weir_csum_mode", mode),
        ("weir_dims", DIMS as u32),
    ];
    for (symbol, value) in constants {
        object
            .set_rodata(symbol, &value.to_ne_bytes())
            .expect("constant");
    }
    let machine = object.load("middlebox").expect("loads");
    verify(&machine, "middlebox", &VerifyOptions::default())
        .unwrap_or_else(|rejection| panic!("{rejection}\n{:#?}", rejection.state))
}

/// An object in which most programs have something that is not understood: what is accepted here is accepted by the kernel.
#[test]
fn what_a_spoiled_object_has_left_is_accepted_by_the_kernel() {
    if !common::engines().contains(&weir_engine::EngineKind::Kernel) {
        return;
    }
    let elf = crate::pair::compile("spoiled", &["-g"]);
    let object = Object::parse(&elf).expect("parses");
    let programs: Vec<String> = object.programs().map(str::to_owned).collect();
    let mut both = Vec::new();
    for program in &programs {
        let machine = object.clone().load(program).expect("loads");
        let accepted = verify(&machine, program, &VerifyOptions::default()).is_ok();
        let kernel = KernelObject::open(&elf).and_then(|o| o.load(program));
        eprintln!("{program}: {accepted}, the kernel {}", kernel.is_ok());
        if accepted {
            kernel.unwrap_or_else(|e| panic!("{program}: accepted; the kernel: {e}"));
            both.push(program.as_str());
        }
    }
    assert_eq!(both, ["counts", "adds"]);
}

/// Objects of the xdp-tools package, where it is installed: the kernel and this verifier agree on each program.
#[test]
fn programs_of_xdp_tools_get_the_kernels_verdict() {
    let kernel = common::engines().contains(&weir_engine::EngineKind::Kernel);
    let Ok(folder) = std::fs::read_dir("/usr/lib/x86_64-linux-gnu/bpf") else {
        eprintln!("skipped: xdp-tools is not installed");
        return;
    };
    let mut paths: Vec<_> = folder.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    // The release whose verifier this one follows.
    let followed = weir_kernel::probes::kernel_release().starts_with("6.18.");
    let mut wrong = Vec::new();
    for path in paths {
        let bytes = std::fs::read(&path).expect("readable");
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let object = match Object::parse(&bytes) {
            Ok(object) => object,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let programs: Vec<String> = object.programs().map(str::to_owned).collect();
        for program in programs {
            let section = object.program_section(&program).unwrap_or_default();
            if !section.starts_with("xdp") {
                continue;
            }
            let machine = match object.clone().load(&program) {
                Ok(machine) => machine,
                Err(error) => {
                    wrong.push(format!("{name} {program}: {error}"));
                    continue;
                }
            };
            let begun = Instant::now();
            let verdict = verify(&machine, &program, &VerifyOptions::default());
            let took = begun.elapsed();
            let counted = kernel.then(|| {
                let object = KernelObject::open(&bytes).map_err(|e| e.to_string())?;
                let loaded = object.load(&program);
                loaded
                    .and_then(|p| p.verified_insns())
                    .map_err(|e| format!("{e}"))
            });
            eprintln!(
                "{name} {program}: {} walked in {took:.1?}, the kernel {counted:?}",
                verdict.as_ref().map_or(0, |v| v.processed)
            );
            match (&verdict, counted) {
                (Err(rejection), counted) => {
                    wrong.push(format!("{name}: {rejection}; the kernel: {counted:?}"));
                }
                (Ok(_), Some(Err(refused))) => {
                    wrong.push(format!("{name} {program}: accepted; the kernel: {refused}"));
                }
                // Other kernels walk otherwise.
                (Ok(verified), Some(Ok(counted)))
                    if followed && verified.processed != u64::from(counted) =>
                {
                    let walked = verified.processed;
                    wrong.push(format!(
                        "{name} {program}: {walked} walked, the kernel {counted}"
                    ));
                }
                (Ok(_), _) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
