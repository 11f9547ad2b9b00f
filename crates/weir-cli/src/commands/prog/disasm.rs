//! `weir prog disasm`: the code of an object as text, with names where the code has numbers and the source lines between.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use serde::Serialize;
use weir_vm::disasm::Function;

use super::object;
use crate::args::prog::DisasmArgs;
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
struct Listing {
    functions: Vec<ListedFunction>,
}

#[derive(Serialize)]
struct ListedFunction {
    name: String,
    section: String,
    program: bool,
    instructions: Vec<ListedInstruction>,
}

#[derive(Serialize)]
struct ListedInstruction {
    slot: usize,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    helper: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<ListedSource>,
}

#[derive(Serialize)]
struct ListedSource {
    file: String,
    line: u32,
    column: u32,
    text: String,
}

pub(crate) fn run(args: &DisasmArgs) -> Result<ExitCode, Failure> {
    let opened = object::open(&args.object, &[])?;
    let entry = match &args.prog {
        Some(name) => object::program(&args.object, &opened.object, Some(name))?,
        None => object::any_program(&args.object, &opened.object)?,
    };
    let machine = opened
        .object
        .load(&entry)
        .map_err(|e| Failure::failed(format!("{}: {e}", args.object.display())))?;
    let mut functions = machine.disassemble();
    if let Some(name) = &args.prog {
        let reached = reached(&functions, name);
        functions.retain(|f| reached.contains(&f.name));
    }
    if args.json {
        output::json(&listing(functions))?;
    } else {
        output::out(&text(&functions))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Names of the functions that `from` calls or takes the address of, directly or not, and its own.
fn reached(functions: &[Function], from: &str) -> BTreeSet<String> {
    let by_name: BTreeMap<&str, &Function> =
        functions.iter().map(|f| (f.name.as_str(), f)).collect();
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(name) = open.pop() {
        if !reached.insert(name.to_owned()) {
            continue;
        }
        if let Some(function) = by_name.get(name) {
            let called = function.instructions.iter();
            open.extend(called.filter_map(|i| i.function.as_deref()));
        }
    }
    reached
}

fn text(functions: &[Function]) -> String {
    let mut text = String::new();
    for (n, function) in functions.iter().enumerate() {
        let kind = if function.program {
            "program"
        } else {
            "function"
        };
        let _ = writeln!(
            text,
            "{}{kind} {} (section {}, {} instructions)",
            if n > 0 { "\n" } else { "" },
            function.name,
            function.section,
            function.instructions.len()
        );
        let mut shown = None;
        for instruction in &function.instructions {
            let source = instruction.source.as_ref();
            let place = source.map(|s| (&s.file, s.line));
            if let Some(source) = source.filter(|_| place != shown) {
                let _ = writeln!(text, "; {}:{}  {}", source.file, source.line, source.text);
            }
            shown = place;
            let _ = writeln!(text, "{:>6}: {}", instruction.slot, instruction.text);
        }
    }
    text
}

fn listing(functions: Vec<Function>) -> Listing {
    let function = |f: Function| ListedFunction {
        name: f.name,
        section: f.section,
        program: f.program,
        instructions: f
            .instructions
            .into_iter()
            .map(|i| ListedInstruction {
                slot: i.slot,
                text: i.text,
                target: i.target,
                function: i.function,
                helper: i.helper,
                map: i.map,
                source: i.source.map(|s| ListedSource {
                    file: s.file,
                    line: s.line,
                    column: s.column,
                    text: s.text,
                }),
            })
            .collect(),
    };
    Listing {
        functions: functions.into_iter().map(function).collect(),
    }
}
