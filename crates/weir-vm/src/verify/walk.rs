//! The walk over all paths: executes operations on abstract states, depth first, within a budget.
//!
//! Owns the order of things: which state is next, what is charged, where a path ends, how a failure becomes a
//! [`Rejection`]. The rules themselves are in `alu`, `access`, `stack`, `branch` and `call`; keeping and comparing
//! states is in `prune`, marking what mattered in `precision`. Invariant: an accepted program has had every path walked
//! or covered.

use std::fmt::Write;
use std::rc::Rc;

use super::facts::Facts;
use super::helpers::Hook;
use super::layout::{self, Layout};
use super::recording::Recording;
use super::rejection::{Birth, InsnLocation, PathStep, Rejection, Rule, Seen, ValueKind};
use super::shape::Shape;
use super::state::{Frame, NOWHERE, Reg, Slot, SlotMasks, State};
use super::{Origin, Verified, VerifyOptions};
use crate::insn::Op;
use crate::machine::Code;
use crate::maps::{Map, MapDefinition, MapKind};
use crate::program::{ProgramKind, XdpAttach};
use crate::signature::Promise;

/// Alternatives that may be pending, as in the kernel.
const PENDING_MAX: usize = 8192;

/// A rule broken at the current operation.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) rule: Rule,
    pub(super) register: Option<u8>,
}

pub(super) type Step<T> = Result<T, Box<Stop>>;

/// Stops at a rule that is not about one register.
#[cold]
pub(super) fn stop<T>(rule: Rule) -> Step<T> {
    Err(Box::new(Stop {
        rule,
        register: None,
    }))
}

/// Stops at a rule about `register`.
#[cold]
pub(super) fn stop_at<T>(register: u8, rule: Rule) -> Step<T> {
    Err(Box::new(Stop {
        rule,
        register: Some(register),
    }))
}

/// One processed operation: the paths walked are a tree of these.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) prev: u32,
    pub(super) op: u32,
    /// Stack slot stored to or filled from, as `frame << 8 | slot`; [`NO_SLOT`] for none.
    pub(super) slot: u16,
    pub(super) callback_exit: bool,
    /// One more than the index in `linked`; 0 for none.
    pub(super) linked: u32,
}

pub(super) const NO_SLOT: u16 = u16::MAX;

/// Where a register with a shared identity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    Reg(u8, u8),
    Slot(u8, u8),
}

/// A kept state: what later states at the same operation are compared with.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) state: State,
    pub(super) op: u32,
    /// Ways on from here not walked to their end.
    pub(super) branches: u32,
    /// Registers, by frame, whose exact number mattered.
    pub(super) precise: [u16; 8],
    /// The same for stack slots.
    pub(super) precise_slots: SlotMasks,
    /// Stack slots that are read later.
    pub(super) read: SlotMasks,
    /// Slots overwritten between the kept state before and this one.
    pub(super) written: SlotMasks,
    pub(super) hits: u32,
    pub(super) misses: u32,
}

/// A map as programs see it: those of the machine, then the definitions inside maps of maps.
#[derive(Debug)]
pub(super) struct MapInfo<'m> {
    pub(super) definition: &'m MapDefinition,
    /// Contents that cannot change any more.
    pub(super) frozen: Option<&'m [u8]>,
    /// Offset of the lock in values that have one.
    pub(super) lock: Option<i64>,
    /// Entry of the inner definition.
    pub(super) inner: Option<u32>,
    /// Whether it is a map of the machine, so that its number means something outside.
    pub(super) live: bool,
}

/// An alternative to be walked.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) state: State,
    pub(super) op: u32,
}

/// What goes on behind an operation.
pub(super) enum Next {
    /// At this operation.
    Go(usize),
    /// The path has ended.
    End,
}

