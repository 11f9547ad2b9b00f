//! Modbus over TCP: a request with its response is a transaction (MODBUS Application Protocol Specification V1.1b3; Messaging on TCP/IP V1.0b).

pub(super) mod request;

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::bytes::be16;
use super::carry::{Carry, Taken};
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Parser, Protocol};
use super::text::text;
use super::transaction::{Kind, TOO_MANY, Transaction, Transactions};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::{ToClient, ToServer};

/// Transaction, protocol, length: the length counts what follows it.
const HEADER: usize = 6;
const PORT: u16 = 502;
/// Unit and function are always there; a message has 260 bytes at most.
const LENGTHS: std::ops::RangeInclusive<usize> = 2..=254;

pub(super) const MODBUS: Protocol = Protocol {
    app: App::Modbus,
    stream: Some(StreamProbe::new(Certainty::Form, look)),
    parser: Some(|start| Box::new(Modbus::new(start.asked))),
    kind: Some(&KIND),
    older_events: &[("flooded", TOO_MANY)],
    unraised_events: &["invalid_unit_identifier"],
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Modbus,
    events: &[
        "invalid_exception_code",
        "invalid_function_code",
        "invalid_length",
        "invalid_protocol_id",
        "invalid_value",
        "unsolicited_response",
        "value_mismatch",
    ],
    // What peers call a flood of requests.
    most: 500,
    ..Kind::EXCHANGE
};

fn look(first: &First<'_>) -> Look {
    if !first.has_port(PORT) {
        return Look::No;
    }
    let zero = |at| matches!(first.at(at), None | Some(0));
    if !zero(2) || !zero(3) || !zero(4) || first.at(5).is_some_and(|n| n < 2) {
        return Look::No;
    }
    match first.at(7) {
        Some(0) => Look::No,
        // Only answers refuse.
        Some(function) if function >= 0x80 && !first.is_server() => Look::No,
        Some(_) => Look::Yes,
        None => Look::Maybe,
    }
}

/// A function: its number, its name in records, and what it does.
type Function = (u8, &'static str, &'static str);

/// Functions of the specification, and those that it reserves.
const FUNCTIONS: &[Function] = &[
    (1, "RdCoils", "READ | COILS"),
    (2, "RdDiscreteInputs", "READ | DISCRETES"),
    (3, "RdHoldRegs", "READ | HOLDING"),
    (4, "RdInputRegs", "READ | INPUT"),
    (5, "WrSingleCoil", "WRITE | COILS | SINGLE"),
    (6, "WrSingleReg", "WRITE | HOLDING | SINGLE"),
    (7, "RdExcStatus", "NONE"),
    (8, "Diagnostic", "NONE"),
    (9, "Program484", "NONE"),
    (10, "Poll484", "NONE"),
    (11, "GetCommEventCtr", "NONE"),
    (12, "GetCommEventLog", "NONE"),
    (13, "ProgramController", "NONE"),
    (14, "PollController", "NONE"),
    (15, "WrMultCoils", "WRITE | COILS | MULTIPLE"),
    (16, "WrMultRegs", "WRITE | HOLDING | MULTIPLE"),
    (17, "ReportServerID", "NONE"),
    (18, "Program884", "NONE"),
    (19, "ResetCommLink", "NONE"),
    (20, "RdFileRec", "NONE"),
    (21, "WrFileRec", "NONE"),
    (22, "MaskWrReg", "WRITE | HOLDING"),
    (23, "RdWrMultRegs", "READ | WRITE | HOLDING | MULTIPLE"),
    (24, "RdFIFOQueue", "NONE"),
    (43, "MEI", "NONE"),
];

/// Codes of exceptions.
const EXCEPTIONS: &[(u8, &str)] = &[
    (1, "IllegalFunction"),
    (2, "IllegalDataAddr"),
    (3, "IllegalDataValue"),
    (4, "ServerDeviceFail"),
    (5, "Ack"),
    (6, "ServerDeviceBusy"),
    (7, "NegAck"),
    (8, "MemParityErr"),
    (10, "GatewayPathUnavailable"),
    (11, "GatewayTargetFailToResp"),
];

