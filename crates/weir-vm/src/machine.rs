//! A loaded object: linked code, live maps, and the runs over them.
//!
//! Owns maps and totals across runs; a single run is in `interp`. Invariant: between runs no program holds a pointer,
//! so maps may be changed freely from outside. A failed run leaves map contents as far as it got, and its reserved
//! ring buffer records discarded.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::btf::{Btf, Shape};
use crate::btf_ext::SourceLine;
use crate::cost::Cost;
use crate::frame::Frame;
use crate::insn::{self, Fixup, LDDW, Op};
use crate::interp::{Env, Fault, FaultKind, Redirect, Run, Scratch, Step};
use crate::jit::{Checked, Native};
use crate::maps::{Map, MapDefinition, MapKind};
use crate::memory::{
    MAPS_MAX, Memory, STACK_TOTAL, context_address, map_handle, next_generation, raw_address,
    value_address,
};
use crate::object::LoadError;
use crate::program::ProgramKind;
use crate::routes::Routes;
use crate::signature::Signature;
use crate::skb::{Sent, Skb, SkbFields};
use crate::verify::{Origin, Watch};

fn next_edition() -> u64 {
    static EDITIONS: AtomicU64 = AtomicU64::new(0);
    EDITIONS.fetch_add(1, Ordering::Relaxed)
}

/// Linked code.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) ops: Vec<Op>,
    pub(crate) sections: Vec<Label>,
    /// Sorted by start.
    pub(crate) functions: Vec<Function>,
    /// Programs this engine runs.
    pub(crate) programs: Vec<Label>,
    /// Start of each program, by program number.
    pub(crate) entries: Vec<usize>,
    /// Kind of each program, by program number.
    pub(crate) kinds: Vec<ProgramKind>,
    pub(crate) externals: Vec<String>,
    /// Why operations are invalid.
    pub(crate) invalid: Vec<String>,
    /// What the kernel functions that are called take and return, by their number.
    pub(crate) signatures: BTreeMap<u32, Signature>,
    /// Source by operation, sorted by start; strings are in the object's types.
    pub(crate) lines: Vec<Line>,
    /// The objects the code comes from, by their first operations; none of bare instructions.
    pub(crate) units: Vec<Unit>,
}

/// What the code of one object has in common.
#[derive(Debug)]
pub(crate) struct Unit {
    /// First operation.
    pub(crate) start: usize,
    /// Types of the object.
    pub(crate) btf: Option<Arc<Btf>>,
    /// Types of the kernel that it is relocated against.
    pub(crate) kernel: Option<Arc<Btf>>,
    /// The license keeps its programs from helpers for GPL-compatible ones.
    pub(crate) restricted: bool,
}

/// A function and what the compiler says about it.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) start: usize,
    pub(crate) name: String,
    /// Not `static`: the kernel checks it by itself, without its callers.
    pub(crate) global: bool,
    /// Id of the `FUNC` type in the object's BTF.
    pub(crate) type_id: Option<u32>,
}

/// Source of the operations from `start` on; `file` and `text` are offsets into the strings of the BTF.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) start: usize,
    pub(crate) file: u32,
    pub(crate) text: u32,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// Where an operation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLocation {
    /// Section of the object.
    pub section: String,
    /// Slot from the start of the section, as `llvm-objdump -d` counts.
    pub slot: usize,
    /// Function; the section's name where the object has no symbol.
    pub function: String,
    /// Slot from the start of the function.
    pub function_slot: usize,
    /// Source line, where the object has type information with lines.
    pub source: Option<SourceLine>,
}

/// A name for operations from `start` on.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) start: usize,
    pub(crate) name: String,
}

impl Code {
    /// First operation of the section that `op` is in.
    pub(crate) fn section_start(&self, op: usize) -> usize {
        self.section(op).map_or(0, |s| s.start)
    }

    /// Name of the section that `op` is in.
    pub(crate) fn section_name(&self, op: usize) -> &str {
        self.section(op).map_or("", |s| s.name.as_str())
    }

