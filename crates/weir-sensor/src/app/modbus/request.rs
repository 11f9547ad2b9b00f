//! What rules ask of a request (the keyword `modbus`): its unit, its function, and what it reads or writes. Asked of the request as it was sent.

use std::ops::RangeInclusive;

use crate::app::bytes::be16;

use super::{FUNCTIONS, HEADER, category};

/// A condition on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModbusAsked {
    /// The unit that it is for.
    pub unit: Option<RangeInclusive<u64>>,
    /// What is asked of the rest of it.
    pub what: ModbusWhat,
}

/// What is asked of a request beside its unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModbusWhat {
    /// Nothing.
    Any,
    /// `function N, subfunction N`.
    Function(u8, Option<u16>),
    /// `function assigned` and its like; `true`: it is none of them.
    Functions(ModbusFunctions, bool),
    /// `access read holding, address >100`.
    Access {
        /// Writes, rather than reads.
        write: bool,
        /// Of this table.
        table: Option<ModbusTable>,
        /// One of its addresses, counted from 1, is in this range.
        address: Option<RangeInclusive<u64>>,
        /// A value that is written there is in this range.
        value: Option<RangeInclusive<u64>>,
    },
}

/// Groups of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModbusFunctions {
    /// The specification says what they do.
    Assigned,
    /// It leaves them for later.
    Unassigned,
    /// Either of these.
    Public,
    /// Free for users.
    User,
    /// Of products that were there before.
    Reserved,
    /// All.
    All,
}

/// Tables of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModbusTable {
    /// Bits that are only read.
    Discretes,
    /// Bits.
    Coils,
    /// Registers that are only read.
    Input,
    /// Registers.
    Holding,
}

impl ModbusTable {
    /// As rules name it.
    pub const NAMES: [(&'static str, ModbusTable); 4] = [
        ("discretes", ModbusTable::Discretes),
        ("coils", ModbusTable::Coils),
        ("input", ModbusTable::Input),
        ("holding", ModbusTable::Holding),
    ];
}

impl ModbusFunctions {
    /// As rules name it.
    pub const NAMES: [(&'static str, ModbusFunctions); 6] = [
        ("assigned", ModbusFunctions::Assigned),
        ("unassigned", ModbusFunctions::Unassigned),
        ("public", ModbusFunctions::Public),
        ("user", ModbusFunctions::User),
        ("reserved", ModbusFunctions::Reserved),
        ("all", ModbusFunctions::All),
    ];

    fn has(self, function: u8) -> bool {
        let of = category(function);
        match self {
            ModbusFunctions::Assigned => of == "PUBLIC_ASSIGNED",
            ModbusFunctions::Unassigned => of == "PUBLIC_UNASSIGNED",
            ModbusFunctions::Public => of.starts_with("PUBLIC"),
            ModbusFunctions::User => of == "USER_DEFINED",
            ModbusFunctions::Reserved => of == "RESERVED",
            ModbusFunctions::All => true,
        }
    }
}

/// What one request reads or writes.
struct Access<'a> {
    table: ModbusTable,
    /// The first address, from 0.
    first: u16,
    count: u16,
    /// What is written.
    values: Values<'a>,
}

/// Values that a request writes.
#[derive(Clone, Copy)]
enum Values<'a> {
    /// None, or they are not in the request.
    None,
    /// A coil: 0 or 0xff00.
    Coil(u16),
    /// Bits, the lowest of each byte first.
    Bits(&'a [u8]),
    /// Registers.
    Registers(&'a [u8]),
}

impl Values<'_> {
    /// Whether the value at a place is in a range. A coil that is on is 1; one that is written alone is also what stands there.
    fn has(self, at: u16, holds: &impl Fn(u16) -> bool) -> bool {
        let at = usize::from(at);
        match self {
            Values::None => false,
            Values::Coil(n) => holds(u16::from(n != 0)) || holds(n),
            Values::Bits(bytes) => {
                let byte = bytes.get(at / 8);
                byte.is_some_and(|b| holds(u16::from(b >> (at % 8) & 1)))
            }
            Values::Registers(bytes) => be16(bytes, at * 2).is_some_and(holds),
        }
    }
}

impl ModbusAsked {
    /// Whether it holds of a request, with its header.
    pub(crate) fn holds(&self, message: &[u8]) -> bool {
        let Some(&[unit, function, ref data @ ..]) = message.get(HEADER..) else {
            return false;
        };
        if (self.unit.as_ref()).is_some_and(|r| !r.contains(&unit.into())) {
            return false;
        }
        match &self.what {
            ModbusWhat::Any => true,
            ModbusWhat::Function(wanted, sub) => {
                let there = || match function {
                    // The type of an encapsulated interface has one byte.
                    43 => data.first().copied().map(u16::from),
                    _ => be16(data, 0),
                };
                *wanted == function && sub.is_none_or(|sub| there() == Some(sub))
            }
            ModbusWhat::Functions(group, negated) => group.has(function) != *negated,
            ModbusWhat::Access {
                write,
                table,
                address,
                value,
            } => access(function, data, *write).is_some_and(|found| {
                if table.is_some_and(|table| table != found.table) {
                    return false;
                }
                let at = |n: u16| u64::from(found.first) + u64::from(n) + 1;
                let places = (0..found.count)
                    .filter(|n| address.as_ref().is_none_or(|r| r.contains(&at(*n))));
                match value {
                    None => address.is_none() || places.count() > 0,
                    Some(value) => {
                        let holds = |n: u16| value.contains(&n.into());
                        places.into_iter().any(|n| found.values.has(n, &holds))
                    }
                }
            }),
        }
    }
}

/// What a request reads, or writes.
fn access(function: u8, data: &[u8], write: bool) -> Option<Access<'_>> {
    let (_, _, does) = FUNCTIONS.iter().find(|(n, ..)| *n == function)?;
    if !does.contains(if write { "WRITE" } else { "READ" }) {
        return None;
    }
    let table = match function {
        2 => ModbusTable::Discretes,
        1 | 5 | 15 => ModbusTable::Coils,
        4 => ModbusTable::Input,
        _ => ModbusTable::Holding,
    };
    let (first, second) = (be16(data, 0)?, be16(data, 2)?);
    let of = |first, count, values| {
        Some(Access {
            table,
            first,
            count,
            values,
        })
    };
    let behind = |at: usize| data.get(at..).unwrap_or_default();
    match function {
        5 => of(first, 1, Values::Coil(second)),
        6 => of(first, 1, Values::Registers(behind(2))),
        15 => of(first, second, Values::Bits(behind(5))),
        16 => of(first, second, Values::Registers(behind(5))),
        // What is left of the register after both masks is not in the request.
        22 => of(first, 1, Values::None),
        23 if write => of(be16(data, 4)?, be16(data, 6)?, Values::Registers(behind(9))),
        _ => of(first, second, Values::None),
    }
}
