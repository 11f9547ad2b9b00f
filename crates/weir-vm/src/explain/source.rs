//! Operations as places in the source: line, column, and what stands there.

use serde::Serialize;

use super::expression;
use crate::machine::Machine;

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spot {
    /// Index of the operation in the linked code.
    pub op: usize,
    /// Function.
    pub function: String,
    /// Section.
    pub section: String,
    /// Slot of the section, as `llvm-objdump -d` counts.
    pub slot: usize,
    /// The instruction.
    pub instruction: String,
    /// Source, where the object has line information.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// A line of source, and the part of it an instruction was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// File as the compiler was told.
    pub file: String,
    /// Line from 1.
    pub line: u32,
    /// Column from 1; 0 when unknown.
    pub column: u32,
    /// The line without the white space around it; empty when the compiler did not keep it.
    pub text: String,
    /// Where in `text` the column is, in bytes.
    pub mark: usize,
    /// Bytes of the word or operator there; 0 when the column is unknown.
    pub width: usize,
}

impl Spot {
    pub(crate) fn of(machine: &Machine, op: usize) -> Spot {
        let place = machine.place(op);
        Spot {
            op,
            function: place.function,
            section: place.section,
            slot: place.slot,
            instruction: machine.instruction_text(op),
            source: Source::of(machine, op),
        }
    }
}

impl Source {
    /// Nothing without line information, and for code of no line.
    pub(super) fn of(machine: &Machine, op: usize) -> Option<Source> {
        let line = machine.source_line(op).filter(|l| l.line > 0)?;
        let raw = machine.raw_source_text(op).unwrap_or_default();
        let trimmed = raw.trim_start();
        let indent = raw.len() - trimmed.len();
        let column = (line.column as usize).checked_sub(1 + indent);
        let mark = column.filter(|at| *at < line.text.len() && line.text.is_char_boundary(*at));
        Some(Source {
            width: mark.map_or(0, |at| expression::word(&line.text, at)),
            mark: mark.unwrap_or(0),
            file: line.file,
            line: line.line,
            column: line.column,
            text: line.text,
        })
    }
}
