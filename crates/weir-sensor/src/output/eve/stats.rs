//! Counters.

use super::{EveOptions, Object, json};

/// Something that happened to the sensor itself: the part that it happened to, and what; with the interface, if it is about one.
pub fn engine(
    out: &mut Vec<u8>,
    now: u64,
    interface: Option<&str>,
    (module, message): (&str, &str),
    options: &EveOptions,
) {
    let mut o = Object::new(out);
    o.time("timestamp", now);
    if let Some(interface) = interface {
        o.string("in_iface", interface);
    }
    if let Some(host) = &options.host {
        o.string("host", host);
    }
    o.string("event_type", "engine");
    o.string("log_level", "Warning");
    let mut engine = o.object("engine");
    engine.string("module", module);
    engine.string("message", message);
    engine.end();
    o.end();
    out.push(b'\n');
}

/// Counters that users of such records do not know, by how their names begin: they are not in the schema that readers check records against.
const OWN: &[&str] = &[
    "app_layer.flow.unknown",
    "app_layer.memuse",
    "app_layer.overflowed",
    "capture.bypass",
    "capture.cut_frames",
    "capture.link_",
    "capture.not_handed_over",
    "capture.removed",
    "capture.shed",
    "capture.worker.",
    "decoder.event.icmpv4.invalid_checksum",
    "decoder.event.icmpv6.invalid_checksum",
    "decoder.event.ipv4.invalid_checksum",
    "decoder.event.ipv6.exthdr_too_many",
    "decoder.event.link.",
    "decoder.event.tcp.invalid_checksum",
    "decoder.event.too_many_layers",
    "decoder.event.udp.invalid_checksum",
    "decoder.fragments",
    "decoder.max_depth",
    "decoder.not_ip",
    "decoder.packets",
    "defrag.fragments",
    "defrag.invalid",
    "defrag.memuse_peak",
    "defrag.over_cap",
    "defrag.overlap",
    "defrag.pending",
    "defrag.timeout",
    "defrag.used",
    "flow.end.forced",
    "flow.end.shutdown",
    "flow.end.tcp_reuse",
    "flow.end.timeout",
    "flow.evicted_for_memory",
    "flow.memuse_peak",
    "flow.no_flow_packets",
    "flow.packets",
    "inline.",
    "ledger.",
    "output.",
    "stream.3whs_synack_resend_with_different_ack",
    "stream.applayer_",
    "stream.est_synack_resend_with_different_ack",
    "tcp.bytes.",
    "tcp.gap_bytes",
    "tcp.reassembly_memuse_peak",
    "tcp.segments",
    "tcp.sessions_",
];

/// Whether a counter is one of those that only this sensor has.
fn is_own(name: &str) -> bool {
    match name.strip_prefix("detect.") {
        Some(rest) => {
            let shared = ["alert", "alert_queue_overflow", "alerts_suppressed"];
            !shared.contains(&rest) && !rest.starts_with("lua.")
        }
        None => name == "flow.icmp" || OWN.iter().any(|own| name.starts_with(own)),
    }
}

/// Counters, whose dotted names become objects; those that only this sensor has, and those that are 0, if they are asked for (`all`, `zeros`). They are written by name, so each object stands once. Of the engine: rules that are loaded, refused, and not meant for it.
pub fn stats(
    out: &mut Vec<u8>,
    now: u64,
    uptime: u64,
    counters: &std::collections::BTreeMap<String, u64>,
    (loaded, [refused, skipped]): (usize, [usize; 2]),
    (all, zeros): (bool, bool),
) {
    let mut o = Object::new(out);
    o.time("timestamp", now);
    o.string("event_type", "stats");
    let mut stats = o.object("stats");
    stats.number("uptime", uptime);
    let rows: Vec<(&str, u64)> = (counters.iter())
        .map(|(name, count)| (name.as_str(), *count))
        .filter(|(name, count)| (all || !is_own(name)) && (zeros || *count > 0))
        .collect();
    let detect = rows.partition_point(|(name, _)| *name < "detect.");
    let after = rows.partition_point(|(name, _)| *name < "detect/");
    branch(&mut stats, &rows[..detect], 0);
    let mut inner = stats.object("detect");
    json::list(inner.key("engines"), [0], |out, id| {
        let mut engine = Object::new(out);
        engine.number("id", id);
        engine.number("rules_loaded", loaded as u64);
        engine.number("rules_failed", refused as u64);
        engine.number("rules_skipped", skipped as u64);
        engine.end();
    });
    branch(&mut inner, &rows[detect..after], "detect.".len());
    inner.end();
    branch(&mut stats, &rows[after..], 0);
    stats.end();
    o.end();
    out.push(b'\n');
}

/// Counters whose dotted names agree in their first bytes, sorted, as objects within each other. A name that is the beginning of others yields to them.
fn branch(object: &mut Object<'_>, mut rows: &[(&str, u64)], agree: usize) {
    while let Some((name, count)) = rows.first() {
        let own = name.get(agree..).unwrap_or_default();
        let head = own.split_once('.').map_or(own, |(head, _)| head);
        let within = |(name, _): &(&str, u64)| {
            let own = name.get(agree..).and_then(|own| own.strip_prefix(head));
            own.is_some_and(|own| own.starts_with('.'))
        };
        if head.len() == own.len() {
            rows = &rows[1..];
            if !rows.first().is_some_and(within) {
                object.number(head, *count);
            }
            continue;
        }
        let (those, others) = rows.split_at(rows.iter().take_while(|r| within(r)).count());
        let mut inner = object.object(head);
        branch(&mut inner, those, agree + head.len() + 1);
        inner.end();
        rows = others;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn dotted_names_become_objects() {
        let names = [
            "a", "a.b", "a.c.d", "a.c.e", "a_b", "ab.c", "detect.x", "detected", "z",
        ];
        let counters = names.map(str::to_owned).into_iter().zip(1..).collect();
        let mut out = Vec::new();
        stats(&mut out, 0, 9, &counters, (3, [2, 1]), (true, true));
        let record: Value = serde_json::from_slice(&out).expect("JSON");
        let expected = serde_json::json!({
            "uptime": 9, "a": {"b": 2, "c": {"d": 3, "e": 4}}, "a_b": 5, "ab": {"c": 6}, "detected": 8, "z": 9,
            "detect": {"engines": [{"id": 0, "rules_loaded": 3, "rules_failed": 2, "rules_skipped": 1}], "x": 7},
        });
        assert_eq!(record["stats"], expected);
    }
}
