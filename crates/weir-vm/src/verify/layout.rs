//! Control flow without values: functions, reachability, where states are kept, live registers, loops.
//!
//! Owns every check that needs no state. A program consists of the function it begins with and all functions that
//! those call or take the address of, as the loader would hand it to the kernel. Invariant: behind these checks every jump
//! stays in its function and every function ends in a jump or exit.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::helpers::{self, Hook};
use super::rejection::Rule;
use super::shape::{Shape, shape, uses};
use crate::catalogue::{Effect, KernelFunction, kernel_function};
use crate::insn::{Kind, Op};
use crate::machine::Code;

/// Functions a program may have, as in the kernel.
const FUNCTIONS_MAX: usize = 256;
/// Instructions a program may have, as in the kernel.
const INSTRUCTIONS_MAX: usize = 1_000_000;

/// A function of the program.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) name: String,
    /// Verified by itself, by its argument types.
    pub(super) global: bool,
    /// A helper on some path invalidates packet pointers.
    pub(super) changes_packet: bool,
    pub(super) tail_calls: bool,
    /// An instruction of it throws an exception.
    pub(super) throws: bool,
    /// The program names it for its exceptions.
    pub(super) catches: bool,
    /// Functions called or taken the address of.
    pub(super) callees: Vec<(usize, usize)>,
}

/// The control flow of one program.
#[derive(Debug)]
pub(super) struct Layout {
    /// The program's own function is the first.
    pub(super) functions: Vec<Function>,
    /// By operation, from `base` on.
    flows: Vec<Flow>,
    base: usize,
    hook: Hook,
}

/// What control flow says of one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) shape: Shape,
    /// Registers read later, before the operation.
    pub(super) live: u16,
    /// States are compared here.
    pub(super) prune: bool,
    /// Control may come from elsewhere than the operation before.
    pub(super) joined: bool,
    /// A helper that calls back: states are always kept.
    pub(super) calls_back: bool,
    /// Every loop through it ends: states are always kept, and a loop is covered by one of its earlier rounds.
    pub(super) converges: bool,
    /// The operation lies on a cycle of its function, or calls back.
    pub(super) in_loop: bool,
    /// Number of the function, `u32::MAX` outside the program.
    pub(super) function: u32,
}

const NONE: Flow = Flow {
    shape: Shape::End,
    live: 0,
    prune: false,
    joined: false,
    calls_back: false,
    converges: false,
    in_loop: false,
    function: u32::MAX,
};

/// A check that failed, and at which operation.
pub(super) type Failed = (usize, Rule);

impl Layout {
    /// Finds and checks the functions of the program that begins at `entry`.
    pub(super) fn new(code: &Code, entry: usize, hook: Hook) -> Result<Layout, Failed> {
        let functions = functions(code, entry)?;
        let base = functions.iter().map(|f| f.start).min().unwrap_or(entry);
        let end = functions.iter().map(|f| f.end).max().unwrap_or(entry);
        let mut layout = Layout {
            functions,
            flows: vec![NONE; end - base],
            base,
            hook,
        };
        for number in 0..layout.functions.len() {
            layout.check(code, number)?;
        }
        layout.check_recursion()?;
        layout.check_exceptions(code, entry)?;
        layout.spread_effects();
        for number in 0..layout.functions.len() {
            layout.find_live(code, number);
        }
        Ok(layout)
    }

    #[inline]
    pub(super) fn flow(&self, op: usize) -> &Flow {
        self.flows.get(op.wrapping_sub(self.base)).unwrap_or(&NONE)
    }

    fn flow_mut(&mut self, op: usize) -> Option<&mut Flow> {
        self.flows.get_mut(op.wrapping_sub(self.base))
    }

    /// The operations that the program's functions lie in.
    pub(super) fn range(&self) -> Range<usize> {
        self.base..self.base + self.flows.len()
    }

    /// Number of the function that starts at `op`.
    pub(super) fn function_at(&self, op: usize) -> Option<usize> {
        self.functions.iter().position(|f| f.start == op)
    }

    fn check(&mut self, code: &Code, number: usize) -> Result<(), Failed> {
        let (start, end) = (self.functions[number].start, self.functions[number].end);
        for op in start..end {
            let shape = shape(&code.ops[op]);
            if let Some(flow) = self.flow_mut(op) {
                flow.shape = shape;
                flow.function = number as u32;
            }
            // Also where no path leads: the kernel refuses a program with such an instruction before it walks any, but for some.
            if shape == Shape::Invalid && !code.ops[op].reserved {
                return Err((op, invalid(code, op)));
            }
            if matches!(shape, Shape::Jump | Shape::MayGoto | Shape::Branch { .. }) {
                let target = code.ops[op].target();
                if !(start..end).contains(&target) {
                    let target = target - code.section_start(target);
                    return Err((op, Rule::JumpLeavesFunction { target }));
                }
            }
        }
        let last = (start..end)
            .rev()
            .find(|op| self.flow(*op).shape != Shape::Half);
        let last = last.ok_or((start, Rule::FallsOffEnd))?;
        if !matches!(self.flow(last).shape, Shape::Exit | Shape::Jump) {
            return Err((last, Rule::FallsOffEnd));
        }
        self.reach(code, number)?;
        self.find_loops(code, number);
        Ok(())
    }

