//! `weir prog exec`: bare instructions over a piece of memory, as foreign conformance suites drive engines.
//!
//! Protocol: instructions as hexadecimal bytes on standard input, memory as an argument, r0 as lower-case hexadecimal
//! digits on standard output. Both inputs may have white space anywhere. Exit status 0: it ended; 1: it faulted, or could not be decoded.

use std::io::Read as _;
use std::process::ExitCode;

use weir_vm::Machine;
use weir_vm::jit::Raw;

use crate::args::prog::{ExecArgs, ExecEngine};
use crate::failure::Failure;
use crate::output;

/// Most characters read from standard input: a million instructions with a blank behind each byte need 24 million.
const INPUT_MAX: u64 = 1 << 25;

pub(crate) fn run(args: &ExecArgs) -> Result<ExitCode, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(INPUT_MAX)
        .read_to_string(&mut text)
        .map_err(|e| Failure::failed(format!("cannot read standard input: {e}")))?;
    let code = bytes(&text).map_err(|e| Failure::usage(format!("standard input: {e}")))?;
    let mut memory = bytes(&args.memory).map_err(|e| Failure::usage(format!("memory: {e}")))?;
    if code.is_empty() {
        return Err(Failure::usage(
            "standard input has no instructions; give 16 hexadecimal digits for each",
        ));
    }
    let mut machine = Machine::from_instructions(&code).map_err(Failure::failed)?;
    let r0 = match args.engine {
        ExecEngine::Interpreter => machine.run_raw(&mut memory).map_err(Failure::failed)?,
        ExecEngine::Jit => Raw::compile(&mut machine)
            .map_err(Failure::failed)?
            .run(&mut memory)
            .map_err(Failure::failed)?,
    };
    output::out(&format!("{r0:x}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Bytes written as pairs of hexadecimal digits, with white space anywhere between and in pairs.
fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut found = Vec::new();
    let mut high: Option<u8> = None;
    for (at, c) in text.chars().enumerate().filter(|(_, c)| !c.is_whitespace()) {
        let digit = c
            .to_digit(16)
            .ok_or_else(|| format!("{c:?} at {} is not a hexadecimal digit", at + 1))?;
        high = match high {
            None => Some(digit as u8),
            Some(high) => {
                found.push(high << 4 | digit as u8);
                None
            }
        };
    }
    match high {
        None => Ok(found),
        Some(_) => Err("an odd number of hexadecimal digits".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_with_and_without_blanks() {
        assert_eq!(bytes("b7 00\n0f"), Ok(vec![0xb7, 0, 0xf]));
        assert_eq!(bytes("B7000F  "), Ok(vec![0xb7, 0, 0xf]));
        assert_eq!(bytes(""), Ok(vec![]));
        assert!(bytes("b7 0").is_err_and(|e| e.contains("odd")));
        assert!(bytes("b7 0x").is_err_and(|e| e.contains("'x' at 5")));
    }
}
