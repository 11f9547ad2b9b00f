//! The pieces of random programs.
//!
//! Owns what a piece is; what is likely is in `strategies`, the instructions are in `assembly`. Numbers are registers where
//! nothing else is said. Invariant: a piece holds all that its instructions depend on.

/// Context, packet start, packet end, frame pointer.
pub(super) const CONTEXT: u8 = 6;
pub(super) const DATA: u8 = 7;
pub(super) const END: u8 = 8;
pub(super) const COUNTER: u8 = 9;
pub(super) const FP: u8 = 10;

/// A whole program.
#[derive(Clone)]
pub(crate) struct Program {
    /// Packet bytes checked before anything else.
    pub(super) checked: u8,
    /// How r0 to r5 and r9 begin.
    pub(super) starts: Vec<Start>,
    pub(super) body: Vec<Piece>,
    /// Static functions.
    pub(super) functions: Vec<Vec<Piece>>,
}

/// How a register begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    Nothing,
    Small(i32),
    Wide(u64),
    /// Packet bytes: offset, width.
    Packet(u8, Width),
    /// Context field.
    Context(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    B1,
    B2,
    B4,
    B8,
}

impl Width {
    pub(super) fn bytes(self) -> i16 {
        match self {
            Width::B1 => 1,
            Width::B2 => 2,
            Width::B4 => 4,
            Width::B8 => 8,
        }
    }

    pub(super) fn size_bits(self) -> u8 {
        match self {
            Width::B4 => 0x00,
            Width::B2 => 0x08,
            Width::B1 => 0x10,
            Width::B8 => 0x18,
        }
    }
}

/// Second operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    Register(u8),
    Immediate(i32),
}

/// What an access does with memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Load(u8),
    LoadSigned(u8),
    Store(u8),
    StoreImmediate(i32),
    /// Operation and operand register.
    Atomic(u8, u8),
}

/// How a bounds check is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    /// Bytes asked for.
    pub(super) len: i16,
    /// Which of the eight ways to compare.
    pub(super) way: u8,
}

/// How a null check is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NullCheck {
    Good,
    Missing,
    Inverted,
}

/// A comparison: opcode's operation, 64 bits or 32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compare {
    pub(super) operation: u8,
    pub(super) wide: bool,
}

/// A number from a register: masked, then computed with and compared, so that its range decides whether it is allowed.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(super) register: u8,
    pub(super) mask: i32,
    pub(super) steps: Vec<Step>,
}

/// What is done with a number in r3.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Alu {
        operation: u8,
        wide: bool,
        imm: i32,
    },
    SignMove {
        bits: i16,
        wide: bool,
    },
    /// Leaves the program if a comparison holds.
    Leave {
        compare: Compare,
        imm: i32,
    },
}

/// A few instructions that belong together.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Alu {
        operation: u8,
        wide: bool,
        dst: u8,
        operand: Operand,
    },
    /// Division and remainder, signed if the offset is 1.
    Divide {
        remainder: bool,
        signed: bool,
        wide: bool,
        dst: u8,
        operand: Operand,
    },
    Negate {
        wide: bool,
        dst: u8,
    },
    SignMove {
        bits: i16,
        wide: bool,
        dst: u8,
        src: u8,
    },
    Swap {
        opcode: u8,
        bits: i32,
        dst: u8,
    },
    Wide {
        dst: u8,
        value: u64,
    },
    /// A bounds check of the packet and accesses behind it.
    Packet {
        check: Check,
        accesses: Vec<(i16, Width, Access)>,
    },
    /// An access at a masked offset taken from a register, checked afterwards.
    PacketAt {
        offset: u8,
        mask: i32,
        shift: u8,
        check: Check,
        at: i16,
        width: Width,
        access: Access,
    },
    /// `data_meta` against `data`.
    Meta {
        check: Check,
        at: i16,
        width: Width,
        access: Access,
    },
    Stack {
        at: i16,
        width: Width,
        access: Access,
    },
    /// Stack at a masked offset.
    StackAt {
        variable: Variable,
        base: i16,
        width: Width,
        access: Access,
    },
    /// A packet or context pointer through the stack into a register, and a use of it.
    Spill {
        pointer: u8,
        slot: i16,
        dst: u8,
        at: i16,
        width: Width,
    },
    Lookup {
        map: u8,
        key: Operand,
        null: NullCheck,
        accesses: Vec<(i16, Width, Access)>,
        /// A number added to the pointer.
        variable: Option<Variable>,
    },
    /// Address of global data.
    Global {
        map: u8,
        offset: u32,
        at: i16,
        width: Width,
        access: Access,
    },
    Update {
        map: u8,
        key: i32,
        size: i16,
        flags: i32,
    },
    Delete {
        map: u8,
        key: i32,
    },
    /// head, meta or tail; whether the packet pointers are reloaded.
    Adjust {
        helper: i32,
        delta: i32,
        reload: bool,
    },
    Checksum {
        at: i16,
        length: i32,
        seed: u8,
    },
    /// `xdp_load_bytes` or `xdp_store_bytes`; a length in a register is masked.
    Bytes {
        store: bool,
        offset: i32,
        at: i16,
        length: Operand,
        mask: i32,
    },
    Ring {
        size: i32,
        null: NullCheck,
        access: Option<(i16, Width, Access)>,
        /// 132 submits, 133 discards, others forget the record.
        finish: i32,
    },
    /// No program is there; whether the packet pointers are reloaded.
    TailCall {
        index: Operand,
        reload: bool,
    },
    RedirectMap {
        index: Operand,
        flags: i32,
    },
    /// Jumps over the next pieces.
    Skip {
        compare: Compare,
        dst: u8,
        operand: Operand,
        over: u8,
    },
    Loop {
        bound: i32,
        step: i32,
        compare: Compare,
        /// The counter is kept on the stack over the body.
        kept: bool,
        /// It begins with `may_goto` out of the loop.
        escape: bool,
        body: Vec<Piece>,
    },
    /// A lookup of a socket: any or a full one, null check, a load, released or not.
    Socket {
        helper: i32,
        null: NullCheck,
        load: Option<(i16, Width)>,
        release: bool,
    },
    Call {
        function: u8,
        arguments: [u8; 2],
    },
    /// Returns if a comparison holds.
    Leave {
        compare: Compare,
        dst: u8,
        operand: Operand,
        value: i32,
    },
    /// Difference of packet pointers as a number.
    Length {
        dst: u8,
    },
    /// Arithmetic on a pointer that usually is not one.
    Pointer {
        operation: u8,
        dst: u8,
        operand: Operand,
    },
}
