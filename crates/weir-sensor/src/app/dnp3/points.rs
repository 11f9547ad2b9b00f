//! Points of objects of DNP3 for records: flags, values and times (IEEE 1815, annex A), by the names that readers of such logs know.

use serde_json::{Map, Value};

/// A field of a point, after those before it.
#[derive(Clone, Copy)]
enum Field {
    /// So many bits, the lowest first.
    Bits(&'static str, u8),
    /// A number of so many bytes.
    Number(&'static str, u8),
    /// The same, with a sign.
    Signed(&'static str, u8),
    /// A number with a fraction, of four bytes or eight.
    Float(&'static str, u8),
}

use Field::{Bits, Float, Number, Signed};

const fn bit(name: &'static str) -> Field {
    Bits(name, 1)
}

/// What all kinds of points begin their flags with.
const ONLINE: [Field; 5] = [
    bit("online"),
    bit("restart"),
    bit("comm_lost"),
    bit("remote_forced"),
    bit("local_forced"),
];
const INPUT: [Field; 3] = [bit("chatter_filter"), bit("reserved"), bit("state")];
const DOUBLE: [Field; 2] = [bit("chatter_filter"), Bits("state", 2)];
const OUTPUT: [Field; 3] = [bit("reserved0"), bit("reserved1"), bit("state")];
const COUNTER: [Field; 3] = [bit("rollover"), bit("discontinuity"), bit("reserved0")];
const COUNTER_PLAIN: [Field; 3] = [bit("rollover"), bit("reserved0"), bit("reserved1")];
const ANALOG: [Field; 3] = [bit("over_range"), bit("reference_err"), bit("reserved0")];
const TIME: Field = Number("timestamp", 6);
const RELAY: [Field; 9] = [
    Bits("op_type", 4),
    bit("qu"),
    bit("cr"),
    Bits("tcc", 2),
    Number("count", 1),
    Number("ontime", 4),
    Number("offtime", 4),
    Bits("status_code", 7),
    bit("reserved"),
];

/// The fields of a point; none: its values are not shown.
fn fields(group: u8, variation: u8) -> Vec<Field> {
    let flagged = |flags: &[Field; 3], rest: &[Field]| {
        let mut all = ONLINE.to_vec();
        all.extend_from_slice(flags);
        all.extend_from_slice(rest);
        all
    };
    let counted = |flags: &[Field; 3], size: u8, time: bool| {
        let rest = [Number("count", size), TIME];
        let rest = if time { &rest[..] } else { &rest[..1] };
        flagged(flags, rest)
    };
    // Whole numbers of four bytes or two, and floats of four or eight.
    let value = |at: usize| {
        let all = [
            Signed("value", 4),
            Signed("value", 2),
            Float("value", 4),
            Float("value", 8),
        ];
        all.get(at).copied().unwrap_or(Signed("value", 4))
    };
    match (group, variation) {
        (1 | 10 | 80, 1) => vec![bit("state")],
        (1, 2) => flagged(&INPUT, &[]),
        // Records have its flags as one number.
        (2, 1) => vec![Number("state", 1)],
        (2, 2) => flagged(&INPUT, &[TIME]),
        (2, 3) => flagged(&INPUT, &[Number("timestamp", 2)]),
        (3, 1) => vec![Bits("state", 2)],
        (3, 2) | (4, 1..=3) => {
            let mut all = ONLINE.to_vec();
            all.extend_from_slice(&DOUBLE);
            match (group, variation) {
                (4, 2) => all.push(TIME),
                (4, 3) => all.push(Number("relative_time_ms", 2)),
                _ => {}
            }
            all
        }
        (10, 2) | (11, 1) => flagged(&OUTPUT, &[]),
        (11, 2) => flagged(&OUTPUT, &[TIME]),
        (12, 1 | 2) => RELAY.to_vec(),
        (12, 3) => vec![bit("point")],
        (13, 1) => vec![Bits("status_code", 7), bit("commanded_state")],
        (13, 2) => vec![Bits("status_code", 7), bit("commanded_state"), TIME],
        (20..=23, 1) => counted(&COUNTER, 4, false),
        (20..=23, 2) => counted(&COUNTER, 2, false),
        (20..=23, 3) => counted(&COUNTER_PLAIN, 4, false),
        (20..=23, 4) => counted(&COUNTER_PLAIN, 2, false),
        (21..=23, 5) => counted(&COUNTER, 4, true),
        (21..=23, 6) => counted(&COUNTER, 2, true),
        (21..=23, 7) => counted(&COUNTER_PLAIN, 4, true),
        (21..=23, 8) => counted(&COUNTER_PLAIN, 2, true),
        (20, 5 | 7) | (21, 9 | 11) => vec![Number("count", 4)],
        (20, 6 | 8) | (21, 10 | 12) => vec![Number("count", 2)],
        (30, 1 | 2) => flagged(&ANALOG, &[value(usize::from(variation) - 1)]),
        (30, 3 | 4) => vec![value(usize::from(variation) - 3)],
        (30, 5 | 6) => flagged(&ANALOG, &[value(usize::from(variation) - 3)]),
        (31, 1 | 2) => flagged(&ANALOG, &[value(usize::from(variation) - 1)]),
        (31, 3 | 4) => flagged(&ANALOG, &[value(usize::from(variation) - 3), TIME]),
        (31, 5 | 6) => vec![value(usize::from(variation) - 5)],
        (31, 7 | 8) => flagged(&ANALOG, &[value(usize::from(variation) - 5)]),
        (32 | 33 | 42, 1 | 2) => flagged(&ANALOG, &[value(usize::from(variation) - 1)]),
        (32 | 33 | 42, 3 | 4) => flagged(&ANALOG, &[value(usize::from(variation) - 3), TIME]),
        (32 | 33 | 42, 5 | 6) => flagged(&ANALOG, &[value(usize::from(variation) - 3)]),
        (32 | 33 | 42, 7 | 8) => flagged(&ANALOG, &[value(usize::from(variation) - 5), TIME]),
        (34, 1) => vec![Number("deadband_value", 2)],
        (34, 2) => vec![Number("deadband_value", 4)],
        (34, 3) => vec![Float("deadband_value", 4)],
        (40, 1..=4) => flagged(&ANALOG, &[value(usize::from(variation) - 1)]),
        (41, 1..=4) => vec![
            value(usize::from(variation) - 1),
            Number("control_status", 1),
        ],
        (50, 1 | 3) => vec![TIME],
        (50, 2) => vec![TIME, Number("interval", 4)],
        (50, 4) => vec![TIME, Number("count", 4), Number("interval_units", 1)],
        (51, 1 | 2) => vec![TIME],
        (52, 1) => vec![Number("delay_secs", 2)],
        (52, 2) => vec![Number("delay_ms", 2)],
        _ => Vec::new(),
    }
}

/// Reads bits and bytes, the lowest bit first.
struct Reader<'a> {
    bytes: &'a [u8],
    /// Bits that were read.
    at: usize,
}

impl Reader<'_> {
    fn bits(&mut self, count: u8) -> Option<u64> {
        let mut value = 0;
        for n in 0..usize::from(count) {
            let at = self.at + n;
            let byte = self.bytes.get(at / 8)?;
            value |= u64::from(byte >> (at % 8) & 1) << n;
        }
        self.at += usize::from(count);
        Some(value)
    }

    fn field(&mut self, field: Field) -> Option<(&'static str, Value)> {
        Some(match field {
            Bits(name, count) => (name, self.bits(count)?.into()),
            Number(name, bytes) => (name, self.bits(8 * bytes)?.into()),
            Signed(name, bytes) => {
                let value = self.bits(8 * bytes)?;
                let signed = if bytes == 2 {
                    i64::from(value as u16 as i16)
                } else {
                    i64::from(value as u32 as i32)
                };
                (name, signed.into())
            }
            Float(name, 4) => (name, f32::from_bits(self.bits(32)? as u32).into()),
            Float(name, _) => (name, f64::from_bits(self.bits(64)?).into()),
        })
    }
}

/// The points of an object as records have them: `bytes` is what stands behind its header. `prefix` is the size of the index before each; without one they are counted from `start`.
pub(super) fn points(
    (group, variation): (u8, u8),
    prefix: usize,
    (start, count): (u32, u32),
    bytes: &[u8],
) -> Vec<Value> {
    let fields = fields(group, variation);
    let mut reader = Reader { bytes, at: 0 };
    let mut list = Vec::new();
    for n in 0..count {
        let mut point = Map::new();
        let told = match prefix {
            0 => Some(0),
            size => reader.bits(8 * size as u8),
        };
        let Some(told) = told.filter(|_| !fields.is_empty()) else {
            break;
        };
        let index = if prefix == 0 {
            u64::from(start) + u64::from(n)
        } else {
            told
        };
        point.insert("prefix".into(), told.into());
        point.insert("index".into(), index.into());
        for field in &fields {
            let Some((name, value)) = reader.field(*field) else {
                return list;
            };
            point.insert(name.into(), value);
        }
        // A bit behind an index takes a byte.
        if prefix > 0 {
            reader.at = reader.at.next_multiple_of(8);
        }
        list.push(point.into());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_told() {
        let packed = points((1, 1), 0, (3, 9), &[0b101, 1]);
        assert_eq!(packed.len(), 9);
        assert_eq!(
            (&packed[2]["index"], &packed[2]["state"]),
            (&5.into(), &1.into())
        );
        assert_eq!(packed[8]["state"], 1);
        let analog = points((30, 2), 2, (0, 1), &[7, 0, 0x21, 0xfe, 0xff]);
        assert_eq!(analog[0]["index"], 7);
        assert_eq!(
            (&analog[0]["online"], &analog[0]["over_range"]),
            (&1.into(), &1.into())
        );
        assert_eq!(analog[0]["value"], -2);
        let event = points((2, 1), 2, (0, 1), &[5, 0, 0x81]);
        assert_eq!(
            (&event[0]["index"], &event[0]["state"]),
            (&5.into(), &0x81.into())
        );
        let relay = [1, 3, 1, 100, 0, 0, 0, 100, 0, 0, 0, 0];
        let relay = points((12, 1), 1, (0, 1), &relay);
        assert_eq!(
            (&relay[0]["op_type"], &relay[0]["ontime"]),
            (&3.into(), &100.into())
        );
        let float = points((30, 5), 0, (0, 1), &[1, 0, 0, 0x40, 0x40]);
        assert_eq!(float[0]["value"], 3.0);
        // What is cut off is left out.
        assert_eq!(points((30, 1), 0, (0, 3), &[1, 2, 0, 0, 0, 1]).len(), 1);
        assert!(points((99, 1), 0, (0, 3), &[1, 2, 3]).is_empty());
    }
}