/// One verification.
pub(super) struct Walk<'m> {
    pub(super) ops: &'m [Op],
    pub(super) code: &'m Code,
    pub(super) layout: Layout,
    pub(super) maps: Vec<MapInfo<'m>>,
    pub(super) options: &'m VerifyOptions,
    pub(super) cpus: u32,
    pub(super) egress: bool,
    /// What the program is attached to.
    pub(super) hook: Hook,
    pub(super) program: &'m str,

    pub(super) nodes: Vec<Node>,
    pub(super) linked: Vec<Vec<Where>>,
    pub(super) kept: Vec<Kept>,
    /// Numbers of kept states by operation.
    pub(super) kept_at: Vec<Vec<u32>>,
    pub(super) kept_now: usize,
    pub(super) kept_bytes: u64,
    pub(super) peak: usize,
    pub(super) pending: Vec<Pending>,
    /// See `prune`: the outermost kept state that a loop came back to and that is not finished.
    pub(super) loop_root: Option<u32>,
    pub(super) backedges: Vec<(u32, State)>,
    pub(super) scratch: Vec<(u32, u32)>,

    /// The operation being executed.
    pub(super) at: u32,
    pub(super) state: State,
    pub(super) next_id: u32,
    pub(super) processed: u64,
    pub(super) jumps: u64,
    pub(super) kept_processed: u64,
    pub(super) kept_jumps: u64,
    pub(super) facts: Facts,
    /// What global functions may assume of their arguments.
    pub(super) promised: Vec<(usize, Vec<Promise>)>,
    /// Kernel structs looked for, and their ids.
    pub(super) structs: Vec<(String, Option<u32>)>,
    /// Deepest stack byte used, by function.
    pub(super) stack_used: Vec<u32>,
    /// Global functions called, and whether they were walked.
    pub(super) globals: Vec<(usize, bool)>,
    pub(super) log: String,
    /// All states, if they are wanted.
    pub(super) recording: Option<Recording>,
}

impl<'m> Walk<'m> {
    pub(super) fn new(
        code: &'m Code,
        maps: &'m [Map],
        cpus: u32,
        (program, entry): (&'m str, usize),
        options: &'m VerifyOptions,
    ) -> Result<Walk<'m>, Box<Rejection>> {
        let layout = match Layout::new(code, entry, Hook::of(code.kind(entry))) {
            Ok(layout) => layout,
            Err((op, rule)) => {
                let mut rejection = Rejection::without_place(program, rule);
                rejection.place = place(code, op);
                return Err(Box::new(rejection));
            }
        };
        let hook = Hook::of(code.kind(entry));
        let functions = layout.functions.len();
        let facts = Facts::new(layout.range());
        Ok(Walk {
            ops: &code.ops,
            code,
            egress: matches!(
                code.kind(entry),
                Some(ProgramKind::Xdp {
                    attach: XdpAttach::Devmap,
                    ..
                })
            ),
            layout,
            hook,
            maps: map_infos(maps),
            options,
            cpus,
            program,
            nodes: Vec::new(),
            linked: Vec::new(),
            kept: Vec::new(),
            kept_at: vec![Vec::new(); code.ops.len()],
            kept_now: 0,
            kept_bytes: 0,
            peak: 0,
            pending: Vec::new(),
            loop_root: None,
            backedges: Vec::new(),
            scratch: Vec::new(),
            at: entry as u32,
            state: State::EMPTY,
            next_id: 0,
            processed: 0,
            jumps: 0,
            kept_processed: 0,
            kept_jumps: 0,
            facts,
            promised: Vec::new(),
            structs: Vec::new(),
            stack_used: vec![0; functions],
            globals: Vec::new(),
            log: String::new(),
            recording: None,
        })
    }

    /// Walks the program and every global function it calls.
    pub(super) fn run(mut self) -> Result<(Verified, Option<Recording>), Box<Rejection>> {
        let context = Reg::pointer(ValueKind::Context, Birth::Entry, self.at);
        let first = first_state(0, [Some(context), None, None, None, None]);
        let result = self
            .walk_function(0, first)
            .map(|()| self.add_exception_callback())
            .and_then(|()| self.walk_globals())
            .and_then(|()| self.check_stack());
        match result {
            Ok(stack_bytes) => {
                let verified = Verified {
                    processed: self.processed,
                    states: self.kept.len(),
                    peak_states: self.peak,
                    stack_bytes,
                    facts: self.facts,
                    log: self.log,
                    origin: Origin::default(),
                };
                Ok((verified, self.recording))
            }
            Err(stop) => Err(Box::new(self.rejection(*stop))),
        }
    }

    /// The callback for exceptions is verified as a global function is.
    fn add_exception_callback(&mut self) {
        let catches = self.layout.functions.iter().position(|f| f.catches);
        if let Some(function) = catches.filter(|c| !self.globals.iter().any(|(f, _)| f == c)) {
            self.globals.push((function, false));
        }
    }

    fn walk_globals(&mut self) -> Step<()> {
        while let Some(entry) = self.globals.iter_mut().find(|g| !g.1) {
            entry.1 = true;
            let function = entry.0;
            self.at = self.layout.functions[function].start as u32;
            let arguments = self.global_arguments(function)?;
            self.walk_function(function, first_state(function, arguments))?;
        }
        Ok(())
    }