    /// Name of the function that `op` is in; without one the section's.
    pub(crate) fn function_name(&self, op: usize) -> String {
        let start = self.section_start(op);
        let function = self.functions.iter().rev().find(|f| f.start <= op);
        let name = function
            .filter(|f| f.start >= start)
            .map_or_else(|| self.section_name(op), |f| &f.name);
        name.to_owned()
    }

    /// Id of the type of the function at `start` in its object.
    pub(crate) fn function_type(&self, start: usize) -> Option<u32> {
        self.functions.iter().find(|f| f.start == start)?.type_id
    }

    /// Whether the function at `start` returns a number, as far as its object says.
    pub(crate) fn returns_number(&self, start: usize) -> Option<bool> {
        let btf = self.btf(start)?;
        let Shape::Function { prototype, .. } = btf.shape(self.function_type(start)?).ok()? else {
            return None;
        };
        let Shape::Prototype { returns, .. } = btf.shape(*prototype).ok()? else {
            return None;
        };
        let shape = btf.resolve(*returns).and_then(|id| btf.shape(id)).ok()?;
        Some(matches!(shape, Shape::Int { .. } | Shape::Enum { .. }))
    }

    /// The functions of the object that the program at `entry` names for its exceptions, where there are such.
    pub(crate) fn exception_callbacks(&self, entry: usize) -> Vec<Option<usize>> {
        let types = self.btf(entry).zip(self.function_type(entry));
        let Some((btf, program)) = types else {
            return Vec::new();
        };
        let unit = self.unit_range(entry);
        let named = |name: &str| {
            let own = |f: &&Function| {
                unit.contains(&f.start) && f.type_id.is_some_and(|id| btf.name(id) == name)
            };
            self.functions.iter().find(own).map(|f| f.start)
        };
        btf.tags(program, -1)
            .into_iter()
            .filter_map(|tag| tag.strip_prefix("exception_callback:"))
            .map(named)
            .collect()
    }

    /// The prototype of the function at `start`, if it is verified by itself: global, and the compiler says what it takes.
    pub(crate) fn global_prototype(&self, start: usize) -> Option<(&Btf, &Shape)> {
        let function = self.functions.iter().find(|f| f.start == start)?;
        let btf = self.btf(start)?;
        match btf.shape(function.type_id?).ok()? {
            Shape::Function {
                prototype,
                linkage: 1,
            } if function.global => Some((btf, btf.shape(*prototype).ok()?)),
            _ => None,
        }
    }

    /// Kind of the program that starts at `entry`.
    pub(crate) fn kind(&self, entry: usize) -> Option<&ProgramKind> {
        let number = self.entries.iter().position(|e| *e == entry)?;
        self.kinds.get(number)
    }

    /// Types of the object that `op` comes from.
    pub(crate) fn btf(&self, op: usize) -> Option<&Btf> {
        self.units.get(self.unit(op)?)?.btf.as_deref()
    }

    /// Types of the kernel for the object that `op` comes from; those that it declares itself where none were given.
    pub(crate) fn kernel_types(&self, op: usize) -> Option<&Btf> {
        let unit = self.units.get(self.unit(op)?)?;
        unit.kernel.as_deref().or(unit.btf.as_deref())
    }

    /// Whether the license of the object that `op` comes from keeps it from helpers for GPL-compatible programs.
    pub(crate) fn is_restricted(&self, op: usize) -> bool {
        let unit = self.unit(op).and_then(|unit| self.units.get(unit));
        unit.is_some_and(|u| u.restricted)
    }

    /// The operations of the object that `op` comes from.
    pub(crate) fn unit_range(&self, op: usize) -> Range<usize> {
        let unit = self.unit(op);
        let start = |unit: usize| self.units.get(unit).map(|u| u.start);
        let first = unit.and_then(start).unwrap_or(0);
        let next = unit.and_then(|unit| start(unit + 1));
        first..next.unwrap_or(self.ops.len())
    }

    fn unit(&self, op: usize) -> Option<usize> {
        self.units.partition_point(|u| u.start <= op).checked_sub(1)
    }

    fn section(&self, op: usize) -> Option<&Label> {
        self.sections.iter().rev().find(|s| s.start <= op)
    }
}

