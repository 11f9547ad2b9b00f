//! What a message of LDAP says: its operation, the names in it, its result.

use serde_json::{Map, Value, json};

use super::names::{OPERATIONS, RESULTS, name_of};
use crate::app::ber::{element, elements, number};
use crate::app::text::text;

/// Names and values of one message that are read.
const MOST_NAMES: usize = 256;
/// Bytes of a value that records show.
const MOST_VALUE: usize = 1024;

/// One message.
pub(super) struct Message<'a> {
    pub(super) id: u64,
    pub(super) operation: u8,
    content: &'a [u8],
}

/// What rules and records are told of a message.
#[derive(Default)]
pub(super) struct Said<'a> {
    pub(super) name: Option<&'a [u8]>,
    pub(super) attributes: Vec<&'a [u8]>,
    /// Code and message of a result.
    pub(super) result: Option<(u64, &'a [u8])>,
    /// Which extension is asked for.
    pub(super) extension: Option<&'a [u8]>,
    /// What its record has beside its operation.
    pub(super) record: Map<String, Value>,
}

/// Operations of a client, with the tags they have.
const REQUESTS: &[u8] = &[0x60, 0x42, 0x63, 0x66, 0x68, 0x4a, 0x6c, 0x6e, 0x50, 0x77];
/// Of a server.
const RESPONSES: &[u8] = &[
    0x61, 0x64, 0x65, 0x67, 0x69, 0x6b, 0x6d, 0x6f, 0x73, 0x78, 0x79,
];

/// Whether an operation with this tag is one of the client, or of the server.
pub(super) fn is_operation(tag: u8, server: bool) -> bool {
    if server { RESPONSES } else { REQUESTS }.contains(&tag)
}

impl<'a> Message<'a> {
    /// The content of a message.
    pub(super) fn read(content: &'a [u8]) -> Option<Message<'a>> {
        let (2, id, rest) = element(content)? else {
            return None;
        };
        let (tag, content, _) = element(rest)?;
        (is_operation(tag, false) || is_operation(tag, true)).then_some(Message {
            id: number(id)?,
            operation: tag & 0x1f,
            content,
        })
    }

    /// Whether the server says it.
    pub(super) fn is_response(&self) -> bool {
        matches!(
            self.operation,
            1 | 4 | 5 | 7 | 9 | 11 | 13 | 15 | 19 | 24 | 25
        )
    }

    /// Whether more responses follow this one.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self.operation, 4 | 19 | 25)
    }

