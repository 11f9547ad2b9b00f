//! DNP3 (IEEE 1815) over TCP: frames with their sums, fragments put together, functions and objects. Requests and answers are transactions by themselves; values of points
//! are not read.

mod frame;
mod objects;
mod points;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use self::frame::{Frame, HEADER, Taken};
use self::objects::objects;
use super::names::App;
use super::probe::{Certainty, First, Look, StreamProbe};
use super::protocol::{Fact, Parser, Protocol, Written};
use super::transaction::{Kind, TOO_MANY, Transactions, Turns};
use super::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;
use crate::packet::Direction::ToServer;

/// Bytes of a message that is put together of fragments; devices take 2,048.
const MOST_MESSAGE: usize = 4096;

/// Points of one message that records show.
const MOST_POINTS: u32 = 1024;

pub(super) const DNP3: Protocol = Protocol {
    app: App::Dnp3,
    stream: Some(StreamProbe::new(Certainty::Sure, look)),
    parser: Some(|start| Box::new(Dnp3::new(start.asked))),
    kind: Some(&KIND),
    older_events: &[("flooded", TOO_MANY)],
    facts: &[
        Fact {
            keyword: FUNCTION,
            written: Written::Number(FUNCTIONS),
            what: "function of a message of DNP3",
            ..Fact::NONE
        },
        Fact {
            keyword: OBJECT,
            written: Written::Pair,
            what: "group and variation of an object of DNP3",
            ..Fact::NONE
        },
        Fact {
            keyword: INDICATION,
            written: Written::Choice(INDICATIONS),
            what: "indication that an answer of DNP3 has set",
            ..Fact::NONE
        },
    ],
    ..Protocol::NONE
};

static KIND: Kind = Kind {
    app: App::Dnp3,
    turns: Turns::Message,
    events: &[
        "bad_link_crc",
        "bad_transport_crc",
        "len_too_small",
        "malformed",
        "too_long_reassembly",
        "unknown_object",
    ],
    ..Kind::EXCHANGE
};

const FUNCTION: &str = "dnp3_func";
const OBJECT: &str = "dnp3_obj";
const INDICATION: &str = "dnp3_ind";

/// Functions (IEEE 1815, 4.4), by the names that rules have.
const FUNCTIONS: &[(&str, u64)] = &[
    ("confirm", 0),
    ("read", 1),
    ("write", 2),
    ("select", 3),
    ("operate", 4),
    ("direct_operate", 5),
    ("direct_operate_nr", 6),
    ("immed_freeze", 7),
    ("immed_freeze_nr", 8),
    ("freeze_clear", 9),
    ("freeze_clear_nr", 10),
    ("freeze_at_time", 11),
    ("freeze_at_time_nr", 12),
    ("cold_restart", 13),
    ("warm_restart", 14),
    ("initialize_data", 15),
    ("initialize_appl", 16),
    ("start_appl", 17),
    ("stop_appl", 18),
    ("save_config", 19),
    ("enable_unsolicited", 20),
    ("disable_unsolicited", 21),
    ("assign_class", 22),
    ("delay_measure", 23),
    ("record_current_time", 24),
    ("open_file", 25),
    ("close_file", 26),
    ("delete_file", 27),
    ("get_file_info", 28),
    ("authenticate_file", 29),
    ("abort_file", 30),
    ("activate_config", 31),
    ("authenticate_req", 32),
    ("authenticate_err", 33),
    ("response", 129),
    ("unsolicited_response", 130),
    ("authenticate_resp", 131),
];

/// Indications of a device, from the lowest bit of the first byte on.
const INDICATIONS: &[(&str, u64)] = &[
    ("all_stations", 0),
    ("class_1_events", 1),
    ("class_2_events", 2),
    ("class_3_events", 3),
    ("need_time", 4),
    ("local_control", 5),
    ("device_trouble", 6),
    ("device_restart", 7),
    ("no_func_code_support", 8),
    ("object_unknown", 9),
    ("parameter_error", 10),
    ("event_buffer_overflow", 11),
    ("already_executing", 12),
    ("config_corrupt", 13),
    ("reserved_2", 14),
    ("reserved_1", 15),
];

fn look(first: &First<'_>) -> Look {
    match (first.at(0), first.at(1)) {
        (Some(5), None) => Look::Maybe,
        (Some(5), Some(0x64)) if first.bytes.len() < HEADER => Look::Maybe,
        (Some(5), Some(0x64)) => match Frame::take(first.bytes) {
            Taken::BadHeader | Taken::Short => Look::No,
            Taken::More | Taken::BadData(_) | Taken::Whole(..) => Look::Yes,
        },
        _ => Look::No,
    }
}

struct Dnp3 {
    wanted: Wanted,
    halves: [Half; 2],
}

#[derive(Default)]
struct Half {
    /// A frame that is not whole.
    carry: Vec<u8>,
    /// A message of which a first fragment has come.
    message: Option<Vec<u8>>,
}

impl Dnp3 {
    fn new(wanted: &Wanted) -> Dnp3 {
        Dnp3 {
            wanted: *wanted,
            halves: [Half::default(), Half::default()],
        }
    }

