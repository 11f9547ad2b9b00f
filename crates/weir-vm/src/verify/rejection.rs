//! Why a program is refused: the closed list of rules, and everything an explanation needs.
//!
//! Owns [`Rule`] and [`Rejection`]; who fills them is `walk`, who prints them is the command line. Invariant: a
//! rejection names one rule at one operation, and its path leads from the function's start to that operation.

use std::fmt;

use thiserror::Error;

/// What a value is, for messages (the paper's Table 3, and what came after).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// Never written, or gone with a call.
    Uninitialised,
    /// A number.
    Number,
    /// Pointer to the context.
    Context,
    /// Pointer into the packet.
    Packet,
    /// Pointer to the packet's metadata.
    PacketMeta,
    /// The end of the packet.
    PacketEnd,
    /// A map.
    Map,
    /// Pointer to a map's value.
    MapValue,
    /// Pointer to a key, as callbacks of `bpf_for_each_map_elem` get it.
    MapKey,
    /// Pointer into a stack frame.
    Stack,
    /// Pointer to a reserved ring buffer record.
    Record,
    /// Pointer to memory a global function's caller promised.
    Memory,
    /// A socket.
    Socket,
    /// A function of the program.
    Function,
    /// An iterator's state on the stack.
    Iterator,
    /// A dynptr.
    Dynptr,
    /// A kernel object.
    Object,
}

impl ValueKind {
    /// The kernel's own name of the type.
    pub fn kernel_name(self) -> &'static str {
        match self {
            ValueKind::Uninitialised => "not_init",
            ValueKind::Number => "scalar",
            ValueKind::Context => "ctx",
            ValueKind::Packet => "pkt",
            ValueKind::PacketMeta => "pkt_meta",
            ValueKind::PacketEnd => "pkt_end",
            ValueKind::Map => "map_ptr",
            ValueKind::MapValue => "map_value",
            ValueKind::MapKey => "map_key",
            ValueKind::Stack => "fp",
            ValueKind::Record => "ringbuf_mem",
            ValueKind::Memory => "mem",
            ValueKind::Socket => "sock",
            ValueKind::Function => "func",
            ValueKind::Iterator => "iter",
            ValueKind::Dynptr => "dynptr_ptr",
            ValueKind::Object => "ptr",
        }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueKind::Uninitialised => "an uninitialised value",
            ValueKind::Number => "a number",
            ValueKind::Context => "the context",
            ValueKind::Packet => "a packet pointer",
            ValueKind::PacketMeta => "a metadata pointer",
            ValueKind::PacketEnd => "the end of the packet",
            ValueKind::Map => "a map",
            ValueKind::MapValue => "a pointer to a map value",
            ValueKind::MapKey => "a pointer to a map key",
            ValueKind::Stack => "a stack pointer",
            ValueKind::Record => "a ring buffer record",
            ValueKind::Memory => "a pointer argument",
            ValueKind::Socket => "a socket",
            ValueKind::Function => "a function",
            ValueKind::Iterator => "an iterator",
            ValueKind::Dynptr => "a dynptr",
            ValueKind::Object => "a kernel object",
        })
    }
}

