//! What the translator must know of each operation, and the functions a program is made of.
//!
//! Owns the division of code into functions and [`Plan`]. Does not decide whether a program is safe: the verifier has.
//! Invariant: every operation translated belongs to exactly one function.

use super::JitError;
use crate::catalogue::kernel_function;
use crate::insn::{Kind, Op};
use crate::verify::{Access, Facts, ValueKind};

/// Facts by operation.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) ops: Vec<Planned>,
}

/// Facts about one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Planned {
    /// A load from the context.
    pub(super) context: bool,
    /// The one map a helper call works on.
    pub(super) map: Option<usize>,
    /// A conditional jump that is never taken.
    pub(super) stays: bool,
    /// A conditional jump that is always taken.
    pub(super) goes: bool,
}

impl Plan {
    /// What the verifier found out about `ops` operations in all these programs.
    ///
    /// # Errors
    /// [`JitError::Code`] if an operation loads from the context in one program and from elsewhere in another.
    pub(super) fn of(ops: usize, programs: &[&Facts]) -> Result<Plan, JitError> {
        let planned = (0..ops).map(|op| {
            let facts = || programs.iter().map(|f| f.op(op)).filter(|f| f.reached);
            let kernel =
                |kind| matches!(kind, ValueKind::Socket | ValueKind::Object | ValueKind::Map);
            if facts().any(|f| matches!(f.access, Access::One(kind, _) if kernel(kind))) {
                return Err(JitError::Code("an access to a socket or kernel object"));
            }
            let loads = |context: bool| {
                facts().any(|f| match f.access {
                    Access::One(kind, _) => (kind == ValueKind::Context) == context,
                    // Of which the context is none: the verifier refuses to mix it.
                    Access::Several => !context,
                    Access::None => false,
                })
            };
            if loads(true) && loads(false) {
                return Err(JitError::Code("two programs use an operation differently"));
            }
            let mut maps = facts().map(|f| f.map.get());
            let first = maps.next().flatten();
            Ok(Planned {
                context: loads(true),
                map: first.filter(|_| maps.all(|m| m == first)),
                stays: !facts().any(|f| f.jumps),
                goes: !facts().any(|f| f.falls_through),
            })
        });
        Ok(Plan {
            ops: planned.collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn op(&self, pc: usize) -> Planned {
        self.ops.get(pc).copied().unwrap_or_default()
    }
}

/// A function: where it starts and what it needs.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) entry: usize,
    /// A program: entered through a thunk and by tail calls, not by calls.
    pub(super) program: bool,
    /// Its operations, in order.
    pub(super) ops: Vec<usize>,
    /// Whether it writes R6, R7, R8, R9.
    pub(super) writes: [bool; 4],
    /// Whether it makes tail calls, after which all of R6 to R9 are somebody else's.
    pub(super) tail_calls: bool,
}

/// Divides the code reachable from `programs` into functions.
///
/// # Errors
/// [`JitError::Code`] for code no verifier accepts, and for functions that share code.
pub(super) fn functions(
    ops: &[Op],
    programs: &[usize],
    plan: &Plan,
) -> Result<Vec<Function>, JitError> {
    let mut owner = vec![usize::MAX; ops.len()];
    let mut found: Vec<Function> = Vec::new();
    let mut roots: Vec<(usize, bool)> = programs.iter().map(|p| (*p, true)).collect();
    let mut next = 0;
    while let Some((entry, program)) = roots.get(next).copied() {
        next += 1;
        if let Some(known) = found.iter().find(|f| f.entry == entry) {
            if known.program != program {
                return Err(JitError::Code("a program is called like a function"));
            }
            continue;
        }
        let number = found.len();
        let mut function = Function {
            entry,
            program,
            ops: Vec::new(),
            writes: [false; 4],
            tail_calls: false,
        };
        let mut work = vec![entry];
        while let Some(pc) = work.pop() {
            let (Some(op), Some(owner)) = (ops.get(pc), owner.get_mut(pc)) else {
                return Err(JitError::Code("control leaves the code"));
            };
            if *owner == number {
                continue;
            }
            if *owner != usize::MAX {
                return Err(JitError::Code("two functions share code"));
            }
            *owner = number;
            function.ops.push(pc);
            note_writes(&mut function, op);
            match op.kind {
                Kind::Exit => {}
                Kind::Half
                | Kind::SectionEnd
                | Kind::External
                | Kind::Invalid
                | Kind::CallRegister => {
                    return Err(JitError::Code("an operation no verifier accepts"));
                }
                Kind::Helper if is_interpreted(op.imm as u32) => {
                    return Err(JitError::Code(
                        "a dynptr, or a kernel function other than an iterator over numbers",
                    ));
                }
                Kind::PacketAbs | Kind::PacketInd => {
                    return Err(JitError::Code("legacy packet access (LD_ABS, LD_IND)"));
                }
                Kind::Helper if op.imm == 12 && plan.op(pc).map.is_none() => {
                    return Err(JitError::Code(
                        "a tail call through one of several program arrays",
                    ));
                }
                Kind::Ja => work.push(op.target()),
                Kind::LoadImm => work.push(pc + 2),
                Kind::LoadFunction => {
                    roots.push((op.imm as usize, false));
                    work.push(pc + 2);
                }
                Kind::Call => {
                    roots.push((op.target(), false));
                    work.push(pc + 1);
                }
                kind if is_branch(kind) => {
                    let planned = plan.op(pc);
                    if !planned.stays {
                        work.push(op.target());
                    }
                    if !planned.goes {
                        work.push(pc + 1);
                    }
                }
                _ => work.push(pc + 1),
            }
        }
        function.ops.sort_unstable();
        found.push(function);
    }
    Ok(found)
}

/// Whether only the interpreter has the helper: it keeps addresses in memory, or takes any address.
fn is_interpreted(number: u32) -> bool {
    match kernel_function(number) {
        Some(function) => !function.name.starts_with("iter_num_"),
        None => matches!(number, 197..=203),
    }
}

pub(super) fn is_branch(kind: Kind) -> bool {
    (kind as u8) > Kind::Ja as u8 && (kind as u8) < Kind::Helper as u8
}

fn note_writes(function: &mut Function, op: &Op) {
    if op.kind == Kind::Helper && op.imm as u32 == 12 {
        function.tail_calls = true;
        function.writes = [true; 4];
    }
    let jump = (op.kind as u8) >= Kind::Ja as u8;
    let atomic = matches!(op.kind, Kind::Atomic32 | Kind::Atomic64);
    for (register, written) in (6..).zip(&mut function.writes) {
        *written |= !jump && (op.dst == register || (atomic && op.src == register));
    }
}