/// A program ready to run.
#[derive(Debug)]
pub struct Machine {
    code: Code,
    maps: Vec<Map>,
    cpus: u32,
    entry: usize,
    /// Number of the program at `entry`.
    program: usize,
    /// Where exceptions of that program go.
    catches: Option<usize>,
    stack: Box<[u8; STACK_TOTAL]>,
    blank: u8,
    scratch: Scratch,
    generation: u32,
    epoch: u64,
    executed: u64,
    redirect: Option<Redirect>,
    /// Native code of verified programs.
    native: Option<Native>,
    /// No other machine has it, nor has this one with other constants.
    edition: u64,
    /// The maps were lent out since native code last ran.
    lent: bool,
}

impl Machine {
    /// A machine of bare instructions, without maps, for [`Machine::run_raw`].
    ///
    /// # Errors
    /// [`LoadError::Code`] for what is no RFC 9669 instruction.
    pub fn from_instructions(code: &[u8]) -> Result<Machine, LoadError> {
        Machine::from_program(code, Vec::new(), 1)
    }

    /// A machine of bare instructions and maps, for `cpus` CPUs; its one program is called `code`.
    ///
    /// The instructions name maps as those handed to the kernel do, by 16-byte loads with source 1 (the map) or 2 (an
    /// address in the value of an array of one element), but by their index in `maps` instead of a file descriptor.
    ///
    /// # Errors
    /// [`LoadError`] for what is no RFC 9669 instruction, for maps the kernel would refuse, and for loads that name
    /// no map or no value.
    pub fn from_program(
        code: &[u8],
        maps: Vec<MapDefinition>,
        cpus: u32,
    ) -> Result<Machine, LoadError> {
        Machine::from_program_of(ProgramKind::XDP, code, maps, cpus)
    }

    /// As [`Machine::from_program`], for a program of another kind than XDP.
    ///
    /// # Errors
    /// As [`Machine::from_program`].
    pub fn from_program_of(
        kind: ProgramKind,
        code: &[u8],
        maps: Vec<MapDefinition>,
        cpus: u32,
    ) -> Result<Machine, LoadError> {
        let failed = |error| LoadError::Code {
            section: "code".to_owned(),
            error,
        };
        if maps.len() > MAPS_MAX {
            return Err(LoadError::TooManyMaps);
        }
        let insns = insn::split(code).map_err(failed)?;
        let reference = |slot: usize| {
            let load = insns.get(slot).filter(|i| i.opcode == LDDW)?;
            let offset = u64::from(insns.get(slot + 1)?.imm as u32);
            let index = usize::try_from(load.imm).ok().filter(|i| *i < maps.len())?;
            match load.src {
                1 => Some(Fixup::Value(map_handle(index))),
                2 => {
                    // Only an array of one element has an address before the program runs.
                    let map = maps.get(index)?;
                    let inside = offset < u64::from(map.value_size);
                    let single = map.kind == MapKind::Array && map.max_entries == 1;
                    let address = value_address(index).wrapping_add(offset);
                    (inside && single).then_some(Fixup::Value(address))
                }
                _ => None,
            }
        };
        let ops = insn::decode(&insns, 0, reference, Err).map_err(failed)?;
        let maps = maps
            .into_iter()
            .map(|definition| Map::new(definition, cpus))
            .collect::<Result<Vec<_>, _>>()?;
        let label = || Label {
            start: 0,
            name: "code".to_owned(),
        };
        let code = Code {
            ops,
            sections: vec![label()],
            programs: vec![label()],
            entries: vec![0],
            kinds: vec![kind],
            ..Code::default()
        };
        Ok(Machine::new(code, maps, cpus))
    }

    pub(crate) fn new(code: Code, maps: Vec<Map>, cpus: u32) -> Machine {
        Machine {
            code,
            maps,
            cpus,
            entry: 0,
            program: 0,
            catches: None,
            stack: Box::new([0; STACK_TOTAL]),
            blank: 0,
            scratch: Scratch::default(),
            generation: 0,
            epoch: 0,
            executed: 0,
            redirect: None,
            native: None,
            edition: next_edition(),
            lent: false,
        }
    }

