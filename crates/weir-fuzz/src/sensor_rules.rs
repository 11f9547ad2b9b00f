//! What the sensor reads from elsewhere.

use std::net::Ipv4Addr;

use weir_sensor::rules::{
    Condition, Dialect, LoadSettings, Loader, Reputation, Variables, read_classes, read_filters,
    read_references,
};

/// Loads a file of rules in both dialects and as rules of a firewall, and reads it as each of the tables beside rules.
///
/// Every statement is loaded or refused with a place inside the text, equal texts give equal rules, and what a rule points at is there.
pub fn sensor_rules(text: &[u8]) {
    let lines = text.split(|b| *b == b'\n').count();
    // The third time as rules of a firewall.
    for (dialect, firewall) in [
        (Dialect::Suricata, false),
        (Dialect::Snort, false),
        (Dialect::Suricata, true),
    ] {
        let settings = LoadSettings {
            dialect,
            match_limit: 100,
            ..LoadSettings::default()
        };
        let load = || {
            let mut loader = Loader::new(&settings);
            loader.firewall(firewall);
            loader.text("fuzz", text);
            loader.finish()
        };
        let mut loaded = load();
        assert!(loaded.active() <= lines);
        for refused in &loaded.refused {
            assert!((1..=lines as u32).contains(&refused.place.line));
            assert!(refused.column > 0 && refused.width > 0 && !refused.reason.is_empty());
            assert!(refused.explain().contains('^'));
        }
        for rule in &loaded.rules {
            assert!(rule.sid > 0);
            assert!(rule.firewall.is_some() == firewall);
            let _ = rule.header.source.has(Ipv4Addr::LOCALHOST.into());
            if let Some(fast) = rule.fast_pattern {
                let Condition::Content(content) =
                    &rule.groups[fast.group].conditions[fast.condition]
                else {
                    panic!("the fast pattern is no content");
                };
                let (offset, length) = fast.part.unwrap_or((0, content.bytes.len() as u16));
                assert!(usize::from(offset) + usize::from(length) <= content.bytes.len());
            }
            for condition in rule.groups.iter().flat_map(|g| &g.conditions) {
                match condition {
                    Condition::Content(content) => assert!(!content.bytes.is_empty()),
                    Condition::Pcre(pcre) => {
                        let known = loaded.expressions.len();
                        let expression = loaded.expressions.of(pcre);
                        assert!(
                            known == loaded.expressions.len(),
                            "not compiled by the loader"
                        );
                        let _ = expression.map(|e| e.find(text));
                    }
                    _ => {}
                }
            }
        }
        let again = load();
        assert_eq!(loaded.rules, again.rules);
        assert_eq!(loaded.refused, again.refused);
        assert_eq!(loaded.notes, again.notes);
    }
    let _ = read_classes("fuzz", text);
    let _ = read_references("fuzz", text);
    let _ = read_filters("fuzz", text, &Variables::conventional());
    let mut reputation = Reputation::default();
    let _ = reputation.add_categories("fuzz", text);
    let _ = reputation.add_list("fuzz", text);
    let _ = reputation.score(Ipv4Addr::LOCALHOST.into(), 1);
}
