//! Counters.

use super::Object;

/// Counters, whose dotted names become objects. They are written by name, so each object stands once.
pub fn stats(
    out: &mut Vec<u8>,
    now: u64,
    uptime: u64,
    counters: &std::collections::BTreeMap<String, u64>,
) {
    let mut o = Object::new(out);
    o.time("timestamp", now);
    o.string("event_type", "stats");
    let mut stats = o.object("stats");
    stats.number("uptime", uptime);
    let rows: Vec<(&str, u64)> = counters.iter().map(|(n, c)| (n.as_str(), *c)).collect();
    branch(&mut stats, &rows, 0);
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
        let names = ["a", "a.b", "a.c.d", "a.c.e", "a_b", "ab.c", "z"];
        let counters = names.map(str::to_owned).into_iter().zip(1..).collect();
        let mut out = Vec::new();
        stats(&mut out, 0, 9, &counters);
        let record: Value = serde_json::from_slice(&out).expect("JSON");
        let expected = serde_json::json!({
            "uptime": 9, "a": {"b": 2, "c": {"d": 3, "e": 4}}, "a_b": 5, "ab": {"c": 6}, "z": 7,
        });
        assert_eq!(record["stats"], expected);
    }
}
