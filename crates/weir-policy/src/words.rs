//! The words of the language that are not fields: keywords, names of numbers, and how close two words are.
//!
//! Names of numbers are those of the IANA registries, in lower case; the first name of a number is its canonical one.

use crate::field::{Field, Kind};

/// Words that start a target.
pub(crate) const TARGETS: &[&str] = &[
    "mod",
    "add",
    "strip",
    "drop",
    "accept",
    "log",
    "map",
    "shuffle",
    "timeout",
    "mapping",
    "filtering",
    "helper",
];

/// A target of mmb that weir has not, and mmb never carried out.
pub(crate) const LB: &str = "lb";

/// Commands of mmb that are no rules.
pub(crate) const COMMANDS: &[&str] = &[
    "enable", "disable", "delete", "del", "flush", "list", "show",
];

/// Names of numbers.
pub(crate) type Names = &'static [(&'static str, u32)];

/// IP protocol numbers.
pub(crate) const PROTOCOLS: Names = &[
    ("tcp", 6),
    ("udp", 17),
    ("icmp", 1),
    ("icmp6", 58),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("igmp", 2),
    ("ipip", 4),
    ("ip6", 41),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("sctp", 132),
    ("ospf", 89),
    ("dccp", 33),
    ("udplite", 136),
    ("udp-lite", 136),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("eigrp", 88),
    ("rsvp", 46),
    ("hopopt", 0),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("mobility", 135),
    ("hip", 139),
    ("shim6", 140),
];

/// EtherTypes. VLAN tags are not among them: `eth-type` lies behind the last tag.
pub(crate) const ETHER_TYPES: Names = &[
    ("ip4", 0x0800),
    ("ipv4", 0x0800),
    ("ip", 0x0800),
    ("ip6", 0x86dd),
    ("ipv6", 0x86dd),
    ("arp", 0x0806),
    ("rarp", 0x8035),
    ("mpls", 0x8847),
    ("pppoe-discovery", 0x8863),
    ("pppoe", 0x8864),
    ("eapol", 0x888e),
    ("lldp", 0x88cc),
    ("macsec", 0x88e5),
    ("ptp", 0x88f7),
];

/// Differentiated services code points.
pub(crate) const CODE_POINTS: Names = &[
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("le", 1),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("voice-admit", 44),
    ("ef", 46),
];

/// `net-proto`, as IP versions.
pub(crate) const FAMILIES: Names = &[("ip4", 4), ("ip6", 6), ("ipv4", 4), ("ipv6", 6)];

/// Names that values of this field may have.
pub(crate) fn names_of(field: Field) -> Names {
    let info = field.info();
    if matches!(info.kind, Kind::NetProto) {
        return FAMILIES;
    }
    match info.name {
        "ip-proto" | "ip6-next" => PROTOCOLS,
        "eth-type" => ETHER_TYPES,
        "ip-dscp" | "ip6-dscp" => CODE_POINTS,
        _ => &[],
    }
}

/// The number of a name, in any case.
pub(crate) fn number_of(names: Names, word: &str) -> Option<u32> {
    names
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(word))
        .map(|&(_, n)| n)
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
    fn no_name_is_a_field_or_a_target() {
        for (name, _) in PROTOCOLS
            .iter()
            .chain(ETHER_TYPES)
            .chain(CODE_POINTS)
            .chain(FAMILIES)
        {
            assert!(field(name).is_none() && !is_one_of(name, TARGETS), "{name}");
        }
    }
}
