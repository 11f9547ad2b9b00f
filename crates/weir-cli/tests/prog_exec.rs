//! `weir prog exec` as a conformance suite drives it: the public cases through the real program, and its refusals.

#[path = "../../weir-vm/tests/asm/mod.rs"]
mod asm;

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::common;
use crate::common::{Run, WEIR};

/// Runs `weir prog exec` with `args` and `input` on standard input.
fn exec(args: &[&str], input: &str) -> Run {
    let mut child = Command::new(WEIR)
        .args(["prog", "exec"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts");
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    stdin.write_all(input.as_bytes()).expect("weir reads");
    drop(stdin);
    child.wait_with_output().expect("weir ends").into()
}

/// Engines of this host.
fn engines() -> Vec<&'static str> {
    let native = cfg!(all(target_arch = "x86_64", target_os = "linux"));
    let engines = ["interpreter", "jit"];
    engines
        .into_iter()
        .filter(|e| native || *e != "jit")
        .collect()
}

/// As the suite writes bytes: two digits and two blanks each.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}  ")).collect()
}

#[test]
fn every_conformance_case_passes() {
    let Some(folder) = weir_testdata::find("bpf-conformance") else {
        return;
    };
    let mut cases = 0;
    let engines = engines();
    for path in common::files(&folder) {
        if path.extension().is_none_or(|e| e != "data") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("the case is readable");
        let mut sections: HashMap<&str, String> = HashMap::new();
        let mut current = "";
        for line in text.lines() {
            match line.strip_prefix("-- ") {
                Some(name) => current = name.trim(),
                None => {
                    let section = sections.entry(current).or_default();
                    section.push_str(line);
                    section.push('\n');
                }
            }
        }
        let code = asm::assemble(&sections["asm"]).expect("the case assembles");
        let memory = sections.get("mem").map_or("", |m| m.trim());
        for engine in &engines {
            let run = exec(&[memory, "--engine", engine], &hex(&code));
            let place = format!("{} in the {engine}", path.display());
            if sections.contains_key("error") {
                assert_eq!(run.status, 1, "{place}: {run:?}");
                continue;
            }
            let expected = sections["result"].trim();
            let expected = match expected.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => expected.parse(),
            }
            .expect("the expected result is a number");
            assert_eq!(
                (run.status, run.stdout),
                (0, format!("{expected:x}\n")),
                "{place}"
            );
        }
        cases += 1;
    }
    common::say(&format!(
        "{cases} conformance cases through weir prog exec in {}",
        engines.join(", ")
    ));
    assert!(cases > 50, "the folder holds the suite");
}

#[test]
fn memory_is_in_r1_and_its_length_in_r2() {
    // r0 = *(u8 *)(r1 + 1); r0 <<= 8; r0 += r2; exit
    let program = "7110010000000000 6700000008000000 0f20000000000000 9500000000000000";
    let run = exec(&["aa bb cc"], program).succeeded();
    assert_eq!(run.stdout, "bb03\n");
    // Without memory a program that reads none runs: r0 = r2.
    let none = exec(&[], "bf 20 00 00 00 00 00 00 95 00 00 00 00 00 00 00").succeeded();
    assert_eq!(none.stdout, "0\n");
}

#[test]
fn faults_and_bad_input_say_why() {
    for engine in engines() {
        let beyond = exec(
            &["aa", "--engine", engine],
            "7110010000000000 9500000000000000",
        );
        assert_eq!(beyond.status, 1);
        assert!(beyond.stderr.contains("instruction 0"), "{beyond:?}");
        let endless = exec(&["--engine", engine], "0500ffff00000000");
        assert_eq!(endless.status, 1);
        assert!(endless.stderr.contains("budget"), "{endless:?}");
    }
    let unknown = exec(&[], "ff00000000000000");
    assert_eq!((unknown.status, unknown.stdout.as_str()), (1, ""));
    assert!(unknown.stderr.contains("opcode 0xff"), "{unknown:?}");
    let digits = exec(&["zz"], "9500000000000000");
    assert_eq!(digits.status, 2);
    assert!(digits.stderr.contains("memory: 'z'"), "{digits:?}");
    assert_eq!(exec(&[], " ").status, 2);
}