    /// Marks what is reachable and where states are kept.
    fn reach(&mut self, code: &Code, number: usize) -> Result<(), Failed> {
        let (start, end) = (self.functions[number].start, self.functions[number].end);
        let mut reached = vec![false; end - start];
        let mut open = vec![start];
        if number > 0 {
            self.mark(start, true);
        }
        while let Some(op) = open.pop() {
            if std::mem::replace(&mut reached[op - start], true) {
                continue;
            }
            let current = &code.ops[op];
            match self.flow(op).shape {
                Shape::Jump => {
                    self.mark(current.target(), true);
                }
                shape @ (Shape::Branch { .. } | Shape::MayGoto) => {
                    self.mark(op, false);
                    self.mark(current.target(), true);
                    if let Some(flow) = self.flow_mut(op) {
                        flow.converges = shape == Shape::MayGoto;
                    }
                }
                Shape::Helper => {
                    self.mark(op + 1, true);
                    let number_of = current.imm as u32;
                    if helpers::converges(number_of) {
                        self.mark(op, false);
                        if let Some(flow) = self.flow_mut(op) {
                            flow.converges = true;
                        }
                    }
                    if helpers::calls_back(number_of) {
                        self.mark(op, true);
                        if let Some(flow) = self.flow_mut(op) {
                            flow.calls_back = true;
                            flow.in_loop = true;
                        }
                    }
                    let hook = self.hook;
                    let function = &mut self.functions[number];
                    // A failed tail call leaves the packet as it is; the program of one that succeeds may change it, and returns
                    // to this function's caller.
                    let tail_call = number_of == helpers::TAIL_CALL;
                    function.changes_packet |=
                        tail_call || helpers::changes_packet(number_of, hook);
                    function.tail_calls |= tail_call;
                    let throw = |f: &KernelFunction| f.effect == Effect::Throw;
                    function.throws |= kernel_function(number_of).is_some_and(throw);
                    if tail_call && number > 0 && code.returns_number(start) == Some(false) {
                        return Err((op, only_with_result("tail calls are")));
                    }
                }
                Shape::PacketLoad { .. }
                    if number > 0 && code.returns_number(start) != Some(true) =>
                {
                    return Err((op, only_with_result("LD_ABS and LD_IND are")));
                }
                Shape::Call => {
                    self.mark(op, false);
                    self.mark(op + 1, true);
                }
                Shape::LoadFunction => {
                    self.mark(op, false);
                    self.mark(op + 2, true);
                }
                _ => {}
            }
            self.successors(code, op, |next| {
                if next < end {
                    open.push(next);
                }
            });
        }
        let missed =
            (start..end).find(|op| !reached[op - start] && self.flow(*op).shape != Shape::Half);
        match missed {
            Some(op) => Err((op, Rule::Unreachable)),
            None => Ok(()),
        }
    }

    fn mark(&mut self, op: usize, joined: bool) {
        if let Some(flow) = self.flow_mut(op) {
            flow.prune = true;
            flow.joined |= joined;
        }
    }

    /// Successors inside the function.
    fn successors(&self, code: &Code, op: usize, mut to: impl FnMut(usize)) {
        match self.flow(op).shape {
            Shape::Exit => {}
            Shape::Jump => to(code.ops[op].target()),
            Shape::Branch { .. } | Shape::MayGoto => {
                to(op + 1);
                to(code.ops[op].target());
            }
            Shape::LoadImm | Shape::LoadFunction => to(op + 2),
            Shape::External if self.flow(op + 1).shape == Shape::Half => to(op + 2),
            _ => to(op + 1),
        }
    }