    fn walk_function(&mut self, function: usize, first: State) -> Step<()> {
        self.state = first;
        for kept in &mut self.kept_at {
            kept.clear();
        }
        self.pending.clear();
        self.loop_root = None;
        self.backedges.clear();
        self.kept_now = 0;
        self.kept_bytes = 0;
        for kept in &mut self.kept {
            // Of functions walked before, which are done with.
            kept.state.frames = Vec::new();
        }
        let start = self.layout.functions[function].start;
        let mut at = Some(start);
        while let Some(op) = at {
            self.walk_path(op)?;
            self.path_ended();
            at = self.pending.pop().map(|p| {
                self.state = p.state;
                p.op as usize
            });
        }
        Ok(())
    }

    /// Executes from `op` on until the path ends.
    fn walk_path(&mut self, mut op: usize) -> Step<()> {
        loop {
            self.at = op as u32;
            self.processed += 1;
            if self.processed > self.options.budget {
                return stop(Rule::Budget {
                    processed: self.processed - 1,
                });
            }
            let flow = *self.layout.flow(op);
            if flow.prune && self.covered(op)? {
                if self.options.log {
                    let _ = writeln!(self.log, "{}: covered", self.slot_of(op));
                }
                return Ok(());
            }
            if flow.joined {
                self.state.noted += 1;
            }
            self.nodes.push(Node {
                prev: self.state.node,
                op: op as u32,
                slot: NO_SLOT,
                callback_exit: false,
                linked: 0,
            });
            self.state.node = (self.nodes.len() - 1) as u32;
            if let Some(facts) = self.facts.op_mut(op) {
                facts.reached = true;
            }
            if self.options.log {
                self.log_state(op);
            }
            if let Some(recording) = &mut self.recording {
                recording.note(op, flow.live, &self.state);
            }
            match self.execute(op, flow.shape)? {
                Next::Go(next) => op = next,
                Next::End => return Ok(()),
            }
        }
    }

    fn execute(&mut self, at: usize, shape: Shape) -> Step<Next> {
        let op = self.ops[at];
        if op.reserved && shape != Shape::Invalid {
            return stop(Rule::ReservedField);
        }
        match shape {
            Shape::Alu { op: alu, wide, imm } => self.alu(&op, alu, wide, imm)?,
            Shape::Bytes => self.bytes(&op)?,
            Shape::SignMove { bits, wide } => self.sign_move(&op, bits, wide)?,
            Shape::LoadImm => {
                self.load_imm(&op);
                return Ok(Next::Go(at + 2));
            }
            Shape::LoadFunction => {
                let mut reg = Reg::pointer(ValueKind::Function, Birth::Constant, self.at);
                reg.map = op.imm as u32;
                self.state.set(op.dst, reg);
                return Ok(Next::Go(at + 2));
            }
            Shape::Load { bytes, signed } => self.load(&op, bytes, signed)?,
            Shape::Store { bytes } => self.store(&op, bytes, Some(op.src))?,
            Shape::StoreImm { bytes } => self.store(&op, bytes, None)?,
            Shape::Atomic { bytes } => self.atomic(&op, bytes)?,
            Shape::PacketLoad { indexed } => self.packet_load(&op, indexed)?,
            Shape::Jump => {
                self.jumps += 1;
                return Ok(Next::Go(op.target()));
            }
            Shape::MayGoto => {
                self.jumps += 1;
                return self.may_goto(&op);
            }
            Shape::Branch { cond, wide, imm } => {
                self.jumps += 1;
                return self.branch(&op, cond, wide, imm);
            }
            Shape::Helper => {
                self.jumps += 1;
                return self.helper(&op);
            }
            Shape::Call => {
                self.jumps += 1;
                return self.call(&op);
            }
            Shape::CallRegister => return stop_at(op.dst, Rule::IndirectCall),
            Shape::Exit => {
                self.jumps += 1;
                return self.exit();
            }
            Shape::Half | Shape::End => return stop(Rule::FallsOffEnd),
            Shape::Invalid => return stop(layout::invalid(self.code, self.at as usize)),
            Shape::External => {
                let name = self.code.externals.get(op.imm as usize);
                return self.unknown(name.map_or("", String::as_str));
            }
        }
        Ok(Next::Go(at + 1))
    }

    /// Whether a loop through operation `op`, which would end it at some time, still would: an iterator that is used up does not.
    pub(super) fn may_converge(&self, op: usize) -> bool {
        match self.layout.flow(op).shape {
            Shape::Helper => self.iterator_is_active(),
            _ => true,
        }
    }