    /// The name of its operation.
    pub(super) fn name(&self) -> &'static str {
        name_of(OPERATIONS, u64::from(self.operation)).unwrap_or("unknown")
    }

    /// What it says. `records`: also for the log.
    pub(super) fn said(&self, records: bool) -> Said<'a> {
        let mut said = Said::default();
        let mut record = Map::new();
        self.read_into(&mut said, records.then_some(&mut record));
        said.record = record;
        said
    }

    fn read_into(
        &self,
        said: &mut Said<'a>,
        record: Option<&mut Map<String, Value>>,
    ) -> Option<()> {
        let mut r = Shown(record);
        let mut fields = elements(self.content);
        match self.operation {
            // Bind: version, name, and a password or a mechanism.
            0 => {
                let version = fields.next()?;
                r.put("version", || fields_number(Some(version)));
                let name = fields.next()?.1;
                said.name = Some(name);
                r.text("name", name);
                if let (0xa3, sasl) = fields.next()? {
                    let mut sasl = elements(sasl);
                    let mechanism = sasl.next()?.1;
                    r.put("sasl", || json!({"mechanism": text(mechanism)}));
                }
            }
            // Delete, abandon: nothing but what they are about.
            10 => {
                said.name = Some(self.content);
                r.text("dn", self.content);
            }
            16 => r.put("message_id", || number(self.content).into()),
            // A reference to other servers has a name of its own, which records do not show.
            2 | 19 => {}
            3 => {
                let base = fields.next()?.1;
                said.name = Some(base);
                r.text("base_object", base);
                for key in ["scope", "deref_alias", "size_limit", "time_limit"] {
                    let field = fields.next()?;
                    r.put(key, || fields_number(Some(field)));
                }
                let types = fields.next()?.1;
                r.put("types_only", || (types != [0]).into());
                // What entries must be like is not shown: readers of such records do not know it.
                fields.next()?;
                let names = elements(fields.next()?.1).map(|(_, name)| name);
                said.attributes = names.take(MOST_NAMES).collect();
                if !said.attributes.is_empty() {
                    r.put("attributes", || texts(said.attributes.iter().copied()));
                }
            }
            4 => {
                let base = fields.next()?.1;
                said.name = Some(base);
                r.text("base_object", base);
                self.attributes(fields.next()?.1, "type", said, &mut r);
            }
            8 => {
                let entry = fields.next()?.1;
                said.name = Some(entry);
                r.text("entry", entry);
                self.attributes(fields.next()?.1, "name", said, &mut r);
            }
            6 => {
                let object = fields.next()?.1;
                said.name = Some(object);
                r.text("object", object);
                let mut changes = Vec::new();
                for (_, change) in elements(fields.next()?.1).take(MOST_NAMES) {
                    let mut parts = elements(change);
                    let how = match parts.next().and_then(|(_, n)| number(n)) {
                        Some(0) => "add",
                        Some(1) => "delete",
                        Some(2) => "replace",
                        Some(3) => "increment",
                        _ => "unknown",
                    };
                    let mut modified = elements(parts.next()?.1);
                    let kind = modified.next()?.1;
                    said.attributes.push(kind);
                    if r.0.is_some() {
                        let values = modified.next().map_or(&[][..], |(_, set)| set);
                        let values = texts(elements(values).map(|v| v.1).take(MOST_NAMES));
                        let modification =
                            json!({"attribute_type": text(kind), "attribute_values": values});
                        changes.push(json!({"operation": how, "modification": modification}));
                    }
                }
                r.put("changes", || changes.into());
            }
            12 => {
                let entry = fields.next()?.1;
                said.name = Some(entry);
                r.text("entry", entry);
                r.text("new_rdn", fields.next()?.1);
                let deletes = fields.next()?.1 != [0];
                r.put("delete_old_rdn", || deletes.into());
                if let Some((0x80, superior)) = fields.next() {
                    r.text("new_superior", superior);
                }
            }
            14 => {
                let entry = fields.next()?.1;
                said.name = Some(entry);
                r.text("entry", entry);
                let mut assertion = elements(fields.next()?.1);
                let (kind, value) = (assertion.next()?.1, assertion.next()?.1);
                said.attributes.push(kind);
                r.put(
                    "attribute_value_assertion",
                    || json!({"description": text(kind), "value": text(shortened(value))}),
                );
            }
            23 | 25 => {
                for (tag, value) in fields {
                    match tag & 0x1f {
                        0 => {
                            said.extension = Some(value);
                            r.text("name", value);
                        }
                        1 => r.text("value", value),
                        _ => {}
                    }
                }
            }
            // All others are results: a code, a name, a message, and what some have beside.
            _ => {
                let code = number(fields.next()?.1)?;
                let (name, message) = (fields.next()?.1, fields.next()?.1);
                said.name = Some(name);
                said.result = Some((code, message));
                r.put("result_code", || match name_of(RESULTS, code) {
                    Some(name) => name.into(),
                    None => format!("unknown-{code}").into(),
                });
                r.text("matched_dn", name);
                r.text("message", message);
                for (tag, value) in fields {
                    match (self.operation, tag) {
                        (1, 0x87) => r.text("server_sasl_creds", value),
                        (24, 0x8a) => r.text("name", value),
                        (24, 0x8b) => r.text("value", value),
                        _ => {}
                    }
                }
            }
        }
        Some(())
    }

    /// A list of attributes with their values.
    fn attributes(&self, list: &'a [u8], key: &str, said: &mut Said<'a>, r: &mut Shown<'_>) {
        let mut shown = Vec::new();
        for (_, attribute) in elements(list).take(MOST_NAMES) {
            let mut parts = elements(attribute);
            let Some((_, name)) = parts.next() else {
                continue;
            };
            said.attributes.push(name);
            if r.0.is_some() {
                let values = parts.next().map_or(&[][..], |(_, set)| set);
                let values = texts(elements(values).map(|v| v.1).take(MOST_NAMES));
                shown.push(json!({key: text(name), "values": values}));
            }
        }
        if !shown.is_empty() {
            r.put("attributes", || shown.into());
        }
    }
}

/// The record, where one is written.
struct Shown<'a>(Option<&'a mut Map<String, Value>>);

impl Shown<'_> {
    fn put(&mut self, key: &str, value: impl FnOnce() -> Value) {
        if let Some(record) = &mut self.0 {
            record.insert(key.to_owned(), value());
        }
    }

    fn text(&mut self, key: &str, bytes: &[u8]) {
        self.put(key, || text(shortened(bytes)));
    }
}

fn fields_number(field: Option<(u8, &[u8])>) -> Value {
    field.and_then(|(_, n)| number(n)).into()
}

fn texts<'a>(all: impl Iterator<Item = &'a [u8]>) -> Value {
    all.map(|value| text(shortened(value))).collect()
}

fn shortened(bytes: &[u8]) -> &[u8] {
    bytes.get(..MOST_VALUE).unwrap_or(bytes)
}
