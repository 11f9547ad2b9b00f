//! What becomes of whole rule sets: the policies are valid, and they and every line that is not translated are as recorded.
//!
//! `WEIR_UPDATE=1` writes the records anew.

use std::path::{Path, PathBuf};

use weir_import::{Format, Imported, Options, import};
use weir_policy::{NoFiles, Source};

/// Rule sets of 200 lines and more, in the manner of published ones, and two for what depends on packets before.
pub(crate) const SETS: &[(&str, Format)] = &[
    ("dmz.iptables-save", Format::IptablesSave),
    ("edge.nft", Format::Nft),
    ("gateway.pf", Format::Pf),
    ("guard.iptables-save", Format::IptablesSave),
    ("guard.nft", Format::Nft),
];

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules")
}

/// The host that the rule sets are for.
pub(crate) fn options() -> Options {
    let prefix = |text: &str| text.parse().expect("a prefix");
    let route = |name: &str, text: &str| (name.to_owned(), prefix(text));
    Options {
        chain: Some("forward".to_owned()),
        local: vec![(Some("wan0".to_owned()), prefix("203.0.113.1/32"))],
        routes: vec![
            route("wan0", "0.0.0.0/0"),
            route("wan0", "::/0"),
            route("lan0", "192.168.10.0/24"),
            route("lan0", "192.168.20.0/24"),
            route("lan0", "2001:db8:10::/64"),
            route("dmz0", "10.20.0.0/24"),
            route("dmz0", "2001:db8:20::/64"),
        ],
        mtu: None,
    }
}

pub(crate) fn imported(name: &str, format: Format) -> Imported {
    let text = std::fs::read_to_string(folder().join(name)).expect(name);
    import(format, &text, name, &options()).expect(name)
}

/// Compares a text with its record.
fn record(name: &str, text: &str) {
    let path = folder().join(name);
    if std::env::var("WEIR_UPDATE").as_deref() == Ok("1") {
        std::fs::write(&path, text).expect("written");
        return;
    }
    let recorded = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, recorded, "{name}: WEIR_UPDATE=1 writes it anew");
}

#[test]
fn rule_sets_become_the_recorded_policies() {
    for &(name, format) in SETS {
        let made = imported(name, format);
        if let Err(errors) = weir_policy::parse(&Source::new(name, made.policy.as_str()), &NoFiles)
        {
            panic!("{name}:\n{}\n{}", errors.render(false), made.policy);
        }
        record(&format!("{name}.weir"), &made.policy);
        let findings: String = made
            .findings
            .iter()
            .map(|one| format!("{one}\n    {}\n", one.text))
            .collect();
        record(&format!("{name}.findings"), &findings);
    }
}