    /// Marks operations on cycles: Tarjan's components, iteratively.
    fn find_loops(&mut self, code: &Code, number: usize) {
        let (start, end) = (self.functions[number].start, self.functions[number].end);
        let len = end - start;
        const NEW: u32 = u32::MAX;
        let (mut index, mut low) = (vec![NEW; len], vec![0u32; len]);
        let (mut on, mut stack) = (vec![false; len], Vec::new());
        let mut count = 0;
        // Operation and its successors still to visit.
        let mut work: Vec<(usize, Vec<usize>)> = Vec::new();
        let open = |op: usize, layout: &Layout| {
            let mut next = Vec::with_capacity(2);
            layout.successors(code, op, |to| {
                if (start..end).contains(&to) {
                    next.push(to);
                }
            });
            next
        };
        let mut looping = Vec::new();
        work.push((start, open(start, self)));
        index[0] = 0;
        on[0] = true;
        stack.push(start);
        while let Some((op, next)) = work.last_mut() {
            let at = *op - start;
            if let Some(to) = next.pop() {
                let t = to - start;
                if index[t] == NEW {
                    count += 1;
                    index[t] = count;
                    low[t] = count;
                    on[t] = true;
                    stack.push(to);
                    work.push((to, open(to, self)));
                } else if on[t] {
                    low[at] = low[at].min(index[t]);
                    if to == *op {
                        looping.push(to);
                    }
                }
                continue;
            }
            if low[at] == index[at] {
                let mut members = Vec::new();
                while let Some(member) = stack.pop() {
                    on[member - start] = false;
                    members.push(member);
                    if member == *op {
                        break;
                    }
                }
                if members.len() > 1 {
                    looping.extend(members);
                }
            }
            let finished = low[at];
            work.pop();
            if let Some((parent, _)) = work.last() {
                let p = *parent - start;
                low[p] = low[p].min(finished);
            }
        }
        for op in looping {
            if let Some(flow) = self.flow_mut(op) {
                flow.in_loop = true;
            }
        }
    }

    /// Callbacks throw nothing, and the callback for exceptions is one that can be.
    fn check_exceptions(&mut self, code: &Code, entry: usize) -> Result<(), Failed> {
        let wrong = |op: usize, function: &Function, reason| {
            let function = function.name.clone();
            Err((op, Rule::Exception { function, reason }))
        };
        let mut callbacks: Vec<usize> = Vec::new();
        for function in &self.functions {
            for (op, callee) in &function.callees {
                if self.flow(*op).shape == Shape::LoadFunction {
                    callbacks.push(*callee);
                }
            }
        }
        let named = code.exception_callbacks(entry);
        if let Some(start) = named.first() {
            let own = start.and_then(|start| self.function_at(start));
            let Some(number) = own.filter(|_| named.len() == 1) else {
                return wrong(
                    entry,
                    &self.functions[0],
                    "it names no callback for exceptions, or several",
                );
            };
            let start = self.functions[number].start;
            let function = &self.functions[number];
            let one = match code.global_prototype(start) {
                Some((btf, crate::btf::Shape::Prototype { parameters, .. })) => {
                    let number = |id: &u32| {
                        let shape = btf.resolve(*id).and_then(|id| btf.shape(id));
                        matches!(
                            shape,
                            Ok(crate::btf::Shape::Int { .. } | crate::btf::Shape::Enum { .. })
                        )
                    };
                    parameters.len() == 1 && parameters.iter().all(number)
                }
                _ => false,
            };
            if !one || code.returns_number(start) != Some(true) {
                return wrong(
                    start,
                    function,
                    "a callback for exceptions is global, takes a number and returns one",
                );
            }
            let called = self
                .functions
                .iter()
                .flat_map(|f| &f.callees)
                .find(|(op, callee)| *callee == number && self.flow(*op).shape == Shape::Call);
            if let Some((op, _)) = called {
                return wrong(*op, function, "a callback for exceptions is not called");
            }
            self.functions[number].catches = true;
            callbacks.push(number);
        }
        // What callbacks call is as little allowed to throw.
        let mut next = 0;
        while let Some(number) = callbacks.get(next).copied() {
            next += 1;
            let function = &self.functions[number];
            if function.throws {
                return wrong(
                    function.start,
                    function,
                    "bpf_throw is called in a callback",
                );
            }
            for (_, callee) in &function.callees {
                if !callbacks.contains(callee) {
                    callbacks.push(*callee);
                }
            }
        }
        Ok(())
    }