    /// Takes the frame at the front of these bytes, and returns its length; 0: more are needed.
    fn take(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) -> usize {
        let (length, data, frame) = match Frame::take(bytes) {
            Taken::More => return 0,
            // Where the next frame begins is not known.
            Taken::BadHeader => {
                odd(d, "bad_link_crc", time, out);
                out.failed = true;
                return 0;
            }
            Taken::Short => {
                odd(d, "len_too_small", time, out);
                out.failed = true;
                return 0;
            }
            Taken::BadData(length) => {
                odd(d, "bad_transport_crc", time, out);
                d.of_mut(&mut self.halves).message = None;
                return length;
            }
            Taken::Whole(length, data, frame) => (length, data, frame),
        };
        let message = &mut d.of_mut(&mut self.halves).message;
        // Frames that only keep the link up have no data.
        let Some((&transport, part)) = data.split_first().filter(|_| frame.has_data()) else {
            return length;
        };
        if transport & 0x40 != 0 {
            *message = Some(Vec::new());
        }
        let Some(all) = message else {
            return length;
        };
        if all.len() + part.len() > MOST_MESSAGE {
            *message = None;
            odd(d, "too_long_reassembly", time, out);
            return length;
        }
        all.extend_from_slice(part);
        if transport & 0x80 != 0
            && let Some(all) = message.take()
        {
            self.message(d, &frame, &all, time, out);
        }
        length
    }

    fn message(
        &mut self,
        d: Direction,
        frame: &Frame,
        bytes: &[u8],
        time: u64,
        out: &mut Transactions,
    ) {
        // What only says that something has come is no transaction.
        if bytes.len() == 2 && bytes.get(1) == Some(&0) {
            return;
        }
        let t = out.begin(&KIND, time);
        t.only(d);
        // Answers have two bytes of indications.
        let answers = matches!(bytes.get(1), Some(129..=131));
        let head = if answers { 4 } else { 2 };
        let (Some([control, function, ..]), Some(rest)) = (bytes.get(..head), bytes.get(head..))
        else {
            t.event("malformed");
            t.finish();
            return;
        };
        t.facts.push((FUNCTION, u64::from(*function)));
        let (list, complete) = objects(*function, rest);
        if !complete {
            t.event("unknown_object");
        }
        for object in &list {
            let id = u64::from(object.group) << 8 | u64::from(object.variation);
            t.facts.push((OBJECT, id));
        }
        if self.wanted.buffers.has(Buffer::Dnp3Data) {
            t.push(Buffer::Dnp3Data, d, bytes);
        }
        let set = INDICATIONS.iter().filter(|(_, bit)| {
            let byte = answers.then(|| bytes.get(2 + *bit as usize / 8)).flatten();
            byte.is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
        });
        let set: Vec<&(&str, u64)> = set.collect();
        for (_, bit) in &set {
            t.facts.push((INDICATION, *bit));
        }
        if self.wanted.records {
            let r = &mut t.record;
            let kind = match (d, function) {
                (ToServer, _) => "request",
                (_, 130) => "unsolicited_response",
                _ => "response",
            };
            r.insert("type".into(), kind.into());
            r.insert("control".into(), frame.show());
            r.insert("src".into(), frame.source.into());
            r.insert("dst".into(), frame.destination.into());
            let mut application = Map::new();
            let bit = |bit: u8| control & bit != 0;
            let shown = json!({
                "fir": bit(0x80), "fin": bit(0x40), "con": bit(0x20), "uns": bit(0x10),
                "sequence": control & 15,
            });
            application.insert("control".into(), shown);
            application.insert("function_code".into(), (*function).into());
            if !list.is_empty() {
                let mut left = MOST_POINTS;
                let show = |o: &objects::Object| o.show(*function, rest, &mut left);
                let all: Vec<Value> = list.iter().map(show).collect();
                application.insert("objects".into(), all.into());
            }
            application.insert("complete".into(), complete.into());
            r.insert("application".into(), application.into());
            if !set.is_empty() {
                let told: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
                r.insert("iin".into(), json!({"indicators": told}));
            }
        }
        t.finish();
    }
}

/// Something that is wrong with a frame.
fn odd(d: Direction, event: &'static str, time: u64, out: &mut Transactions) {
    let t = out.begin(&KIND, time);
    t.only(d);
    t.event(event);
    t.logged = true;
    t.finish();
}

impl Parser for Dnp3 {
    fn data(&mut self, d: Direction, bytes: &[u8], time: u64, out: &mut Transactions) {
        let mut carry = std::mem::take(&mut d.of_mut(&mut self.halves).carry);
        let mut rest = bytes;
        if !carry.is_empty() {
            carry.extend_from_slice(bytes);
            rest = &carry;
        }
        while !out.failed {
            match self.take(d, rest, time, out) {
                0 => break,
                taken => rest = rest.get(taken..).unwrap_or_default(),
            }
        }
        d.of_mut(&mut self.halves).carry = if carry.is_empty() {
            rest.to_vec()
        } else {
            let taken = carry.len() - rest.len();
            carry.drain(..taken);
            carry
        };
    }

    fn gap(&mut self, _: Direction, _: u64, out: &mut Transactions) {
        // Where the next frame begins is not known.
        out.failed = true;
    }

    fn end(&mut self, _: Direction, _: &mut Transactions) {}

    fn memory(&self) -> usize {
        let half = |h: &Half| h.carry.capacity() + h.message.as_ref().map_or(0, Vec::capacity);
        size_of::<Dnp3>() + self.halves.iter().map(half).sum::<usize>()
    }
}
