//! Runs the public instruction conformance cases, where they are present, in interpreter and native code, and counts them.
//!
//! A case is a text file of sections: `asm`, `mem` (hexadecimal bytes r1 points at), `result` (r0), `error`.

use std::collections::HashMap;
use std::io::Write;

use crate::asm;
use weir_vm::Machine;
use weir_vm::jit::{self, Raw};

#[test]
fn every_case_passes() {
    let Some(folder) = weir_testdata::find("bpf-conformance") else {
        return;
    };
    let mut out = std::io::stdout();
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "data"))
        .collect();
    paths.sort();
    let mut failures = Vec::new();
    for path in &paths {
        let text = std::fs::read_to_string(path).expect("case is readable");
        if let Err(reason) = run_case(&text) {
            failures.push(format!("{}: {reason}", path.display()));
        }
    }
    writeln!(
        out,
        "conformance: {} of {} cases pass",
        paths.len() - failures.len(),
        paths.len()
    )
    .ok();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(!paths.is_empty(), "the folder has no cases");
}

fn run_case(text: &str) -> Result<(), String> {
    let mut sections: HashMap<&str, String> = HashMap::new();
    let mut current = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("-- ") {
            current = name.trim();
        } else {
            let section = sections.entry(current).or_default();
            section.push_str(line);
            section.push('\n');
        }
    }
    let code = asm::assemble(sections.get("asm").ok_or("no asm section")?)?;
    let mut mem = Vec::new();
    for byte in sections.get("mem").map_or("", |m| m).split_whitespace() {
        mem.push(u8::from_str_radix(byte, 16).map_err(|e| e.to_string())?);
    }
    let mut machine = Machine::from_instructions(&code).map_err(|e| e.to_string())?;
    let mut native_mem = mem.clone();
    let result = machine.run_raw(&mut mem);
    if jit::available() {
        let mut native = Raw::compile(&mut machine).map_err(|e| e.to_string())?;
        let other = native.run(&mut native_mem);
        if (&other, &native_mem) != (&result, &mem) {
            return Err(format!("native code: {other:?}, interpreter: {result:?}"));
        }
    }
    if sections.contains_key("error") {
        return match result {
            Err(_) => Ok(()),
            Ok(r0) => Err(format!("expected an error, got {r0:#x}")),
        };
    }
    let expected = sections.get("result").ok_or("no result section")?.trim();
    let expected = match expected.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => expected.parse(),
    }
    .map_err(|e| e.to_string())?;
    let r0 = result.map_err(|e| e.to_string())?;
    if r0 != expected {
        return Err(format!("r0 is {r0:#x}, expected {expected:#x}"));
    }
    Ok(())
}