    fn check_recursion(&self) -> Result<(), Failed> {
        // 0 unseen, 1 open, 2 done; depth first without recursion.
        let mut seen = vec![0u8; self.functions.len()];
        let mut work = vec![(0usize, 0usize)];
        seen[0] = 1;
        while let Some((function, next)) = work.last_mut() {
            let callees = &self.functions[*function].callees;
            let Some((op, callee)) = callees.get(*next).copied() else {
                seen[*function] = 2;
                work.pop();
                continue;
            };
            *next += 1;
            match seen[callee] {
                0 => {
                    seen[callee] = 1;
                    work.push((callee, 0));
                }
                1 => return Err((op, Rule::Recursion)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Effects of callees are effects of their callers.
    fn spread_effects(&mut self) {
        loop {
            let mut changed = false;
            for number in 0..self.functions.len() {
                let spread = self.functions[number]
                    .callees
                    .iter()
                    .any(|(_, c)| self.functions[*c].changes_packet);
                if spread && !self.functions[number].changes_packet {
                    self.functions[number].changes_packet = true;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Registers read later, by a walk against the flow until nothing changes: each operation is seen again only when a
    /// successor's registers grew.
    fn find_live(&mut self, code: &Code, number: usize) {
        let (start, end) = (self.functions[number].start, self.functions[number].end);
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); end - start];
        for op in start..end {
            self.successors(code, op, |next| {
                if let Some(list) = before.get_mut(next.wrapping_sub(start)) {
                    list.push(op as u32);
                }
            });
        }
        let mut open: Vec<u32> = (start as u32..end as u32).collect();
        let mut waiting = vec![true; end - start];
        while let Some(op) = open.pop() {
            let op = op as usize;
            waiting[op - start] = false;
            let flow = *self.flow(op);
            if flow.shape == Shape::Half {
                continue;
            }
            let mut after = 0;
            self.successors(code, op, |next| after |= self.flow(next).live);
            let current = &code.ops[op];
            let arguments = helpers::arguments(current.imm as u32, self.hook, code);
            let (read, written) = uses(current, flow.shape, arguments);
            let live = (after & !written) | read;
            if live == flow.live {
                continue;
            }
            if let Some(flow) = self.flow_mut(op) {
                flow.live = live;
            }
            for previous in &before[op - start] {
                if !std::mem::replace(&mut waiting[*previous as usize - start], true) {
                    open.push(*previous);
                }
            }
        }
    }
}

fn only_with_result(what: &str) -> Rule {
    Rule::Invalid {
        reason: format!("{what} allowed only in functions that return a number"),
    }
}

/// Why an operation is not understood.
pub(super) fn invalid(code: &Code, op: usize) -> Rule {
    let index = code.ops.get(op).map_or(0, |op| op.imm as usize);
    Rule::Invalid {
        reason: code.invalid.get(index).cloned().unwrap_or_default(),
    }
}

/// The functions of a program, its own first.
fn functions(code: &Code, entry: usize) -> Result<Vec<Function>, Failed> {
    // Functions call others of their own object only.
    let unit = code.unit_range(entry);
    let starts = code.functions.iter().map(|f| f.start);
    let mut borders: BTreeSet<usize> = starts.filter(|s| unit.contains(s)).collect();
    borders.extend(code.sections.iter().map(|s| s.start));
    borders.insert(entry);
    // Code without symbols: functions begin where calls go.
    borders.extend(
        code.ops
            .get(unit)
            .unwrap_or_default()
            .iter()
            .filter_map(callee),
    );
    let mut found: Vec<Function> = Vec::new();
    let mut numbers = HashMap::from([(entry, 0)]);
    let mut open = vec![entry];
    // Nothing calls it, and still it is part of the program.
    for start in code.exception_callbacks(entry).into_iter().flatten() {
        numbers.entry(start).or_insert_with(|| {
            open.push(start);
            open.len() - 1
        });
    }
    let mut instructions = 0;
    while let Some(start) = open.get(found.len()).copied() {
        let end = extent(code, &borders, start);
        let mut function = Function {
            start,
            end,
            name: code.function_name(start),
            global: start != entry && code.global_prototype(start).is_some(),
            changes_packet: false,
            tail_calls: false,
            throws: false,
            catches: false,
            callees: Vec::new(),
        };
        instructions += end - start;
        if instructions > INSTRUCTIONS_MAX {
            return Err((start, Rule::TooManyInstructions { instructions }));
        }
        for op in start..end {
            let Some(target) = callee(&code.ops[op]) else {
                continue;
            };
            if target == entry {
                return Err((op, Rule::Recursion));
            }
            if target >= code.ops.len() {
                return Err((op, Rule::CallTarget));
            }
            let number = *numbers.entry(target).or_insert_with(|| {
                open.push(target);
                open.len() - 1
            });
            if number >= FUNCTIONS_MAX {
                return Err((
                    op,
                    Rule::TooManyFunctions {
                        functions: number + 1,
                    },
                ));
            }
            function.callees.push((op, number));
        }
        found.push(function);
    }
    Ok(found)
}

/// End of the function that starts at `start`: the next function or the end of the section.
fn extent(code: &Code, borders: &BTreeSet<usize>, start: usize) -> usize {
    let next = borders.range(start + 1..).next().copied();
    let limit = next.unwrap_or(code.ops.len());
    // The mark behind a section's last operation is not part of it.
    (start..limit)
        .find(|op| code.ops[*op].kind == Kind::SectionEnd)
        .unwrap_or(limit)
}

fn callee(op: &Op) -> Option<usize> {
    match op.kind {
        Kind::Call => Some(op.target()),
        Kind::LoadFunction => Some(op.imm as usize),
        _ => None,
    }
}