    /// Makes another program of the object the one that runs.
    ///
    /// # Errors
    /// [`LoadError::NoProgram`].
    pub fn select(&mut self, program: &str) -> Result<(), LoadError> {
        let (number, entry) = self.program(program)?;
        self.program = number as usize;
        self.entry = entry;
        let named = self.code.exception_callbacks(entry);
        self.catches = named.first().copied().flatten();
        self.redirect = None;
        if let Some(native) = &mut self.native {
            native.select(self.program);
        }
        Ok(())
    }

    /// Kind of the program that runs.
    pub fn program_kind(&self) -> &ProgramKind {
        const XDP: &ProgramKind = &ProgramKind::XDP;
        let index = self.code.entries.iter().position(|e| *e == self.entry);
        index.and_then(|i| self.code.kinds.get(i)).unwrap_or(XDP)
    }

    /// The type information of the object that the program that runs comes from, if it has any.
    pub fn btf(&self) -> Option<&Btf> {
        self.code.btf(self.entry)
    }

    /// Where an operation stands; operations are numbered as in [`Fault::op`].
    pub fn place(&self, op: usize) -> CodeLocation {
        let section = self.code.sections.iter().rev().find(|s| s.start <= op);
        let start = section.map_or(0, |s| s.start);
        let function = self.code.functions.iter().rev().find(|f| f.start <= op);
        let function = function
            .map(|f| (f.start, &f.name))
            .filter(|(at, _)| *at >= start);
        let section_name = section.map_or_else(String::new, |s| s.name.clone());
        let (first, function) =
            function.map_or_else(|| (start, section_name.clone()), |(at, n)| (at, n.clone()));
        CodeLocation {
            section: section_name,
            slot: op - start,
            function,
            function_slot: op - first,
            source: self.source_line(op),
        }
    }

    /// The source line an operation was compiled from; nothing without line information.
    pub fn source_line(&self, op: usize) -> Option<SourceLine> {
        let after = self.code.lines.partition_point(|l| l.start <= op);
        let line = self.code.lines.get(after.checked_sub(1)?)?;
        let section = self.code.sections.iter().rev().find(|s| s.start <= op)?;
        if line.start < section.start {
            return None;
        }
        let btf = self.code.btf(line.start)?;
        Some(SourceLine {
            file: btf.string(line.file).to_owned(),
            line: line.line,
            column: line.column,
            text: btf.string(line.text).trim().to_owned(),
        })
    }

    /// As the source line's text, with the white space before it, which columns count.
    pub(crate) fn raw_source_text(&self, op: usize) -> Option<&str> {
        let after = self.code.lines.partition_point(|l| l.start <= op);
        let line = self.code.lines.get(after.checked_sub(1)?)?;
        Some(self.code.btf(line.start)?.string(line.text))
    }

    /// The texts of all source lines there is code of.
    pub(crate) fn source_texts(&self) -> impl Iterator<Item = &str> {
        let lines = self.code.lines.iter();
        lines.filter_map(|l| Some(self.code.btf(l.start)?.string(l.text)))
    }

    /// Runs the program over a frame and yields its verdict (r0, the low 32 bits as the kernel takes it).
    ///
    /// # Errors
    /// [`Fault`] when the program does what the kernel's verifier would have refused, or uses up the budget.
    #[inline]
    pub fn run_xdp(&mut self, frame: &mut Frame, env: &Env) -> Result<u32, Fault> {
        if let Some(native) = &mut self.native
            && !self.lent
            && env.cpu < self.cpus
            && let Some(verdict) = native.execute_alone(frame, env)
        {
            return Ok(verdict as u32);
        }
        self.run_xdp_otherwise(frame, env)
    }

    /// With helpers of the host, or interpreted.
    #[inline(never)]
    fn run_xdp_otherwise(&mut self, frame: &mut Frame, env: &Env) -> Result<u32, Fault> {
        if self.native_fits() {
            return self.run_native(frame, env);
        }
        let context = [env.ingress_ifindex, env.rx_queue, env.egress_ifindex];
        let r1 = context_address();
        let verdict = self.run(env, (Some(frame), None), &mut [], context, (r1, 0), None)?;
        Ok(verdict as u32)
    }

