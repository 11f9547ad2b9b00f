//! CIP, which EtherNet/IP carries: requests with their paths, answers with their status, several of them in one message.

use serde_json::{Map, Value, json};

use super::names::{CLASSES, GENERAL, SERVICES, name};
use crate::app::transaction::Transaction;
use crate::app::wanted::Wanted;
use crate::buffer::Buffer;
use crate::packet::Direction;

/// Messages in one that are looked at, segments of a path, attributes of a list.
const MOST: usize = 64;

pub(super) const SERVICE: &str = "cip_service";
/// A service with a class, and with an attribute: 32 and 16 bits in front of it.
pub(super) const SERVICE_CLASS: &str = "cip_service.class";
pub(super) const SERVICE_ATTRIBUTE: &str = "cip_service.attribute";
pub(super) const CLASS: &str = "enip.cip_class";
pub(super) const INSTANCE: &str = "enip.cip_instance";
pub(super) const ATTRIBUTE: &str = "enip.cip_attribute";
pub(super) const STATUS: &str = "enip.cip_status";
pub(super) const EXTENDED: &str = "enip.cip_extendedstatus";

pub(super) fn le16(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*b.get(at..)?.first_chunk()?))
}

pub(super) fn le32(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*b.get(at..)?.first_chunk()?))
}

/// A segment of a path: what it names, and its number.
type Segment = (&'static str, u32);

/// The segments of a path that name something by a number; `None`: it is malformed.
fn path(mut b: &[u8]) -> Option<Vec<Segment>> {
    let mut all = Vec::new();
    while let Some(&kind) = b.first() {
        let what = match kind & 0xfc {
            0x20 => "class",
            0x24 => "instance",
            0x28 => "member",
            0x2c => "connection_point",
            0x30 => "attribute",
            // Names, ports and keys come in other forms, and end what is told.
            _ => return Some(all),
        };
        let (number, length) = match kind & 3 {
            0 => (u32::from(*b.get(1)?), 2),
            1 => (u32::from(le16(b, 2)?), 4),
            2 => (le32(b, 2)?, 6),
            _ => return Some(all),
        };
        if all.len() < MOST {
            all.push((what, number));
        }
        b = b.get(length..)?;
    }
    Some(all)
}

/// Reads a message; returns what a record says of it; `None`: it is malformed.
pub(super) fn read(
    b: &[u8],
    t: &mut Transaction,
    of: (Direction, &Wanted),
    inside: bool,
) -> Option<Map<String, Value>> {
    if of.1.buffers.has(Buffer::FrameEnipCip) {
        t.frame((Buffer::FrameEnipCip, of.0), b, None);
    }
    let &first = b.first()?;
    let service = first & 0x7f;
    let mut said = Map::new();
    said.insert("service".into(), name(SERVICES, service.into()).into());
    t.facts.push((SERVICE, service.into()));
    let rest = match first & 0x80 != 0 {
        true => answer(b, t, &mut said)?,
        false => request(service, b, t, &mut said)?,
    };
    if service == 0x0a && !inside {
        let count = usize::from(le16(rest, 0).unwrap_or(0));
        let mut several = Vec::new();
        for n in 0..count.min(MOST) {
            let start = usize::from(le16(rest, 2 + 2 * n)?);
            let end = match n + 1 < count {
                true => usize::from(le16(rest, 4 + 2 * n)?),
                false => rest.len(),
            };
            several.push(read(rest.get(start..end)?, t, of, true)?.into());
        }
        said.insert("multiple".into(), Value::Array(several));
    }
    Some(said)
}

fn request<'a>(
    service: u8,
    b: &'a [u8],
    t: &mut Transaction,
    said: &mut Map<String, Value>,
) -> Option<&'a [u8]> {
    let words = usize::from(*b.get(1)?);
    let (whole, rest) = b.get(2..)?.split_at_checked(2 * words)?;
    let segments = path(whole)?;
    let mut class = None;
    let mut attributes = Vec::new();
    for (what, number) in &segments {
        match *what {
            "class" => {
                class = Some(*number);
                t.facts.push((CLASS, u64::from(*number)));
            }
            "instance" => t.facts.push((INSTANCE, u64::from(*number))),
            "attribute" => attributes.push(*number),
            _ => {}
        }
    }
    // Attributes that a list names.
    if service == 3 {
        let count = usize::from(le16(rest, 0).unwrap_or(0)).min(MOST);
        let list = (0..count).filter_map(|n| le16(rest, 2 + 2 * n));
        attributes.extend(list.map(u32::from));
    }
    if let Some(class) = class {
        let pair = u64::from(service) << 32 | u64::from(class);
        t.facts.push((SERVICE_CLASS, pair));
        for attribute in &attributes {
            let all = pair << 16 | u64::from(*attribute & 0xffff);
            t.facts.push((SERVICE_ATTRIBUTE, all));
        }
        said.insert("class_name".into(), name(CLASSES, class.into()).into());
    }
    for attribute in &attributes {
        t.facts.push((ATTRIBUTE, u64::from(*attribute)));
    }
    let shown = |(what, number): &Segment| json!({"segment_type": what, "value": number});
    let shown: Vec<Value> = segments.iter().map(shown).collect();
    said.insert("path".into(), shown.into());
    Some(rest)
}

fn answer<'a>(b: &'a [u8], t: &mut Transaction, said: &mut Map<String, Value>) -> Option<&'a [u8]> {
    let status = *b.get(2)?;
    let words = usize::from(*b.get(3)?);
    t.facts.push((STATUS, status.into()));
    said.insert("status".into(), name(GENERAL, status.into()).into());
    if words > 0 {
        let extended = le16(b, 4)?;
        t.facts.push((EXTENDED, extended.into()));
        said.insert("status_extended".into(), extended.to_string().into());
    }
    b.get(4 + 2 * words..)
}