    fn load_imm(&mut self, op: &Op) {
        let mut reg = Reg::constant(op.imm, Birth::Constant, self.at);
        if let Some(pointer) = crate::memory::linked_pointer(op) {
            reg = match pointer {
                crate::memory::Linked::Map(map) => {
                    let mut reg = Reg::pointer(ValueKind::Map, Birth::Constant, self.at);
                    reg.map = map as u32;
                    reg
                }
                crate::memory::Linked::Value(map, offset) => {
                    let mut reg = Reg::pointer(ValueKind::MapValue, Birth::Constant, self.at);
                    reg.map = map as u32;
                    reg.off = offset;
                    reg
                }
            };
        }
        self.state.set(op.dst, reg);
    }

    /// Puts a copy of the state aside, to go on at `op` later.
    pub(super) fn push(&mut self, state: State, op: usize) -> Step<()> {
        if let Some(parent) = self.kept.get_mut(state.parent as usize) {
            parent.branches += 1;
        }
        self.pending.push(Pending {
            state,
            op: op as u32,
        });
        if self.pending.len() > PENDING_MAX {
            return stop(Rule::PendingBranches {
                pending: self.pending.len(),
            });
        }
        Ok(())
    }

    pub(super) fn new_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn map(&self, map: u32) -> Option<&MapInfo<'m>> {
        self.maps.get(map as usize)
    }

    pub(super) fn map_name(&self, map: u32) -> String {
        self.map(map)
            .map_or_else(String::new, |m| m.definition.name.clone())
    }

    pub(super) fn node_mut(&mut self) -> Option<&mut Node> {
        self.nodes.get_mut(self.state.node as usize)
    }

    pub(super) fn rejection(mut self, stop: Stop) -> Rejection {
        let at = self.at as usize;
        if self.state.frames.is_empty() {
            self.state = first_state(0, [None; 5]);
        }
        let register = stop.register;
        let log = std::mem::take(&mut self.log);
        Rejection {
            program: self.program.to_owned(),
            rule: stop.rule,
            place: place(self.code, at),
            register,
            history: register.map(|r| self.state.reg(r).history()),
            path: self.path(),
            calls: self
                .state
                .frames
                .iter()
                .filter(|f| f.call != NOWHERE)
                .map(|f| f.call as usize)
                .collect(),
            state: self.seen(),
            processed: self.processed,
            log,
        }
    }

    /// The branches taken on the way to the current operation.
    fn path(&self) -> Vec<PathStep> {
        let mut steps = Vec::new();
        let mut next = self.at;
        let mut at = self.state.node;
        while let Some(node) = self.nodes.get(at as usize) {
            let op = node.op as usize;
            if matches!(self.layout.flow(op).shape, Shape::Branch { .. }) && next != node.op {
                let taken = next != node.op + 1;
                steps.push(PathStep { op, taken });
            }
            next = node.op;
            at = node.prev;
        }
        steps.reverse();
        steps
    }

    fn seen(&self) -> Vec<Seen> {
        let frame = self.state.frame();
        let regs = frame
            .regs
            .iter()
            .enumerate()
            .filter(|(_, r)| r.kind != ValueKind::Uninitialised)
            .map(|(i, r)| self.see(format!("r{i}"), r));
        let slots = frame
            .stack
            .iter()
            .enumerate()
            .filter(|(_, s)| s.is_spill())
            .map(|(i, s)| self.see(format!("fp-{}", (i + 1) * 8), &s.reg));
        regs.chain(slots).collect()
    }

    fn see(&self, name: String, reg: &Reg) -> Seen {
        Seen {
            name,
            kind: reg.kind,
            text: self.show(reg),
            history: reg.history(),
        }
    }

    fn log_state(&mut self, op: usize) {
        let frame = self.state.frame();
        let mut line = format!("{} frame{}:", self.slot_of(op), self.state.depth());
        for (i, reg) in frame.regs.iter().enumerate().take(10) {
            if reg.kind != ValueKind::Uninitialised {
                let _ = write!(line, " r{i}={}", self.show(reg));
            }
        }
        for (i, slot) in frame.stack.iter().enumerate() {
            if slot.is_spill() {
                let _ = write!(line, " fp-{}={}", (i + 1) * 8, self.show(&slot.reg));
            }
        }
        self.log.push_str(&line);
        self.log.push('\n');
    }

    pub(super) fn slot_of(&self, op: usize) -> usize {
        op - self.code.section_start(op)
    }

    /// A register in one line.
    pub(super) fn show(&self, reg: &Reg) -> String {
        let mut text = String::new();
        if reg.is_number() {
            if let Some(value) = reg.num.value() {
                return (value as i64).to_string();
            }
            text.push_str("scalar(");
        } else {
            text.push_str(reg.kind.kernel_name());
            if reg.or_null {
                text.push_str("_or_null");
            }
            text.push('(');
            if reg.kind == ValueKind::Object {
                let _ = write!(text, "struct={},", self.object_name(reg));
            }
            if let Some(map) = self.map_name_of(reg) {
                let _ = write!(text, "map={map},");
            }
            if reg.kind == ValueKind::Stack {
                let _ = write!(text, "frame={},", reg.frame);
            }
            if reg.off != 0 {
                let _ = write!(text, "off={},", reg.off);
            }
            if matches!(reg.kind, ValueKind::Packet | ValueKind::PacketMeta) {
                let _ = write!(text, "r={},", reg.range);
            }
        }
        if reg.id != 0 {
            let _ = write!(text, "id={},", reg.id & !super::state::MARKS);
            if reg.id & super::state::MARKS != 0 {
                let _ = write!(text, "added={},", reg.off);
            }
        }
        if reg.num.value() != Some(0) && reg.kind != ValueKind::Uninitialised {
            let n = &reg.num;
            if n.umin != 0 || n.umax != u64::MAX {
                let _ = write!(text, "u=[{},{}],", n.umin, n.umax);
            }
            if (n.smin, n.smax) != (i64::MIN, i64::MAX)
                && (n.smin as u64, n.smax as u64) != (n.umin, n.umax)
            {
                let _ = write!(text, "s=[{},{}],", n.smin, n.smax);
            }
            if n.tnum.mask != u64::MAX && n.umax != u64::MAX {
                let _ = write!(text, "bits=({:#x};{:#x}),", n.tnum.value, n.tnum.mask);
            }
        }
        if text.ends_with(',') {
            text.pop();
        }
        text.push(')');
        text
    }
}

