//! What the kernel's verifier says about the data plane: instructions it walked, for each set of features.
//!
//! The record benches/record/verified-insns.tsv is kept in the tree. On the kernel and compiler of the record the counts must not grow by more than
//! a tenth (a deterministic gate); elsewhere they are printed only. `WEIR_UPDATE=1` writes the record.

mod common;
mod features;

use std::fmt::Write;

use features::{RECORD, SETS};
use weir_bpf::abi::DIMS;
use weir_kernel::KernelObject;

#[test]
fn verified_instructions_stay_within_the_record() {
    if !common::engines().contains(&weir_engine::EngineKind::Kernel) {
        return;
    }
    let environment = format!("{}\t{}", weir_kernel::probes::kernel_release(), compiler());
    let mut measured = Vec::new();
    for (name, features) in SETS {
        for mode in [0u32, 1] {
            let mut object = KernelObject::open(weir_bpf::object("middlebox").expect("compiled"))
                .expect("opens");
            object
                .set_rodata("weir_features", &features.to_ne_bytes())
                .expect("constant");
            object
                .set_rodata("weir_csum_mode", &mode.to_ne_bytes())
                .expect("constant");
            object
                .set_rodata("weir_dims", &(DIMS as u32).to_ne_bytes())
                .expect("constant");
            let program = object
                .load("middlebox")
                .unwrap_or_else(|e| panic!("{name}: {e}\n{}", e.log().unwrap_or("")));
            let count = program.verified_insns().expect("info");
            let label = format!("{name}{}", if mode == 1 { "+offloaded" } else { "" });
            eprintln!("{label}: {count} verified instructions");
            assert!(
                count < 200_000,
                "{label}: far too near the kernel's limit of 1,000,000"
            );
            measured.push((label, count));
        }
    }
    let record = std::fs::read_to_string(RECORD).unwrap_or_default();
    if std::env::var_os("WEIR_UPDATE").is_some() {
        let mut text =
            String::from("# program features\tverified instructions\tkernel\tcompiler\n");
        for (label, count) in &measured {
            writeln!(text, "{label}\t{count}\t{environment}").expect("strings grow");
        }
        std::fs::write(RECORD, text).expect("the record is writable");
        return;
    }
    let mut compared = 0;
    for (label, count) in &measured {
        let line = record
            .lines()
            .find(|line| line.split('\t').next() == Some(label));
        let line =
            line.unwrap_or_else(|| panic!("{label} is not in {RECORD}: run with WEIR_UPDATE=1"));
        let mut cells = line.splitn(3, '\t').skip(1);
        let kept: u32 = cells
            .next()
            .and_then(|n| n.parse().ok())
            .expect("the record holds numbers");
        if cells.next() == Some(&environment) {
            assert!(
                *count <= kept + kept / 10,
                "{label}: {count} verified instructions, {kept} on record"
            );
            compared += 1;
        }
    }
    eprintln!(
        "{compared} of {} counts compared with the record",
        measured.len()
    );
}

/// First line of the compiler's version, as the build uses it.
fn compiler() -> String {
    let clang = std::env::var("WEIR_CLANG").unwrap_or_else(|_| "clang".to_owned());
    let output = std::process::Command::new(clang)
        .arg("--version")
        .output()
        .expect("clang runs");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}