/// Which functions a number is of.
fn category(function: u8) -> &'static str {
    match function {
        9 | 10 | 13 | 14 | 18 | 19 | 40 | 41 | 42 | 90 | 91 | 125..=127 => "RESERVED",
        65..=72 | 100..=110 => "USER_DEFINED",
        _ if FUNCTIONS.iter().any(|(n, ..)| *n == function) => "PUBLIC_ASSIGNED",
        _ => "PUBLIC_UNASSIGNED",
    }
}

/// What a request asks for, as far as its response must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// So many bits.
    Bits(u16),
    /// So many registers.
    Registers(u16),
    /// A place, and a value or a count, which the response repeats.
    Echo(u16, u16),
    /// Nothing that is compared.
    Other,
}

/// A request without a response.
struct Pending {
    transaction: u64,
    number: u16,
    unit: u8,
    function: u8,
    asked: Asked,
}

struct Modbus {
    wanted: Wanted,
    halves: [Carry; 2],
    /// The oldest first.
    pending: VecDeque<Pending>,
    /// The transaction of the message that came last.
    last: Option<u64>,
}

/// A message without its length.
struct Message<'a> {
    number: u16,
    protocol: u16,
    unit: u8,
    function: u8,
    data: &'a [u8],
}

/// What is wrong with a message.
#[derive(Default)]
struct Faults {
    length: bool,
    value: bool,
}

impl Faults {
    fn text(&self) -> &'static str {
        match (self.length, self.value) {
            (false, false) => "NONE",
            (true, false) => "DATA_LENGTH",
            (false, true) => "DATA_VALUE",
            (true, true) => "DATA_VALUE | DATA_LENGTH",
        }
    }
}

impl Modbus {
    fn new(wanted: &Wanted) -> Modbus {
        Modbus {
            wanted: *wanted,
            halves: <[Carry; 2]>::default(),
            pending: VecDeque::new(),
            last: None,
        }
    }

    fn request(&mut self, m: &Message<'_>, time: u64, out: &mut Transactions) {
        let most = out.most(&KIND);
        let records = self.wanted.records;
        let t = out.begin(&KIND, time);
        let id = t.id;
        self.last = Some(id);
        let mut said = describe(m);
        let mut faults = Faults::default();
        if m.function == 0 || m.function >= 0x80 {
            t.event("invalid_function_code");
        }
        let asked = read_request(m, &mut said, &mut faults);
        finish(t, ToServer, m, said, &faults, records);
        if self.pending.len() >= most {
            self.pending.pop_front();
        }
        self.pending.push_back(Pending {
            transaction: id,
            number: m.number,
            unit: m.unit,
            function: m.function,
            asked,
        });
    }

    fn response(&mut self, m: &Message<'_>, time: u64, out: &mut Transactions) {
        let is = |p: &Pending| p.number == m.number && p.unit == m.unit;
        let at = self.pending.iter().position(is);
        let found = at.and_then(|at| self.pending.remove(at));
        let found = found.filter(|p| out.find(p.transaction).is_some());
        let id = match &found {
            Some(p) => p.transaction,
            None => {
                let t = out.begin(&KIND, time);
                t.event("unsolicited_response");
                t.only(ToClient);
                t.id
            }
        };
        self.last = Some(id);
        let Some(t) = out.find(id) else {
            return;
        };
        let mut said = describe(m);
        let mut faults = Faults::default();
        let fits = read_response(m, found.as_ref(), &mut said, &mut faults, t);
        if !fits {
            t.event("value_mismatch");
        }
        finish(t, ToClient, m, said, &faults, self.wanted.records);
        t.finish();
    }
}

/// What all messages say.
fn describe(m: &Message<'_>) -> Map<String, Value> {
    let function = m.function & 0x7f;
    let known = FUNCTIONS.iter().find(|(n, ..)| *n == function);
    let mut said = Map::new();
    said.insert("transaction_id".into(), m.number.into());
    said.insert("protocol_id".into(), m.protocol.into());
    said.insert("unit_id".into(), m.unit.into());
    said.insert("function_raw".into(), m.function.into());
    let (name, access) = known.map_or(("Unknown", "NONE"), |(_, name, access)| (name, access));
    said.insert("function_code".into(), name.into());
    said.insert("access_type".into(), access.into());
    said.insert("category".into(), category(function).into());
    said
}