/// The state a function begins with.
pub(super) fn first_state(function: usize, arguments: [Option<Reg>; 5]) -> State {
    State {
        frames: vec![Rc::new(new_frame(0, function, NOWHERE, arguments))],
        ..State::EMPTY
    }
}

/// A frame whose r1 to r5 are `arguments`.
pub(super) fn new_frame(
    depth: usize,
    function: usize,
    call: u32,
    arguments: [Option<Reg>; 5],
) -> Frame {
    let nothing = Reg::nothing(Birth::Nothing, 0);
    let mut regs = [nothing; 11];
    for (reg, argument) in regs.iter_mut().skip(1).zip(arguments) {
        *reg = argument.unwrap_or(nothing);
    }
    regs[10] = Reg::pointer(ValueKind::Stack, Birth::Entry, 0);
    regs[10].frame = depth as u8;
    Frame {
        regs,
        stack: Rc::new(Vec::<Slot>::new()),
        call,
        function: function as u32,
        callback: None,
        callback_depth: 0,
    }
}

/// Where an operation is, for people.
pub(super) fn place(code: &Code, op: usize) -> InsnLocation {
    InsnLocation {
        op,
        function: code.function_name(op),
        section: code.section_name(op).to_owned(),
        slot: op - code.section_start(op),
    }
}

fn map_infos<'m>(maps: &'m [Map]) -> Vec<MapInfo<'m>> {
    let mut infos: Vec<MapInfo<'_>> = Vec::with_capacity(maps.len());
    for map in maps {
        infos.push(MapInfo {
            definition: map.definition(),
            frozen: frozen(map),
            lock: lock_offset(map.definition()),
            inner: None,
            live: true,
        });
    }
    let mut at = 0;
    while at < infos.len() {
        let definition: &MapDefinition = infos[at].definition;
        if let Some(inner) = definition.inner.as_deref() {
            infos[at].inner = Some(infos.len() as u32);
            infos.push(MapInfo {
                definition: inner,
                frozen: None,
                lock: lock_offset(inner),
                inner: None,
                live: false,
            });
        }
        at += 1;
    }
    infos
}

/// Offset of the lock in values that have one.
fn lock_offset(definition: &MapDefinition) -> Option<i64> {
    definition
        .has_spin_lock
        .then_some(i64::from(definition.lock_at))
}

/// Contents of constants: the loader freezes read-only data sections.
fn frozen(map: &Map) -> Option<&[u8]> {
    let definition = map.definition();
    let constant = definition.kind == MapKind::Array
        && definition.max_entries == 1
        && !map.writable_by_programs()
        && (definition.name.contains(".rodata") || definition.name.contains(".kconfig"));
    constant.then(|| map.value(&[0; 4])).flatten()
}