/// The rule a program breaks; one for each check.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Rule {
    /// The object has no such program.
    #[error("the object has no program of this name")]
    NoProgram,

    // --- control flow ---
    /// No path leads here, which the kernel refuses.
    #[error("no path leads to this instruction")]
    Unreachable,
    /// The last instruction of a function goes on past its end.
    #[error("control runs past the end of the function")]
    FallsOffEnd,
    /// A jump into another function.
    #[error("the jump leaves its function (to instruction {target})")]
    JumpLeavesFunction {
        /// Slot of the section jumped to.
        target: usize,
    },
    /// A call to what is not the start of a function.
    #[error("the call's target is not the start of a function")]
    CallTarget,
    /// A call through a register: the kernel has them for JIT tables only.
    #[error("calls through registers are not allowed")]
    IndirectCall,
    /// More than eight frames.
    #[error("{frames} calls are nested, at most 8 frames are allowed")]
    CallDepth {
        /// Frames there would be.
        frames: usize,
    },
    /// The frames of one chain of calls together need too much stack.
    #[error("{calls} nested frames need {bytes} bytes of stack together, {limit} is the limit")]
    CombinedStack {
        /// Frames of the chain.
        calls: usize,
        /// Bytes they need.
        bytes: u32,
        /// Bytes there are: 512.
        limit: u32,
    },
    /// A function that makes tail calls is called with too much stack in use.
    #[error(
        "a function that makes tail calls is called with {bytes} bytes of stack in use, less than 256 is required"
    )]
    TailCallStack {
        /// Bytes in use by its callers.
        bytes: u32,
    },
    /// The program calls itself.
    #[error("the function calls itself, directly or through others")]
    Recursion,
    /// More functions than a program may have.
    #[error("{functions} functions are used, 256 is the limit")]
    TooManyFunctions {
        /// Functions found.
        functions: usize,
    },
    /// More instructions than a program may have.
    #[error("the program has {instructions} instructions, 1,000,000 is the limit")]
    TooManyInstructions {
        /// Instructions found.
        instructions: usize,
    },
    /// The states to compare with need too much memory.
    #[error("too complex: the states kept need more than {bytes} bytes")]
    StateMemory {
        /// The limit.
        bytes: u64,
    },
    /// The state is the same as earlier on the same path: it never ends.
    #[error("the loop does not end: the same state was here before")]
    EndlessLoop {
        /// Operation of the loop's earlier round.
        entry: usize,
    },
    /// The walk took too many instructions.
    #[error("too complex: {processed} instructions were walked without coming to an end")]
    Budget {
        /// Instructions walked.
        processed: u64,
    },
    /// Too many alternatives were waiting.
    #[error("too complex: {pending} branches are waiting to be walked")]
    PendingBranches {
        /// Alternatives pending.
        pending: usize,
    },
    /// A kernel function, kernel variable or unresolved symbol.
    #[error("{name} is not in the object: kernel functions and variables are not supported")]
    External {
        /// Symbol.
        name: String,
    },

    /// An instruction that is not understood: its opcode, a register, its relocation, or the map it names.
    #[error("{reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },

    /// A field of the instruction that must be zero is not.
    #[error("the instruction uses a reserved field")]
    ReservedField,

    // --- registers and arithmetic ---
    /// A register is read that holds nothing.
    #[error("r{register} is read before it was written")]
    UninitRegister {
        /// The register.
        register: u8,
    },
    /// A constant shift as wide as the register or wider.
    #[error("shift by {amount} of a {width}-bit register")]
    ShiftAmount {
        /// Bits shifted by.
        amount: i64,
        /// Bits there are.
        width: u32,
    },
    /// Division or modulo by the constant 0.
    #[error("division by the constant 0")]
    DivisionByZero,
    /// An operation that does not apply to this kind of pointer.
    #[error("arithmetic on {kind} is not allowed")]
    PointerArithmetic {
        /// What the register holds.
        kind: ValueKind,
    },
    /// Arithmetic before the null check.
    #[error("arithmetic on {kind} that may be null: check it first")]
    ArithmeticBeforeNullCheck {
        /// What the register holds.
        kind: ValueKind,
        /// Map it comes from.
        map: Option<String>,
    },
    /// Only addition and subtraction make sense for pointers.
    #[error("operator {operator} cannot be applied to {kind}")]
    PointerOperator {
        /// The operator as in assembler.
        operator: &'static str,
        /// What the register holds.
        kind: ValueKind,
    },
    /// 32-bit arithmetic would cut a pointer.
    #[error("32-bit arithmetic on {kind} would cut the pointer")]
    NarrowPointer {
        /// What the register holds.
        kind: ValueKind,
    },
    /// A number minus a pointer.
    #[error("a pointer is subtracted from a number")]
    NumberMinusPointer,
    /// Stack pointers are not subtracted from; add a negative number.
    #[error("subtraction from a stack pointer: add a negative constant instead")]
    StackSubtraction,
    /// Two pointers combined in another way than by subtraction.
    #[error("operator {operator} between two pointers")]
    TwoPointers {
        /// The operator.
        operator: &'static str,
    },
    /// The distance added may be too large or has no bound.
    #[error("the number added to {kind} may be {value}, beyond what a pointer may be moved by")]
    PointerDistance {
        /// What the pointer points to.
        kind: ValueKind,
        /// The extreme value.
        value: i64,
    },

    // --- memory ---
    /// An access through something that is no pointer to memory.
    #[error("access through {kind}, which points to no memory")]
    NotMemory {
        /// What the register holds.
        kind: ValueKind,
    },
    /// An access through a pointer that may be null.
    #[error("{kind} may be null here: check it first")]
    NullValue {
        /// What the pointer points to.
        kind: ValueKind,
        /// Map it comes from.
        map: Option<String>,
    },
    /// An access to packet bytes not compared with the packet's end.
    #[error(
        "access to {size} bytes at packet offset {offset}, but only {range} bytes are known to be there"
    )]
    PacketBounds {
        /// Offset from what was compared with the end (the pointer's variable part left out).
        offset: i64,
        /// Bytes accessed.
        size: i64,
        /// Bytes known to be there from the same base; negative after a comparison that proves that there are none.
        range: i64,
        /// Whether the pointer has a variable part.
        variable: bool,
    },
    /// The variable part of a packet pointer may be negative.
    #[error("the offset into the packet may be negative ({min})")]
    PacketNegative {
        /// Smallest value.
        min: i64,
    },
    /// Outside a map's value.
    #[error(
        "access to {size} bytes at offset {min}..{max} of a value of map {map}, which has {value_size} bytes"
    )]
    MapValueBounds {
        /// Map.
        map: String,
        /// Smallest offset.
        min: i64,
        /// Largest offset (`u64` values above it are shown as `i64::MAX`).
        max: i64,
        /// Bytes accessed.
        size: i64,
        /// Bytes of a value.
        value_size: u32,
    },
    /// Outside a record, key or pointer argument.
    #[error("access to {size} bytes at offset {min}..{max} of {kind} of {limit} bytes")]
    MemoryBounds {
        /// What is accessed.
        kind: ValueKind,
        /// Smallest offset.
        min: i64,
        /// Largest offset.
        max: i64,
        /// Bytes accessed.
        size: i64,
        /// Bytes there are.
        limit: u32,
    },
    /// Outside the 512 bytes of a frame.
    #[error("access to {size} bytes at stack offset {offset}: the frame is fp-512 to fp-1")]
    StackBounds {
        /// Offset from the frame pointer.
        offset: i64,
        /// Bytes accessed.
        size: i64,
    },
    /// A stack offset without sane bounds.
    #[error("the stack offset has no bounds")]
    StackUnbounded,
    /// A variable offset where a constant one is needed.
    #[error("{kind} needs a constant offset here")]
    VariableOffset {
        /// What the pointer points to.
        kind: ValueKind,
    },
    /// Stack bytes that hold nothing (parts of a broken-up pointer).
    #[error("{size} bytes at fp{offset} are read, and not all of them hold a value")]
    UninitStack {
        /// Offset from the frame pointer.
        offset: i64,
        /// Bytes read.
        size: i64,
    },
    /// A pointer is stored in less than eight bytes.
    #[error("a pointer can only be stored in eight bytes")]
    PartialSpill {
        /// What the register holds.
        kind: ValueKind,
    },
    /// Part of a stored pointer is read.
    #[error("{size} bytes of a stored pointer are read, all eight are needed")]
    PartialFill {
        /// What was stored.
        kind: ValueKind,
        /// Bytes read.
        size: i64,
    },
    /// A stack pointer is stored in a caller's frame.
    #[error("a pointer to this frame would outlive it in the caller's frame")]
    SpillToCaller,
    /// The context has no such field, or not in that width.
    #[error("the context has no {}field of {size} bytes at offset {offset}", if *write { "writable " } else { "" })]
    ContextField {
        /// Offset in `struct xdp_md` or `struct __sk_buff`.
        offset: i64,
        /// Bytes accessed.
        size: i64,
        /// Whether it is a write.
        write: bool,
    },
    /// A socket has no such field, or not in that width.
    #[error("a socket has no field of {size} bytes at offset {offset} that programs may read")]
    SocketField {
        /// Offset in `struct bpf_sock` or `struct bpf_tcp_sock`.
        offset: i64,
        /// Bytes accessed.
        size: i64,
    },
    /// The context pointer was moved.
    #[error(
        "the context is accessed through a pointer moved by {offset}; use the field's own offset"
    )]
    ContextMoved {
        /// Distance it was moved by.
        offset: i64,
    },
    /// A write to read-only values.
    #[error("map {map} is read-only for programs")]
    ReadOnlyMap {
        /// Map.
        map: String,
    },
    /// A write to memory that may only be read.
    #[error("{kind} is read-only")]
    ReadOnlyMemory {
        /// What is written to.
        kind: ValueKind,
    },
    /// A lock is accessed as data.
    #[error("the access touches the lock in a value of map {map}")]
    LockAccess {
        /// Map.
        map: String,
    },
    /// An address that is not a multiple of the width where it must be.
    #[error("access to {size} bytes of {kind} at offset {offset}, which is not aligned")]
    Misaligned {
        /// What is accessed.
        kind: ValueKind,
        /// Constant part of the offset.
        offset: i64,
        /// Bytes accessed.
        size: i64,
    },
    /// Atomic operations work on stack, values and records.
    #[error("atomic operations are not allowed on {kind}")]
    AtomicTarget {
        /// What is accessed.
        kind: ValueKind,
    },
    /// One instruction accesses the context on one path and something else on another.
    #[error("the same instruction accesses {kind} here and something else on another path")]
    MixedPointers {
        /// What is accessed here.
        kind: ValueKind,
    },

    // --- helpers ---
    /// A helper that programs of this hook do not have.
    #[error("helper {number} ({name}) is not available to {hook} programs")]
    UnknownHelper {
        /// Linux's number.
        number: u32,
        /// Its name.
        name: &'static str,
        /// XDP or tc.
        hook: &'static str,
    },
    /// An argument of another kind than the helper takes.
    #[error("{helper}: r{register} is {found}, expected {expected}")]
    HelperArgument {
        /// Helper.
        helper: &'static str,
        /// Register with the argument.
        register: u8,
        /// What it takes.
        expected: &'static str,
        /// What it got.
        found: ValueKind,
    },
    /// A pointer that may be null where the helper needs one.
    #[error("{helper}: r{register} may be null: check it first")]
    HelperNull {
        /// Helper.
        helper: &'static str,
        /// Register with the argument.
        register: u8,
        /// What it points to.
        found: ValueKind,
        /// Map it comes from.
        map: Option<String>,
    },
    /// The helper does not take packet pointers.
    #[error("{helper}: r{register} points into the packet, which this helper cannot read")]
    HelperPacket {
        /// Helper.
        helper: &'static str,
        /// Register with the argument.
        register: u8,
    },
    /// The helper does not work on this kind of map.
    #[error("{helper} does not work on map {map} of this type")]
    HelperMap {
        /// Helper.
        helper: &'static str,
        /// Map.
        map: String,
    },
    /// A size that may be negative.
    #[error("{helper}: the size in r{register} may be negative ({min})")]
    SizeNegative {
        /// Helper.
        helper: &'static str,
        /// Register with the size.
        register: u8,
        /// Smallest value.
        min: i64,
    },
    /// A size that may be zero where it must not.
    #[error("{helper}: the size in r{register} may be 0")]
    SizeZero {
        /// Helper.
        helper: &'static str,
        /// Register with the size.
        register: u8,
    },
    /// A size without an upper bound.
    #[error("{helper}: the size in r{register} has no upper bound")]
    SizeUnbounded {
        /// Helper.
        helper: &'static str,
        /// Register with the size.
        register: u8,
    },
    /// A number that must be a constant.
    #[error("{helper}: r{register} must be a constant")]
    ConstantRequired {
        /// Helper.
        helper: &'static str,
        /// Register with the number.
        register: u8,
    },
    /// A helper for GPL-compatible programs.
    #[error("{helper} is for GPL-compatible programs; the object's license is not")]
    License {
        /// Helper.
        helper: &'static str,
    },

    /// A step of an iterator on what is none, or on one that must not be there yet.
    #[error("{function}: r1 must point to {expected} on the stack")]
    IteratorState {
        /// Kernel function.
        function: &'static str,
        /// What it takes.
        expected: &'static str,
    },

    // --- kernel functions, dynptrs and kernel objects ---
    /// A function for programs that may sleep.
    #[error("{function} is for programs that may sleep, which XDP and tc programs may not")]
    Sleepable {
        /// Kernel function.
        function: &'static str,
    },
    /// A function on memory that this verifier does not describe.
    #[error("{function} works on objects that weir does not describe: not supported")]
    Undescribed {
        /// Kernel function.
        function: &'static str,
    },
    /// A dynptr where none was made, or where none can be made.
    #[error("{helper}: r{register} must point to {expected}")]
    DynptrState {
        /// Helper or kernel function.
        helper: &'static str,
        /// Register with the argument.
        register: u8,
        /// What it takes.
        expected: &'static str,
    },
    /// A dynptr that holds a record is written over.
    #[error("a dynptr that holds a ring buffer record is overwritten")]
    ReferencedDynptr,
    /// A kernel object that may be gone, or is not what its type says.
    #[error("{helper}: the kernel object in r{register} is not trusted here")]
    Untrusted {
        /// Kernel function.
        helper: &'static str,
        /// Register with the argument.
        register: u8,
    },
    /// A kernel object of another type.
    #[error("{helper}: r{register} is of struct {found}, expected struct {expected}")]
    ObjectType {
        /// Helper or kernel function.
        helper: &'static str,
        /// Register with the argument.
        register: u8,
        /// Name of the struct it takes.
        expected: String,
        /// Name of the struct it got.
        found: String,
    },
    /// A kernel struct has no such member, or not in that width.
    #[error(
        "struct {name} has no member of {size} bytes at offset {offset} that programs may read"
    )]
    ObjectField {
        /// Name of the struct.
        name: String,
        /// Offset in it.
        offset: i64,
        /// Bytes accessed.
        size: i64,
    },
    /// An exception in a callback, or a callback for exceptions that cannot be one.
    #[error("{function}: {reason}")]
    Exception {
        /// The function.
        function: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The end of a section that is not open, or one more beginning.
    #[error("{function}: the section is not open, or is open already")]
    SectionUnmatched {
        /// Kernel function.
        function: &'static str,
    },
    /// The program ends, or leaves by a tail call, in a section.
    #[error("the {section} section is still open")]
    SectionOpen {
        /// Which.
        section: &'static str,
    },

    // --- references and locks ---
    /// A record or socket still held when the program ends.
    #[error("{kind} is neither released nor handed back on this path")]
    LeakedReference {
        /// What is held.
        kind: ValueKind,
        /// Operation that acquired it.
        acquired_at: usize,
    },
    /// A release of what is not held.
    #[error("{helper}: r{register} is not held, or was released before")]
    NotHeld {
        /// Helper.
        helper: &'static str,
        /// Register with the argument.
        register: u8,
    },
    /// A moved pointer is released.
    #[error("{helper}: r{register} was moved by {offset}; pass the pointer as it was acquired")]
    ReleaseMoved {
        /// Helper.
        helper: &'static str,
        /// Register with the argument.
        register: u8,
        /// Distance.
        offset: i64,
    },
    /// The value has no lock at that place.
    #[error("{helper}: map {map} has no lock at this offset of its values")]
    NoLock {
        /// Helper.
        helper: &'static str,
        /// Map.
        map: String,
    },
    /// An unlock without, or of another, lock.
    #[error("this lock is not the one held")]
    OtherLock,
    /// A call while a lock is held.
    #[error("no calls are allowed while a lock is held")]
    CallUnderLock {
        /// Operation that took it.
        taken_at: usize,
    },
    /// The program ends, or leaves by a tail call, with a lock.
    #[error("the lock taken at operation {taken_at} is still held")]
    LeakedLock {
        /// Operation that took it.
        taken_at: usize,
    },

    // --- functions ---
    /// A call of a global function with an argument that is not what its type promises.
    #[error("{function}: argument {argument} is {found}, expected {expected}")]
    FunctionArgument {
        /// Function.
        function: String,
        /// Argument, from 1.
        argument: u8,
        /// What its type says.
        expected: &'static str,
        /// What it got.
        found: ValueKind,
    },
    /// A global function whose parameters cannot be checked.
    #[error("{function}: the type of argument {argument} cannot be checked in a global function")]
    FunctionSignature {
        /// Function.
        function: String,
        /// Argument, from 1.
        argument: u8,
    },
    /// A pointer to a frame that ends is returned.
    #[error("a pointer to the stack is returned")]
    ReturnsStackPointer,
    /// A global function, callback or program that returns no number.
    #[error("r0 is {found}, a number must be returned")]
    ReturnsNoNumber {
        /// What is in r0.
        found: ValueKind,
    },
    /// A callback must return 0 or 1.
    #[error("the callback returns {min} to {max}, 0 or 1 is required")]
    CallbackResult {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// What is passed as callback is no function of the program.
    #[error("{helper}: r{register} is {found}, expected a function of this program")]
    CallbackExpected {
        /// Helper.
        helper: &'static str,
        /// Register.
        register: u8,
        /// What it got.
        found: ValueKind,
    },
    /// Callbacks are static functions.
    #[error("{function} is used as a callback and must be static")]
    CallbackGlobal {
        /// Function.
        function: String,
    },
}

/// How a value came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Birth {
    /// Present when the function begins: an argument, the context, the frame pointer.
    Entry,
    /// Never written.
    Nothing,
    /// A constant in the code.
    Constant,
    /// Loaded from memory of this kind.
    Loaded(ValueKind),
    /// Result of arithmetic.
    Computed,
    /// Result of a helper (its number).
    Helper(u32),
    /// Result of a function of the program.
    Function,
    /// Lost its meaning: a call cleared it.
    Clobbered,
    /// A packet pointer that a helper made stale.
    StalePacket,
    /// A reference that was released.
    Released,
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// How it was made.
    pub birth: Birth,
    /// Operation that made it.
    pub born_at: usize,
    /// Last branch that narrowed it or changed what is known of it.
    pub narrowed_at: Option<usize>,
}

