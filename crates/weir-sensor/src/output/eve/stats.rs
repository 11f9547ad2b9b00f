//! Counters.

use super::{Object, json};

/// Counters, whose dotted names become objects. They are written by name, so each object stands once. Of the engine: rules that are loaded, refused, and not meant for it.
pub fn stats(
    out: &mut Vec<u8>,
    now: u64,
    uptime: u64,
    counters: &std::collections::BTreeMap<String, u64>,
    (loaded, [refused, skipped]): (usize, [usize; 2]),
) {
    let mut o = Object::new(out);
    o.time("timestamp", now);
    o.string("event_type", "stats");
    let mut stats = o.object("stats");
    stats.number("uptime", uptime);
    let rows: Vec<(&str, u64)> = counters.iter().map(|(n, c)| (n.as_str(), *c)).collect();
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
        stats(&mut out, 0, 9, &counters, (3, [2, 1]));
        let record: Value = serde_json::from_slice(&out).expect("JSON");
        let expected = serde_json::json!({
            "uptime": 9, "a": {"b": 2, "c": {"d": 3, "e": 4}}, "a_b": 5, "ab": {"c": 6}, "detected": 8, "z": 9,
            "detect": {"engines": [{"id": 0, "rules_loaded": 3, "rules_failed": 2, "rules_skipped": 1}], "x": 7},
        });
        assert_eq!(record["stats"], expected);
    }
}
