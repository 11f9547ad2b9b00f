//! The rules in plain words: their names, why they exist, and how values are born.

use crate::catalogue::helper_name;
use crate::verify::{Birth, Rule};

/// `PacketBounds` as `packet-bounds`.
pub(super) fn name(rule: &Rule) -> String {
    let mut name = String::new();
    for c in format!("{rule:?}")
        .chars()
        .take_while(|c| c.is_alphanumeric())
    {
        if c.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// What the rule asks for.
pub(super) fn summary(rule: &Rule) -> &'static str {
    use Rule::*;
    match rule {
        PacketBounds { .. } | PacketNegative { .. } => {
            "Bytes of the packet may be accessed only behind a comparison with the packet's end that shows that they are there."
        }
        NullValue { .. } | HelperNull { .. } | ArithmeticBeforeNullCheck { .. } => {
            "What a lookup or reservation returns may be used only after a check that it is not null."
        }
        MapValueBounds { .. } | MemoryBounds { .. } => {
            "An access must lie inside its object for every offset the program can compute."
        }
        StackBounds { .. } | StackUnbounded | VariableOffset { .. } => {
            "A function may access the 512 bytes of its own stack, at offsets that are known to lie inside."
        }
        UninitRegister { .. } | UninitStack { .. } => {
            "A value must be written before it is read, on every path."
        }
        PartialSpill { .. } | PartialFill { .. } | SpillToCaller => {
            "A pointer kept on the stack must stay whole, and must not outlive what it points to."
        }
        NotMemory { .. } => {
            "Memory is reached through pointers only: a number, a map or the packet's end has no bytes."
        }
        PointerArithmetic { .. }
        | PointerOperator { .. }
        | NarrowPointer { .. }
        | NumberMinusPointer
        | StackSubtraction
        | TwoPointers { .. }
        | PointerDistance { .. } => {
            "A pointer may be moved by adding or subtracting a bounded number, and only where there are bytes around it."
        }
        SocketField { .. } => "A socket's fields are read in their own width, and never written.",
        ContextField { .. } | ContextMoved { .. } => {
            "The context has a few fields of fixed width; XDP programs read them and write none."
        }
        ReadOnlyMap { .. } | ReadOnlyMemory { .. } => "What is read-only cannot be written.",
        LockAccess { .. } => "A lock is touched by the lock helpers only.",
        Misaligned { .. } => {
            "The stack, the context and operands of atomic operations are accessed at multiples of the access's width."
        }
        AtomicTarget { .. } => {
            "Atomic operations combine numbers, in map values, records and on the stack."
        }
        MixedPointers { .. } => {
            "An instruction that reads the context is translated, so it can read nothing else."
        }
        NoProgram => "A program is verified by its name.",
        Unreachable | FallsOffEnd | JumpLeavesFunction { .. } | CallTarget | IndirectCall => {
            "Control must stay inside the functions of the program, and every instruction must be reachable."
        }
        CallDepth { .. } | CombinedStack { .. } | TailCallStack { .. } | Recursion => {
            "Calls may nest eight deep, and the stack of all functions that are open at once is 512 bytes."
        }
        EndlessLoop { .. }
        | Budget { .. }
        | PendingBranches { .. }
        | StateMemory { .. }
        | TooManyFunctions { .. }
        | TooManyInstructions { .. } => {
            "A program must be seen to end: the verifier walks every round of every loop, a million instructions at most."
        }
        Invalid { .. } => "A program is accepted only if all of its instructions are understood.",
        External { .. } => "A program may use what is in its object, and helpers.",
        ReservedField => "Fields that an instruction does not use are zero.",
        ShiftAmount { .. } | DivisionByZero => "Constant operands must make sense.",
        UnknownHelper { .. } | License { .. } => "Each kind of program has its own set of helpers.",
        HelperArgument { .. }
        | HelperPacket { .. }
        | HelperMap { .. }
        | ConstantRequired { .. }
        | CallbackExpected { .. }
        | CallbackGlobal { .. } => "A helper takes arguments of certain kinds.",
        SizeNegative { .. } | SizeZero { .. } | SizeUnbounded { .. } => {
            "A length passed to a helper must be known to fit the memory passed with it."
        }
        LeakedReference { .. } | NotHeld { .. } | ReleaseMoved { .. } => {
            "What was acquired is released exactly once, on every path."
        }
        Sleepable { .. } => "XDP and tc programs run where nothing may sleep.",
        Undescribed { .. } => "A program is accepted only if all that it calls is described.",
        DynptrState { .. } | ReferencedDynptr => {
            "A dynptr is made once, on the stack, and one with a ring buffer record is submitted or discarded."
        }
        Untrusted { .. } | ObjectType { .. } => {
            "A kernel function takes kernel objects of its own type that are known to be valid."
        }
        ObjectField { .. } => {
            "Members of kernel objects are read in their own width, and never written."
        }
        Exception { .. } => {
            "An exception ends the program from functions that it calls itself, by one callback at most."
        }
        SectionUnmatched { .. } | SectionOpen { .. } => {
            "A section is closed once for each time that it is opened, on every path."
        }
        IteratorState { .. } => "An iterator is begun once, asked for the next, and destroyed.",
        NoLock { .. } | OtherLock | CallUnderLock { .. } | LeakedLock { .. } => {
            "A lock is held for a moment: one at a time, without calls, and released on every path."
        }
        FunctionArgument { .. } | FunctionSignature { .. } => {
            "A global function is checked separately, with what its parameters' types promise."
        }
        ReturnsStackPointer | ReturnsNoNumber { .. } | CallbackResult { .. } => {
            "A function returns a number, a callback 0 to go on or 1 to stop."
        }
    }
}

/// How a value came to be.
pub(super) fn birth(birth: Birth, unwritten: bool) -> String {
    match birth {
        Birth::Entry => "there from the start of the function".to_owned(),
        Birth::Nothing => "never written".to_owned(),
        Birth::Constant => "a constant".to_owned(),
        Birth::Loaded(from) => format!("loaded through {from}"),
        Birth::Computed => "computed".to_owned(),
        Birth::Helper(number) => format!("returned by bpf_{}", helper_name(number)),
        Birth::Function => "returned by a function".to_owned(),
        Birth::Clobbered if unwritten => "lost in a call, which keeps r6 to r9 only".to_owned(),
        Birth::Clobbered => "made unknown by a call".to_owned(),
        Birth::StalePacket => "a packet pointer until a helper moved the packet's bytes".to_owned(),
        Birth::Released => "a reference until it was released".to_owned(),
    }
}