/// A conditional jump on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// Operation of the jump.
    pub op: usize,
    /// Whether it was taken.
    pub taken: bool,
}

/// An operation's place in the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsnLocation {
    /// Index of the operation in the linked code.
    pub op: usize,
    /// Function it is in.
    pub function: String,
    /// Section it is in.
    pub section: String,
    /// Its slot in the section, as `llvm-objdump -d` prints it.
    pub slot: usize,
}

/// A register or stack slot as the verifier saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `r0` to `r10`, or `fp-8` and so on.
    pub name: String,
    /// What it holds.
    pub kind: ValueKind,
    /// The abstract value, in one line.
    pub text: String,
    /// Where it came from.
    pub history: History,
}

/// A program that is not accepted, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Program.
    pub program: String,
    /// Rule broken.
    pub rule: Rule,
    /// Where.
    pub place: InsnLocation,
    /// The register the rule is about.
    pub register: Option<u8>,
    /// History of that register's value.
    pub history: Option<History>,
    /// Conditional jumps from the start of the program (or of the global function that was being walked), oldest first.
    pub path: Vec<PathStep>,
    /// Calls that were open, outermost first: the operations of the call instructions.
    pub calls: Vec<usize>,
    /// Registers and stack slots of the running frame that hold something.
    pub state: Vec<Seen>,
    /// Instructions walked until then.
    pub processed: u64,
    /// The walk, if [`VerifyOptions::log`](super::VerifyOptions) was set.
    pub log: String,
}

impl Rejection {
    /// A rejection that is not about an operation.
    pub(super) fn without_place(program: &str, rule: Rule) -> Rejection {
        Rejection {
            program: program.to_owned(),
            rule,
            place: InsnLocation {
                op: 0,
                function: String::new(),
                section: String::new(),
                slot: 0,
            },
            register: None,
            history: None,
            path: Vec::new(),
            calls: Vec::new(),
            state: Vec::new(),
            processed: 0,
            log: String::new(),
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: instruction {} of {}: {}",
            self.program, self.place.slot, self.place.function, self.rule
        )
    }
}

impl std::error::Error for Rejection {}
