//! The words of the language that are not fields or names of values: keywords, and how close two words are.

use crate::field::Field;

/// Words that start a target.
pub(crate) const TARGETS: &[&str] = &[
    "mod",
    "add",
    "strip",
    "drop",
    "reject",
    "accept",
    "log",
    "map",
    "shuffle",
    "timeout",
    "mapping",
    "filtering",
    "helper",
    "jump",
    "choose",
    "delete",
    "ttl",
];

/// Targets of two words whose first one is a field.
pub(crate) const OF_FIELDS: &[(&str, &str)] = &[
    ("mark", "set"),
    ("priority", "set"),
    ("vlan", "push"),
    ("vlan", "pop"),
];

/// A target of mmb that weir has not, and mmb never carried out.
pub(crate) const LB: &str = "lb";

/// Words that other programs have for something of weir's, and what to write.
const MEANT: &[(&[&str], &str)] = &[
    (&["allow", "permit", "pass"], "write `accept`"),
    (&["deny", "block", "discard"], "write `drop`"),
    (&["refuse"], "write `reject`"),
    (&["rst", "reset"], "write `reject with tcp-reset`"),
    (
        &["counter", "count"],
        "every rule counts its packets: leave this out",
    ),
    (
        &["goto", "-g", "call"],
        "write `jump CHAIN`: the rules of the chain apply to packets that match this rule, too",
    ),
    (
        &["vmap", "switch", "case"],
        "write `choose tcp-dport { 22: jump admin, 80: accept }`",
    ),
    (
        &["return", "continue", "queue-num"],
        "all rules count, and none ends the others: there is nothing to return from; `accept` beats `drop` wherever it stands",
    ),
    (
        &["masquerade", "snat"],
        "source NAT is `add-stateful in lan0 ip-saddr 10.0.0.0/8 map ip-saddr 198.51.100.1`",
    ),
    (
        &["dnat", "redirect"],
        "destination NAT is `add-stateful ip-daddr 198.51.100.1 tcp-dport 8080 map ip-daddr 10.0.0.2 map tcp-dport 80`",
    ),
    (
        &["set-mark", "set-xmark"],
        "write `mark set x10`, with a mask `mark set x10/xff`",
    ),
    (
        &["meta"],
        "leave this out: `mark x10`, `mark set x10`, `priority set 1:10`, `in eth0`",
    ),
    (
        &["classify", "set-class", "classid", "prio"],
        "write `priority set 1:10`",
    ),
    (&["tcp-port"], "write `tcp-dport` or `tcp-sport`"),
    (&["udp-port"], "write `udp-dport` or `udp-sport`"),
    (&["any", "everything", "*"], "write `all`"),
    (
        &[
            "src",
            "source",
            "saddr",
            "src-ip",
            "ip-src",
            "from",
            "source-ip",
        ],
        "write `ip-saddr` (IPv6: `ip6-saddr`)",
    ),
    (
        &[
            "dst",
            "dest",
            "destination",
            "daddr",
            "dst-ip",
            "ip-dst",
            "to",
            "dest-ip",
        ],
        "write `ip-daddr` (IPv6: `ip6-daddr`)",
    ),
    (
        &["dst-port", "destination-port", "port", "dest-port"],
        "write `dport`, or of one protocol `tcp-dport`",
    ),
    (
        &["src-port", "source-port"],
        "write `sport`, or of one protocol `tcp-sport`",
    ),
    (
        &["src-mac", "smac", "mac-source", "mac-src"],
        "write `eth-saddr`",
    ),
    (
        &["dst-mac", "dmac", "mac-dst", "mac"],
        "write `eth-daddr`, or `eth-saddr`",
    ),
    (
        &["proto", "protocol", "ip-protocol", "l4proto"],
        "write `l4-proto`, or of one family `ip-proto` or `ip6-next`",
    ),
    (
        &[
            "iif",
            "iifname",
            "interface",
            "iface",
            "dev",
            "in-interface",
            "in-if",
        ],
        "write `in eth0`, for packets that leave `out eth0`",
    ),
    (&["oif", "oifname", "out-interface"], "write `out eth0`"),
    (&["dscp", "tos"], "write `ip-dscp` (IPv6: `ip6-dscp`)"),
    (&["mss", "maxseg"], "write `tcp-opt-mss`"),
    (
        &["flags"],
        "write `tcp-flags syn/syn,ack`, or one flag: `tcp-syn`",
    ),
    (&["syn"], "write `tcp-syn`"),
    (&["ack"], "write `tcp-ack`"),
    (
        &[
            "established",
            "related",
            "state",
            "ctstate",
            "invalid",
            "untracked",
        ],
        "write `ct-state in { established, related }`; answers to what `add-stateful` rules open need no rule",
    ),
    (
        &["keep", "stateful", "keep-state"],
        "write `add-stateful` in front of the rule",
    ),
    (
        &["limit", "rate", "rate-limit"],
        "to drop above a rate write `drop over 100/s burst 20`, for each source `drop over 10/s burst 20 per source`; to log less `log \"text\" limit 5/m`",
    ),
    (
        &["over", "above", "per"],
        "a limit is `drop over 100/s burst 20`, for each source `drop over 10/s burst 20 per source`",
    ),
    (
        &["hashlimit", "meter"],
        "a limit for each source is `drop over 10/s burst 20 per source`",
    ),
    (
        &[
            "connlimit",
            "max-connections",
            "max-conns",
            "max-src-conn",
            "connection-limit",
        ],
        "a limit of connections is `drop over 10 connections per source`, in a rule without `add-stateful`",
    ),
    (&["quota"], "a quota is `drop over 500M bytes`"),
    (&["ethertype", "eth-proto"], "write `eth-type`"),
    (&["vlan-tag", "vid"], "write `vlan-id`"),
    (
        &["push-vlan", "push_vlan", "encap-vlan"],
        "write `vlan push 100`",
    ),
    (
        &["pop-vlan", "pop_vlan", "untag", "strip-vlan", "strip_vlan"],
        "write `vlan pop`",
    ),
    (
        &["ip", "ipv4", "ip4"],
        "a field of IPv4 says it: `ip-saddr 10.0.0.0/8`, or `net-proto ip4`",
    ),
    (
        &["ip6", "ipv6"],
        "a field of IPv6 says it: `ip6-saddr 2001:db8::/32`, or `net-proto ip6`",
    ),
    (&["arp"], "write `eth-type arp`"),
    (
        &["ping", "echo-request"],
        "write `icmp-type echo-request` (IPv6: `icmp6-type echo-request`)",
    ),
    (&["new"], "write `ct-state new`"),
    (
        &["with"],
        "`reject` has an answer: write `reject with icmp port-unreachable`",
    ),
    (&["null"], "write `tcp-flags 0`"),
    (&["prefix", "log-prefix"], "write `log \"text\"`"),
    (
        &["for"],
        "leave this out: a time stands right behind the address, as in `add @SET source 10m`",
    ),
    (
        &["country", "geoip", "asn"],
        "write its prefixes to a file: `set NAME = file \"PATH\"` and `ip-saddr in @NAME`",
    ),
    (
        &["bandwidth", "bps", "kbps", "mbps", "police", "shape"],
        "rates count packets, not bytes; `priority set 1:10` chooses a class of the interface's queueing discipline, which shapes",
    ),
    (
        &["else", "otherwise", "default"],
        "write `all drop` as the last rule: it drops what nothing accepts",
    ),
    (
        &["is", "eq", "equals"],
        "leave this out: a value stands right behind its field",
    ),
    (&["ne", "neq"], "write `!=`"),
    (&["gt"], "write `>`"),
    (&["lt"], "write `<`"),
    (&["ge"], "write `>=`"),
    (&["le"], "write `<=`"),
];

