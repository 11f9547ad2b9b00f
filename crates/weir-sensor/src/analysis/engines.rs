//! Where conditions are looked for: the payload and the packet, or buffers of transactions by protocol and direction.

use serde_json::{Value, json};

use crate::app::{self, App};
use crate::buffer::Buffer;
use crate::packet::Direction;

use super::details::{conditions, content, options};
use super::lists::{Lists, decoded, is_of_transactions};
use super::names::engine_name;
use super::patterns::Lead;

/// What is asked of packets and of streams as they come.
pub(super) fn of_packets(lists: &Lists<'_>, lead: Option<&Lead<'_>>) -> Vec<Value> {
    let mut out = Vec::new();
    for (at, group) in lists.rule.groups.iter().enumerate() {
        let payload = group.buffer == Buffer::Payload && !lists.asks_transactions();
        let of_headers = group.buffer != Buffer::Payload && !is_of_transactions(group.buffer);
        if payload || of_headers {
            let leads = lead.is_some_and(|l| l.group == at);
            out.push(json!({"name": engine_name(group.buffer), "is_mpm": leads}));
        }
    }
    if !lists.packet.is_empty() {
        out.push(json!({"name": "packet", "is_mpm": false}));
    }
    out
}

/// What is asked of transactions: the buffer that leads first, its last protocol and direction before the others, then the rest as written.
pub(super) fn of_transactions(lists: &Lists<'_>, lead: Option<&Lead<'_>>) -> Vec<Value> {
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    let ways = |has: &dyn Fn(Direction) -> bool| {
        let both = [
            (Direction::ToServer, "toserver"),
            (Direction::ToClient, "toclient"),
        ];
        let asked = both.into_iter().zip(lists.directions);
        let asked = asked.filter(|((d, _), is)| *is && has(*d));
        asked.map(|((_, name), _)| name).collect::<Vec<_>>()
    };
    for (at, group) in lists.of_transactions() {
        let (own, _) = decoded(group);
        let matches = conditions(lists, at, 0..own, lead);
        let leads = lead.is_some_and(|l| l.group == at);
        let mut engines = Vec::new();
        for app in lists.carriers(group.buffer) {
            for way in ways(&|d| group.buffer.sides().has(d)) {
                engines.push(json!({
                    "name": engine_name(group.buffer),
                    "direction": way,
                    "is_mpm": leads,
                    "app_proto": app.name(),
                    "matches": matches,
                }));
            }
        }
        match leads {
            true => first.extend(engines.into_iter().rev()),
            false => rest.extend(engines),
        }
    }
    for at in &lists.transaction {
        let fact = app::fact(lists.name(*at));
        for app in lists.apps_of(*at).into_iter().map(App::name) {
            for way in ways(&|_| true) {
                // A number of a transaction is known at its end, if not before.
                let name = match (fact, way) {
                    // What a call is for is asked at its end, too, under a name of its own.
                    _ if lists.name(*at).starts_with("dcerpc.") => "dce_generic".to_owned(),
                    (None, _) => lists.name(*at).to_owned(),
                    (Some(fact), "toserver") if !fact.answer => {
                        format!("{app}:request_complete:generic")
                    }
                    (Some(_), _) => format!("{app}:response_complete:generic"),
                };
                rest.push(json!({
                    "name": name,
                    "direction": way,
                    "is_mpm": false,
                    "app_proto": app,
                    "matches": options(lists, &[*at]),
                }));
            }
        }
    }
    if let Some((at, group)) = lists.payload()
        && lists.asks_transactions()
    {
        let leads = lead.is_some_and(|l| l.group == at);
        let (own, _) = decoded(group);
        let matches = conditions(lists, at, 0..own, lead);
        let streams = ways(&|_| true).into_iter().map(|way| {
            json!({"name": "stream", "direction": way, "is_mpm": leads, "app_proto": "unknown", "matches": matches})
        });
        match leads {
            true => first.extend(streams),
            false => rest.extend(streams),
        }
    }
    first.extend(rest);
    first
}

/// The content that leads to the rule, with its buffer.
pub(super) fn leading(lists: &Lists<'_>, lead: &Lead<'_>) -> Option<Value> {
    let group = lists.rule.groups.get(lead.group)?;
    let mut out = content(lists, group, lead.group, lead.condition, true);
    if let Value::Object(map) = &mut out {
        map.insert("buffer".to_owned(), engine_name(group.buffer).into());
    }
    Some(out)
}