fn finish(
    t: &mut Transaction,
    d: Direction,
    m: &Message<'_>,
    mut said: Map<String, Value>,
    faults: &Faults,
    records: bool,
) {
    if m.protocol != 0 {
        t.event("invalid_protocol_id");
    }
    if faults.length {
        t.event("invalid_length");
    }
    if faults.value {
        t.event("invalid_value");
    }
    if records {
        said.insert("error_flags".into(), faults.text().into());
        t.record.insert("id".into(), (t.number + 1).into());
        let side = match d {
            ToServer => "request",
            ToClient => "response",
        };
        t.record.insert(side.into(), said.into());
    }
    t.finish_side(d);
}

/// Reads what a request asks for.
fn read_request(m: &Message<'_>, said: &mut Map<String, Value>, faults: &mut Faults) -> Asked {
    let d = m.data;
    let pair = || Some((be16(d, 0)?, be16(d, 2)?));
    match m.function {
        1..=4 => {
            let Some((address, quantity)) = pair().filter(|_| d.len() == 4) else {
                faults.length = true;
                return Asked::Other;
            };
            let (most, asked) = match m.function {
                1 | 2 => (2000, Asked::Bits(quantity)),
                _ => (125, Asked::Registers(quantity)),
            };
            faults.value = !(1..=most).contains(&quantity);
            let shown = json!({"address": address, "quantity": quantity});
            said.insert("read".into(), shown);
            asked
        }
        5 | 6 => {
            let Some((address, value)) = pair().filter(|_| d.len() == 4) else {
                faults.length = true;
                return Asked::Other;
            };
            faults.value = m.function == 5 && !matches!(value, 0 | 0xff00);
            said.insert("write".into(), json!({"address": address, "data": value}));
            Asked::Echo(address, value)
        }
        15 | 16 => {
            let (Some((address, quantity)), Some(count)) = (pair(), d.get(4).copied()) else {
                faults.length = true;
                return Asked::Other;
            };
            let (most, bytes) = match m.function {
                15 => (1968, quantity.div_ceil(8)),
                _ => (123, quantity.saturating_mul(2)),
            };
            faults.value = !(1..=most).contains(&quantity) || bytes != u16::from(count);
            faults.length = d.len() != 5 + usize::from(count);
            Asked::Echo(address, quantity)
        }
        22 => {
            faults.length = d.len() != 6;
            Asked::Other
        }
        23 => {
            let (Some((_, quantity)), Some(written), Some(count)) =
                (pair(), be16(d, 6), d.get(8).copied())
            else {
                faults.length = true;
                return Asked::Other;
            };
            let told = u16::from(count) == written.saturating_mul(2);
            faults.value = !(1..=125).contains(&quantity) || !(1..=121).contains(&written) || !told;
            faults.length = d.len() != 9 + usize::from(count);
            Asked::Registers(quantity)
        }
        8 => {
            let Some(code) = be16(d, 0) else {
                faults.length = true;
                return Asked::Other;
            };
            said.insert("diagnostic".into(), diagnostic(code, d));
            Asked::Other
        }
        7 | 11 | 12 | 17 => {
            faults.length = !d.is_empty();
            Asked::Other
        }
        _ => {
            if !d.is_empty() {
                said.insert("data".into(), text(d));
            }
            Asked::Other
        }
    }
}

/// Reads a response; whether it fits what was asked.
fn read_response(
    m: &Message<'_>,
    request: Option<&Pending>,
    said: &mut Map<String, Value>,
    faults: &mut Faults,
    t: &mut Transaction,
) -> bool {
    let d = m.data;
    let same = request.is_none_or(|p| p.function == m.function & 0x7f);
    if m.function >= 0x80 {
        let Some(code) = d.first().copied().filter(|_| d.len() == 1) else {
            faults.length = true;
            return same;
        };
        let known = EXCEPTIONS.iter().find(|(n, _)| *n == code);
        if known.is_none() {
            t.event("invalid_exception_code");
        }
        let name = known.map_or("Unknown", |(_, name)| name);
        said.insert("exception".into(), json!({"raw": code, "code": name}));
        return same;
    }
    if m.function == 0 {
        t.event("invalid_function_code");
        return same;
    }
    let asked = request.filter(|_| same).map(|p| p.asked);
    match m.function {
        1..=4 | 23 => {
            let Some((count, values)) = d.split_first() else {
                faults.length = true;
                return same;
            };
            faults.length = values.len() != usize::from(*count);
            said.insert("read".into(), json!({"data": text(values)}));
            let bytes = match asked {
                Some(Asked::Bits(n)) => n.div_ceil(8),
                Some(Asked::Registers(n)) => n.saturating_mul(2),
                _ => u16::from(*count),
            };
            same && bytes == u16::from(*count)
        }
        5 | 6 | 15 | 16 => {
            let (Some(address), Some(value)) = (be16(d, 0), be16(d, 2)) else {
                faults.length = true;
                return same;
            };
            faults.length = d.len() != 4;
            if m.function < 15 {
                said.insert("write".into(), json!({"address": address, "data": value}));
            }
            let repeated = match asked {
                Some(Asked::Echo(a, v)) => (a, v) == (address, value),
                _ => true,
            };
            same && repeated
        }
        8 => {
            if let Some(code) = be16(d, 0) {
                said.insert("diagnostic".into(), diagnostic(code, d));
            }
            faults.length = d.len() < 2;
            same
        }
        _ => {
            if !d.is_empty() {
                said.insert("data".into(), text(d));
            }
            same
        }
    }
}