    /// Runs a tc program over a socket buffer and yields its verdict, a `TC_ACT_` number as the kernel takes it.
    ///
    /// # Errors
    /// As [`Machine::run_xdp`].
    pub fn run_tc(&mut self, skb: &mut Skb, env: &Env) -> Result<u32, Fault> {
        let Skb { frame, fields } = skb;
        let packet = (Some(frame), Some(fields));
        let verdict = self.run(env, packet, &mut [], [0; 3], (context_address(), 0), None)?;
        Ok(verdict as u32)
    }

    /// Runs the program with r1 pointing at `mem` and r2 holding its length; yields r0.
    ///
    /// # Errors
    /// As [`Machine::run_xdp`].
    pub fn run_raw(&mut self, mem: &mut [u8]) -> Result<u64, Fault> {
        self.run_raw_with(mem, &Env::default())
    }

    /// As [`Machine::run_raw`] with chosen clock, seed and budget.
    ///
    /// # Errors
    /// As [`Machine::run_xdp`].
    pub fn run_raw_with(&mut self, mem: &mut [u8], env: &Env) -> Result<u64, Fault> {
        let len = mem.len() as u64;
        self.run(env, (None, None), mem, [0; 3], (raw_address(), len), None)
    }

    /// As [`Machine::run_xdp`] in checked native code of this machine.
    pub(crate) fn run_xdp_checked(
        &mut self,
        frame: &mut Frame,
        env: &Env,
        code: &Checked,
    ) -> Result<u32, Fault> {
        let context = [env.ingress_ifindex, env.rx_queue, env.egress_ifindex];
        let r1 = context_address();
        let verdict = self.run(
            env,
            (Some(frame), None),
            &mut [],
            context,
            (r1, 0),
            Some(code),
        )?;
        Ok(verdict as u32)
    }

    /// As [`Machine::run_raw_with`] in checked native code of this machine.
    pub(crate) fn run_raw_checked(
        &mut self,
        mem: &mut [u8],
        env: &Env,
        code: &Checked,
    ) -> Result<u64, Fault> {
        let len = mem.len() as u64;
        self.run(
            env,
            (None, None),
            mem,
            [0; 3],
            (raw_address(), len),
            Some(code),
        )
    }

    pub(crate) fn watching(&self) -> Option<&Watch> {
        self.scratch.watch.as_deref()
    }

    /// Begins or ends comparing interpreted runs; yields what compared them until now.
    pub(crate) fn set_watch(&mut self, watch: Option<Box<Watch>>) -> Option<Box<Watch>> {
        // Only the interpreter can be watched.
        if watch.is_some() {
            self.native = None;
        }
        std::mem::replace(&mut self.scratch.watch, watch)
    }

    pub(crate) fn cost(&mut self) -> Option<&mut Cost> {
        self.scratch.cost.as_deref_mut()
    }

    pub(crate) fn set_cost(&mut self, cost: Option<Box<Cost>>) {
        // Only the interpreter can count.
        self.native = None;
        self.scratch.cost = cost;
    }

    pub(crate) fn ops(&self) -> &[Op] {
        &self.code.ops
    }

    /// What a verdict of the verifier holds for.
    pub(crate) fn origin(&self, entry: usize) -> Origin {
        let program = self.code.entries.iter().position(|e| *e == entry);
        Origin {
            program: program.unwrap_or(usize::MAX),
            edition: self.edition,
            maps: self.maps.iter().map(Map::identity).collect(),
        }
    }

    pub(crate) fn set_native(&mut self, native: Option<Native>) {
        self.native = native;
        self.redirect = None;
        if let Some(native) = &mut self.native {
            native.select(self.program);
        }
    }

    pub(crate) fn native(&self) -> Option<&Native> {
        self.native.as_ref()
    }

    /// Number of the program that runs.
    pub(crate) fn selected(&self) -> usize {
        self.program
    }

    /// Whether there is native code of the program that runs, and it fits the maps as they are.
    fn native_fits(&mut self) -> bool {
        let Some(native) = &self.native else {
            return false;
        };
        if self.lent && !native.fits(&self.maps) {
            // Maps were exchanged: the code points into others.
            self.native = None;
            return false;
        }
        self.lent = false;
        native.has(self.program)
    }