/// What to write instead of a word that other programs have.
pub(crate) fn meant(word: &str) -> Option<&'static str> {
    MEANT
        .iter()
        .find(|(words, _)| is_one_of(word, words))
        .map(|&(_, help)| help)
}

/// Commands of mmb that are no rules.
pub(crate) const COMMANDS: &[&str] = &[
    "enable", "disable", "delete", "del", "flush", "list", "show",
];

/// Whether a word looks like a number or an address, whatever the field.
pub(crate) fn looks_like_literal(word: &str) -> bool {
    let first = word.split(['-', '/']).next().unwrap_or("");
    word.starts_with(|c: char| c.is_ascii_digit())
        || word.contains(':')
        || hex_digits(first)
            .is_some_and(|h| !h.is_empty() && h.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// What stands behind `x` or `0x`.
pub(crate) fn hex_digits(word: &str) -> Option<&str> {
    ["x", "X", "0x", "0X"]
        .iter()
        .find_map(|p| word.strip_prefix(p))
}

/// Whether a name may stand in front of a rule or behind `set`.
pub(crate) fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Finds a field by any spelling in any case.
pub(crate) fn field(word: &str) -> Option<Field> {
    let mut buffer = [0u8; 32];
    let lower = buffer.get_mut(..word.len())?;
    lower.copy_from_slice(word.as_bytes());
    lower.make_ascii_lowercase();
    Field::find(std::str::from_utf8(lower).ok()?)
}

/// Whether `word` is one of `words`, in any case.
pub(crate) fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|w| w.eq_ignore_ascii_case(word))
}

/// Every spelling of every field.
pub(crate) fn field_spellings() -> impl Iterator<Item = &'static str> {
    Field::all()
        .flat_map(|f| std::iter::once(f.info().name).chain(f.info().aliases.iter().copied()))
}

/// The candidate nearest to `word`, if one is near enough to be what was meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let allowed = match word.chars().count() {
        0..=4 => 1,
        5..=7 => 2,
        _ => 3,
    };
    candidates
        .into_iter()
        .map(|c| (distance(&word, &c.to_ascii_lowercase()), c))
        .filter(|&(d, c)| d <= allowed && d < c.chars().count())
        .min_by_key(|&(d, _)| d)
        .map(|(_, c)| c)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("tcp-dport", "tcp-dport"), 0);
        assert_eq!(distance("tpc", "tcp"), 1);
        assert_eq!(distance("", "ab"), 2);
        assert_eq!(nearest("tcp-dprot", field_spellings()), Some("tcp-dport"));
        assert_eq!(nearest("entirely-else", field_spellings()), None);
    }

    #[test]
    fn literals() {
        assert!(
            looks_like_literal("x0a-x0f")
                && looks_like_literal("::1")
                && !looks_like_literal("xdp0")
        );
    }
}
