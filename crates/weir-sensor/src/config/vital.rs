//! Keys of configurations that change nothing here though somebody counts on them: without what they ask for, data, alerts or records are lost. Other keys of that kind are about speed,
//! threads and parts that are not here, and are not worth a word.

use crate::settings::Settings;

/// Values that ask for nothing.
const NOTHING: [&str; 5] = ["no", "false", "off", "0", ""];

/// Logs that are not written, by the names of their sections in `outputs`.
const OUTPUTS: &[(&str, &str)] = &[
    ("pcap-log", "packets are not written to captures"),
    (
        "tls-log",
        "the log tls-log is not written; eve-log has records of TLS",
    ),
    (
        "http-log",
        "the log http-log is not written; eve-log has records of HTTP",
    ),
    ("http-body-data", "bodies are not written to files"),
    ("syslog", "alerts do not go to syslog"),
    ("alert-prelude", "alerts do not go to Prelude"),
];

/// Parts of the last word of a key, and what is not done.
const ENDINGS: &[(&str, &str)] = &[
    (
        "memcap-policy",
        "this sensor inspects as much as it can, regardless of this key",
    ),
    (
        "bpf-filter",
        "frames are filtered by -f only: more is inspected than this says",
    ),
];

/// Other keys.
const KEYS: &[(&str, &str)] = &[(
    "multi-detect.enabled",
    "there is one set of rules for all traffic",
)];

/// Keys that could be set once, and what holds now whatever they say.
const OBSOLETE: &[(&str, &str)] = &[(
    "decoder.erspan.typeI.enabled",
    "ERSPAN Type I is no longer configurable; it is always decoded",
)];

/// Those of them that somebody sets, with their value.
pub(super) fn obsolete(s: &Settings) -> Vec<(String, &'static str)> {
    let set =
        |(key, what): &(&str, &'static str)| Some((format!("{key}: {}", s.text(key)?), *what));
    OBSOLETE.iter().filter_map(set).collect()
}

/// What is lost with a key that changes nothing; `None`: nothing that anybody would miss.
pub(super) fn vital(s: &Settings, key: &str, value: &str) -> Option<&'static str> {
    let value = value.trim().to_ascii_lowercase();
    let parts: Vec<&str> = key.split('.').collect();
    let last = parts.last().copied().unwrap_or_default();
    if let ["outputs", number, name, rest @ ..] = parts.as_slice() {
        let lost = OUTPUTS.iter().find(|(n, _)| n == name);
        if let Some((_, what)) = lost {
            // Told once for a section, by its first key: the one that turns it on, or any if it is not said.
            let on = s.text_of_unknown(&format!("outputs.{number}.{name}.enabled"));
            let on = on.is_some_and(|on| !NOTHING.contains(&on.to_ascii_lowercase().as_str()));
            return (on && *rest == ["enabled"]).then_some(*what);
        }
        return None;
    }
    if let Some((_, what)) = ENDINGS.iter().find(|(end, _)| last == *end) {
        let usual =
            NOTHING.contains(&value.as_str()) || matches!(value.as_str(), "auto" | "ignore");
        return (!usual).then_some(*what);
    }
    // The usual policies are those that hold; any other one lets pass, or keeps out, something else.
    if key.starts_with("firewall.policies.") && s.text("firewall.enabled").is_some() {
        return Some("the firewall drops what no rule accepts: packets, and flows of transactions");
    }
    let (_, what) = KEYS.iter().find(|(k, _)| *k == key)?;
    (!NOTHING.contains(&value.as_str())).then_some(*what)
}