/// Names of diagnostics.
const DIAGNOSTICS: &[(u16, &str)] = &[
    (0, "RetQueryData"),
    (1, "RestartCommOpt"),
    (2, "RetDiagReg"),
    (3, "ChangeInputDelimiter"),
    (4, "ForceListenOnlyMode"),
    (10, "ClearCtrDiagReg"),
    (11, "RetBusMsgCount"),
    (12, "RetBusCommErrCount"),
    (13, "RetBusExcErrCount"),
    (14, "RetServerMsgCount"),
    (15, "RetServerNoRespCount"),
    (16, "RetServerNAKCount"),
    (17, "RetServerBusyCount"),
    (18, "RetBusCharOverrunCount"),
    (20, "ClearOverrunCounterFlag"),
];

fn diagnostic(code: u16, d: &[u8]) -> Value {
    let known = DIAGNOSTICS.iter().find(|(n, _)| *n == code);
    let name = known.map_or("Reserved", |(_, name)| name);
    json!({"raw": code, "code": name, "data": text(d.get(2..).unwrap_or_default())})
}

impl Parser for Modbus {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut carry = std::mem::take(d.of_mut(&mut self.halves));
        carry.feed(bytes, |b| {
            if out.failed {
                return Taken::Bytes(b.len());
            }
            let (Some(number), Some(protocol), Some(length)) =
                (be16(b, 0), be16(b, 2), be16(b, 4).map(usize::from))
            else {
                return Taken::More;
            };
            if !LENGTHS.contains(&length) {
                // Where the next message begins nobody knows.
                let t = out.begin(&KIND, time);
                t.event("invalid_length");
                t.only(d);
                t.finish();
                out.failed = true;
                return Taken::Bytes(b.len());
            }
            let Some(&[unit, function, ref data @ ..]) = b.get(HEADER..HEADER + length) else {
                return Taken::More;
            };
            let message = Message {
                number,
                protocol,
                unit,
                function,
                data,
            };
            match d {
                ToServer => self.request(&message, time, out),
                ToClient => self.response(&message, time, out),
            }
            if self.wanted.buffers.has(Buffer::FrameModbusPdu)
                && let Some(t) = self.last.and_then(|id| out.find(id))
                && let Some(whole) = b.get(..HEADER + length)
            {
                t.frame((Buffer::FrameModbusPdu, d), whole, Some(b.len()));
            }
            Taken::Bytes(HEADER + length)
        });
        *d.of_mut(&mut self.halves) = carry;
    }

    fn gap(&mut self, _: Direction, _: u64, out: &mut Transactions) {
        // Lengths are all that tells messages apart.
        out.failed = true;
    }

    fn end(&mut self, d: Direction, out: &mut Transactions) {
        if d == ToClient {
            for p in self.pending.drain(..) {
                if let Some(t) = out.find(p.transaction) {
                    t.finish();
                }
            }
        }
    }

    fn memory(&self) -> usize {
        let [a, b] = &self.halves;
        a.memory() + b.memory() + self.pending.capacity() * size_of::<Pending>()
    }

    fn is_between(&self, d: Direction) -> bool {
        d.of(&self.halves).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::probe::Ports;
    use crate::app::tests::converse_all;

    const PORTS: Ports = Ports {
        client: 40_000,
        server: PORT,
    };

    fn message(number: u16, function: u8, data: &[u8]) -> Vec<u8> {
        let mut m = number.to_be_bytes().to_vec();
        m.extend_from_slice(&[0, 0]);
        m.extend_from_slice(&(data.len() as u16 + 2).to_be_bytes());
        m.extend_from_slice(&[7, function]);
        m.extend_from_slice(data);
        m
    }

    fn events(parts: &[(Direction, &[u8])]) -> Vec<Vec<&'static str>> {
        let talk = converse_all(parts, PORTS);
        assert_eq!(talk.app(), App::Modbus);
        let live = talk.transactions.live.iter();
        live.map(|t| t.events.clone()).collect()
    }

    #[test]
    fn requests_and_responses_are_told() {
        let talk = converse_all(
            &[
                (ToServer, &message(1, 3, &[0, 16, 0, 2])),
                (ToClient, &message(1, 3, &[4, 1, 2, 3, 4])),
                (ToServer, &message(2, 5, &[0, 1, 0xff, 0])),
                (ToClient, &message(2, 0x85, &[2])),
            ],
            PORTS,
        );
        assert_eq!(talk.app(), App::Modbus);
        let out = &talk.transactions.live;
        assert_eq!(out.len(), 2);
        assert!(out.iter().all(|t| t.events.is_empty() && t.done));
        let read = &out[0].record;
        assert_eq!(read["request"]["read"]["quantity"], 2);
        assert_eq!(read["request"]["access_type"], "READ | HOLDING");
        assert_eq!(read["response"]["error_flags"], "NONE");
        let refused = &out[1].record;
        assert_eq!(refused["id"], 2);
        assert_eq!(refused["request"]["write"]["data"], 0xff00);
        assert_eq!(refused["response"]["exception"]["code"], "IllegalDataAddr");
    }

    #[test]
    fn what_is_wrong_is_an_event() {
        let ask = message(1, 1, &[0, 0, 0, 9]);
        for (parts, expected) in [
            (
                vec![(ToServer, message(1, 3, &[0, 0, 0, 126]))],
                "invalid_value",
            ),
            (
                vec![(ToServer, message(1, 3, &[0, 0, 0]))],
                "invalid_length",
            ),
            (
                vec![(ToServer, ask.clone()), (ToClient, message(1, 1, &[1, 0]))],
                "value_mismatch",
            ),
            (
                vec![(ToServer, ask.clone()), (ToClient, message(1, 0x81, &[99]))],
                "invalid_exception_code",
            ),
            (
                vec![(ToServer, message(1, 15, &[0, 0, 0, 9, 1, 0]))],
                "invalid_value",
            ),
        ] {
            let parts: Vec<(Direction, &[u8])> =
                parts.iter().map(|(d, b)| (*d, b.as_slice())).collect();
            assert_eq!(events(&parts), [[expected]], "{parts:?}");
        }
        let unasked = [
            (ToServer, ask.as_slice()),
            (ToClient, &message(9, 1, &[1, 0])),
        ];
        assert_eq!(events(&unasked), [vec![], vec!["unsolicited_response"]]);
        let short = [
            (ToServer, ask.as_slice()),
            (ToServer, &[0, 2, 0, 0, 0, 1, 7]),
        ];
        assert_eq!(events(&short), [vec![], vec!["invalid_length"]]);
        let mut other = ask.clone();
        other[3] = 1;
        let other = [(ToServer, ask.as_slice()), (ToServer, &other)];
        assert_eq!(events(&other), [vec![], vec!["invalid_protocol_id"]]);
    }

    #[test]
    fn a_client_that_is_never_answered_holds_little() {
        let parts: Vec<Vec<u8>> = (0..2000).map(|n| message(n, 1, &[0, 0, 0, 8])).collect();
        let (mut parser, mut out) = (
            Modbus::new(&crate::app::tests::wanted()),
            Transactions::default(),
        );
        for part in &parts {
            parser.data(ToServer, part, 0, &mut out);
            out.live.retain(|t| !t.done);
            assert!(out.live.len() <= KIND.most);
        }
        assert!(parser.memory() <= 64 << 10, "{}", parser.memory());
        assert_eq!(out.overflowed, 1500);
    }
}