    fn run_native(&mut self, frame: &mut Frame, env: &Env) -> Result<u32, Fault> {
        if env.cpu >= self.cpus {
            return Err(self.fault(self.entry, self.no_cpu(env)));
        }
        let Some(native) = &mut self.native else {
            return Err(self.fault(self.entry, FaultKind::Fallthrough));
        };
        if let Some(verdict) = native.execute_alone(frame, env) {
            return Ok(verdict as u32);
        }
        self.epoch += 1;
        let memory = Memory {
            stack: &mut self.stack,
            blank: self.blank,
            depth: 0,
            frame: Some(frame),
            generation: 0,
            raw: &mut [],
            maps: &mut self.maps,
            context: [env.ingress_ifindex, env.rx_queue, env.egress_ifindex],
            skb: None,
            host: None,
        };
        let mut run = Run::new(
            &self.code.ops,
            (&self.code.externals, &self.code.invalid),
            &self.code.entries,
            memory,
            env,
            self.epoch,
            &mut self.scratch,
        );
        let result = native.execute(&mut run);
        let at = run.fault_at.unwrap_or(self.entry);
        let open = run.open_records;
        self.redirect = run.redirect.take();
        self.finish(result, at, open).map(|verdict| verdict as u32)
    }

    /// The map called `name`; data sections are maps of one value under their section's name.
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.maps.iter().find(|m| m.name() == name)
    }

    /// As [`Machine::map`], to change.
    pub fn map_mut(&mut self, name: &str) -> Option<&mut Map> {
        let map = self.maps.iter_mut().find(|m| m.name() == name)?;
        self.lent = true;
        if !map.writable_by_programs() {
            // The verifier takes constants for granted.
            self.edition = next_edition();
            self.native = None;
        }
        Some(map)
    }

    /// Names of all maps.
    pub fn map_names(&self) -> impl Iterator<Item = &str> {
        self.maps.iter().map(Map::name)
    }

    /// Makes slot `index` of a program array hold a program of this object.
    ///
    /// # Errors
    /// [`LoadError::Reference`] when `map` is no program array or the index is outside, [`LoadError::NoProgram`].
    pub fn set_tail_call(&mut self, map: &str, index: u32, program: &str) -> Result<(), LoadError> {
        let (number, _) = self.program(program)?;
        let wrong = |reason: String| LoadError::Reference {
            map: map.to_owned(),
            reason,
        };
        // An array takes programs of one kind, as in the kernel.
        let kind = |number: u32| self.code.kinds.get(number as usize);
        let other = self.map(map).and_then(|m| {
            let held = m.keys().filter_map(|key| m.reference(&key));
            let mut kinds = held.filter_map(kind);
            kinds.find(|k| Some(*k) != kind(number))
        });
        if let (Some(held), Some(own)) = (other, kind(number)) {
            return Err(wrong(format!(
                "program {program} is {own}, the array holds {held} programs"
            )));
        }
        let target = self
            .map_mut(map)
            .filter(|m| m.kind() == MapKind::ProgArray)
            .ok_or_else(|| wrong("is not a program array of this object".to_owned()))?;
        target
            .set_reference(&index.to_le_bytes(), number)
            .map_err(|e| wrong(e.to_string()))
    }

    /// The program or map that an element of a program array or map of maps names.
    pub fn reference(&self, map: &str, key: &[u8]) -> Option<&str> {
        let map = self.map(map)?;
        let number = map.reference(key)? as usize;
        match map.kind() {
            MapKind::ProgArray => self.code.programs.get(number).map(|p| p.name.as_str()),
            kind if kind.holds_maps() => self.maps.get(number).map(Map::name),
            _ => None,
        }
    }

    /// Makes an element of a map of maps name the map called `inner`.
    ///
    /// # Errors
    /// [`LoadError::Reference`] when either map is missing or does not fit the definition.
    pub fn set_inner_map(&mut self, outer: &str, key: &[u8], inner: &str) -> Result<(), LoadError> {
        let wrong = |reason: String| LoadError::Reference {
            map: outer.to_owned(),
            reason,
        };
        let number = self.maps.iter().position(|m| m.name() == inner);
        let number = number.ok_or_else(|| wrong(format!("no map {inner} to refer to")))?;
        let candidate = self.maps.get(number).map(|m| m.definition().clone());
        let target = self
            .map_mut(outer)
            .filter(|m| m.kind().holds_maps())
            .ok_or_else(|| wrong("is not a map of maps of this object".to_owned()))?;
        // As in the kernel, arrays may differ in length, everything else must be equal.
        if let (Some(expected), Some(candidate)) = (&target.definition().inner, candidate) {
            let same = expected.kind == candidate.kind
                && expected.key_size == candidate.key_size
                && expected.value_size == candidate.value_size
                && expected.flags == candidate.flags;
            if !same {
                return Err(wrong(format!("{inner} differs from its inner definition")));
            }
        }
        target
            .set_reference(key, number as u32)
            .map_err(|e| wrong(e.to_string()))
    }

    /// Creates a map called `name` like the inner definition of `outer`, to be set with [`Machine::set_inner_map`].
    ///
    /// # Errors
    /// [`LoadError`] when `outer` has no inner definition or the limits are reached.
    pub fn create_inner_map(&mut self, outer: &str, name: &str) -> Result<&mut Map, LoadError> {
        let definition = self.map(outer).and_then(|m| m.definition().inner.clone());
        let mut definition = *definition.ok_or_else(|| LoadError::Reference {
            map: outer.to_owned(),
            reason: "has no inner definition".to_owned(),
        })?;
        if self.maps.len() >= MAPS_MAX {
            return Err(LoadError::TooManyMaps);
        }
        if self.map(name).is_some() {
            return Err(LoadError::Reference {
                map: name.to_owned(),
                reason: "exists already".to_owned(),
            });
        }
        name.clone_into(&mut definition.name);
        let map = Map::new(definition, self.cpus)?;
        Ok(self.maps.push_mut(map))
    }

    /// Takes the records submitted to a ring buffer, oldest first; empty when there is no such ring buffer.
    pub fn drain_ringbuf(&mut self, name: &str) -> Vec<Vec<u8>> {
        self.maps
            .iter_mut()
            .find(|m| m.name() == name)
            .and_then(Map::ring_mut)
            .map(|r| r.drain())
            .unwrap_or_default()
    }

    /// Says what bytes of the stack hold that nobody wrote: 0, unless this says otherwise. In the kernel it is what was there before. A program
    /// whose results differ between two values depends on it, for example on the buffer of a helper that failed.
    pub fn set_blank_stack(&mut self, byte: u8) {
        self.blank = byte;
    }

    /// The interfaces, routes and neighbours that `bpf_fib_lookup` and `bpf_check_mtu` know of; none unless set.
    pub fn set_routes(&mut self, routes: Routes) {
        self.scratch.routes = routes;
    }

    /// Starts reading a perf event array: a buffer of `bytes` for each CPU. Until then programs' output fails with `-ENOENT`, as in the
    /// kernel.
    ///
    /// # Errors
    /// [`LoadError::NoMap`] when there is no such perf event array.
    pub fn open_perf(&mut self, map: &str, bytes: usize) -> Result<(), LoadError> {
        let cpus = self.cpus;
        let known = self.map_names().collect::<Vec<_>>().join(", ");
        let perf = self.map_mut(map).and_then(Map::perf_mut);
        let perf = perf.ok_or_else(|| LoadError::NoMap {
            name: map.to_owned(),
            known,
        })?;
        perf.open(cpus, bytes);
        Ok(())
    }

    /// Takes the records of a perf event array: (CPU, record), those of a CPU oldest first. A record is the program's data and
    /// the packet bytes it asked for, without the kernel's padding.
    pub fn drain_perf(&mut self, name: &str) -> Vec<(u32, Vec<u8>)> {
        let perf = self.map_mut(name).and_then(Map::perf_mut);
        perf.map(|p| p.drain()).unwrap_or_default()
    }

    /// Takes the lines of `bpf_trace_printk` (at most 10,000 between calls).
    pub fn take_trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.scratch.trace)
    }

    /// Takes the copies that `bpf_clone_redirect` sent, in order (at most 4,096 between calls).
    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.scratch.sent)
    }

    /// Where the last run's redirect helper sent the packet; nothing if none was called with success.
    pub fn redirect(&self) -> Option<&Redirect> {
        self.redirect.as_ref()
    }

    /// CPUs the maps have values for.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Instructions executed in all runs: a cost figure that is the same on every machine.
    pub fn instructions_run(&self) -> u64 {
        self.executed
    }

    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    pub(crate) fn maps(&self) -> &[Map] {
        &self.maps
    }

    /// One run, interpreted or as `checked` code of this machine.
    fn run(
        &mut self,
        env: &Env,
        (frame, skb): (Option<&mut Frame>, Option<&mut SkbFields>),
        raw: &mut [u8],
        context: [u32; 3],
        (r1, r2): (u64, u64),
        checked: Option<&Checked>,
    ) -> Result<u64, Fault> {
        if env.cpu >= self.cpus {
            return Err(self.fault(self.entry, self.no_cpu(env)));
        }
        self.epoch += 1;
        let memory = Memory {
            stack: &mut self.stack,
            blank: self.blank,
            depth: 0,
            frame,
            generation: next_generation(self.generation),
            raw,
            maps: &mut self.maps,
            context,
            skb,
            host: None,
        };
        let mut run = Run::new(
            &self.code.ops,
            (&self.code.externals, &self.code.invalid),
            &self.code.entries,
            memory,
            env,
            self.epoch,
            &mut self.scratch,
        );
        run.checked = checked;
        run.catches = self.catches;
        let result: Step<u64> = run.program(self.entry, r1, r2);
        self.generation = run.memory.generation;
        self.executed += env.instruction_budget - run.left;
        let at = run.fault_at.unwrap_or(self.entry);
        let open = run.open_records;
        self.redirect = run.redirect.take();
        self.finish(result, at, open)
    }

    fn no_cpu(&self, env: &Env) -> FaultKind {
        FaultKind::Cpu {
            cpu: env.cpu,
            cpus: self.cpus,
        }
    }

    /// The end of a run: after a fault at operation `at` no record stays reserved.
    #[inline]
    fn finish(&mut self, result: Step<u64>, at: usize, open: u32) -> Result<u64, Fault> {
        match result {
            Ok(value) => Ok(value),
            Err(kind) => {
                if open > 0 {
                    for ring in self.maps.iter_mut().filter_map(Map::ring_mut) {
                        ring.discard_reserved();
                    }
                }
                Err(self.fault(at, *kind))
            }
        }
    }

    #[cold]
    fn fault(&self, at: usize, kind: FaultKind) -> Fault {
        let place = self.place(at);
        Fault {
            function: place.function,
            pc: place.slot,
            op: at,
            kind,
        }
    }

    /// Code, maps and number of CPUs, for the verifier.
    pub(crate) fn parts(&self) -> (&Code, &[Map], u32) {
        (&self.code, &self.maps, self.cpus)
    }

    /// Kind of a program by its number.
    pub(crate) fn kind_of(&self, program: u32) -> Option<&ProgramKind> {
        self.code.kinds.get(program as usize)
    }

    /// Name of a program by its number.
    pub(crate) fn program_name(&self, program: u32) -> Option<&str> {
        let label = self.code.programs.get(program as usize)?;
        Some(&label.name)
    }

    /// Name of the program that runs.
    pub(crate) fn selected_name(&self) -> Option<&str> {
        let programs = &self.code.programs;
        let found = programs.iter().find(|p| p.start == self.entry)?;
        Some(&found.name)
    }

    /// First operation of a program.
    pub(crate) fn entry_of(&self, program: &str) -> Result<usize, LoadError> {
        self.program(program).map(|(_, start)| start)
    }

    /// Number and start of a program.
    pub(crate) fn program(&self, name: &str) -> Result<(u32, usize), LoadError> {
        let programs = &self.code.programs;
        programs
            .iter()
            .zip(0u32..)
            .find(|(p, _)| p.name == name)
            .map(|(p, number)| (number, p.start))
            .ok_or_else(|| LoadError::NoProgram {
                name: name.to_owned(),
                known: programs
                    .iter()
                    .map(|p| p.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }
}
