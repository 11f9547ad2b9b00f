//! Names of values: the one table of what the language calls numbers.
//!
//! A name stands wherever a value of its field does: in tests, ranges, sets and targets. The tables are part of weir, not of the machine, so that a
//! policy means the same everywhere. Names are those of the IANA registries (Service Name and Transport Protocol Port Number Registry, Protocol Numbers, IEEE 802 Numbers,
//! ICMP and ICMPv6 Parameters, DSCP) in lower case, and those of nftables and iptables beside them; the first name of a number is the one that is printed.

use crate::field::{Field, Kind};
use crate::words::looks_like_literal;

/// Names of numbers.
pub(crate) type Names = &'static [(&'static str, u32)];

/// Ports of TCP and UDP; most services are registered for both.
pub(crate) const SERVICES: Names = &ports(weir_value::SERVICES);

const fn ports<const N: usize>(names: [(&'static str, u16); N]) -> [(&'static str, u32); N] {
    let mut all = [("", 0); N];
    let mut at = 0;
    while at < N {
        all[at] = (names[at].0, names[at].1 as u32);
        at += 1;
    }
    all
}

/// ICMP types.
pub(crate) const ICMP_TYPES: Names = &[
    ("echo-reply", 0),
    ("pong", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("ping", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("ttl-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp", 13),
    ("timestamp-reply", 14),
    ("info-request", 15),
    ("info-reply", 16),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
    ("extended-echo-request", 42),
    ("extended-echo-reply", 43),
];

/// ICMP codes; which name fits depends on the type.
pub(crate) const ICMP_CODES: Names = &[
    ("net-unreachable", 0),
    ("network-unreachable", 0),
    ("host-unreachable", 1),
    ("prot-unreachable", 2),
    ("protocol-unreachable", 2),
    ("port-unreachable", 3),
    ("frag-needed", 4),
    ("fragmentation-needed", 4),
    ("source-route-failed", 5),
    ("net-prohibited", 9),
    ("network-prohibited", 9),
    ("host-prohibited", 10),
    ("admin-prohibited", 13),
    ("communication-prohibited", 13),
];

/// ICMPv6 types.
pub(crate) const ICMP6_TYPES: Names = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("ttl-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("ping", 128),
    ("echo-reply", 129),
    ("pong", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
    ("mld-listener-reduction", 132),
    ("nd-router-solicit", 133),
    ("router-solicitation", 133),
    ("nd-router-advert", 134),
    ("router-advertisement", 134),
    ("nd-neighbor-solicit", 135),
    ("neighbor-solicitation", 135),
    ("neighbour-solicitation", 135),
    ("nd-neighbor-advert", 136),
    ("neighbor-advertisement", 136),
    ("neighbour-advertisement", 136),
    ("nd-redirect", 137),
    ("redirect", 137),
    ("router-renumbering", 138),
    ("ind-neighbor-solicit", 141),
    ("ind-neighbor-advert", 142),
    ("mld2-listener-report", 143),
];

/// ICMPv6 codes; which name fits depends on the type.
pub(crate) const ICMP6_CODES: Names = &[
    ("no-route", 0),
    ("admin-prohibited", 1),
    ("communication-prohibited", 1),
    ("beyond-scope", 2),
    ("addr-unreachable", 3),
    ("address-unreachable", 3),
    ("port-unreachable", 4),
    ("policy-fail", 5),
    ("reject-route", 6),
];

/// States of `ct-state`, with the numbers of nftables.
pub(crate) const CT_STATES: Names = &[
    ("invalid", 1),
    ("established", 2),
    ("related", 4),
    ("new", 8),
    ("untracked", 64),
];

/// Days of the week, with the numbers of nftables.
pub(crate) const DAYS: Names = &[
    ("sun", 0),
    ("sunday", 0),
    ("mon", 1),
    ("monday", 1),
    ("tue", 2),
    ("tuesday", 2),
    ("wed", 3),
    ("wednesday", 3),
    ("thu", 4),
    ("thursday", 4),
    ("fri", 5),
    ("friday", 5),
    ("sat", 6),
    ("saturday", 6),
];

/// Bits of `tcp-flags`, lowest first.
pub(crate) const TCP_FLAGS: Names = &[
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("push", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
    ("ece", 0x40),
    ("ecn", 0x40),
    ("cwr", 0x80),
    ("none", 0),
];

/// IP protocol numbers.
pub(crate) const PROTOCOLS: Names = &numbers(weir_value::PROTOCOLS);

const fn numbers<const N: usize>(names: [(&'static str, u8); N]) -> [(&'static str, u32); N] {
    let mut wide = [("", 0); N];
    let mut at = 0;
    while at < N {
        wide[at] = (names[at].0, names[at].1 as u32);
        at += 1;
    }
    wide
}

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
    ("mpls-multicast", 0x8848),
    ("wol", 0x0842),
    ("ppp", 0x880b),
    ("lacp", 0x8809),
    ("slow", 0x8809),
    ("fcoe", 0x8906),
    ("roce", 0x8915),
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

/// The tables, and the fields whose values they name; for documentation.
pub fn names() -> &'static [(&'static str, &'static [(&'static str, u32)])] {
    &[
        ("ports", SERVICES),
        ("`ip-proto`, `ip6-next`, `l4-proto`", PROTOCOLS),
        ("`eth-type`", ETHER_TYPES),
        ("`ip-dscp`, `ip6-dscp`", CODE_POINTS),
        ("`icmp-type`", ICMP_TYPES),
        ("`icmp-code`", ICMP_CODES),
        ("`icmp6-type`", ICMP6_TYPES),
        ("`icmp6-code`", ICMP6_CODES),
        ("`tcp-flags`", TCP_FLAGS),
        ("`ct-state`", CT_STATES),
        ("`day`", DAYS),
    ]
}

/// A few names that people know.
pub(crate) fn examples(names: Names) -> Vec<&'static str> {
    let known = ["ssh", "domain", "http", "https"];
    let is_known = |&name: &&str| number_of(names, name).is_some();
    match known.iter().all(is_known) {
        true => known.to_vec(),
        false => names.iter().take(5).map(|&(name, _)| name).collect(),
    }
}

/// Names that values of this field may have.
pub(crate) fn names_of(field: Field) -> Names {
    let info = field.info();
    if matches!(info.kind, Kind::NetProto) {
        return FAMILIES;
    }
    match info.name {
        "ip-proto" | "ip6-next" | "l4-proto" => PROTOCOLS,
        "eth-type" => ETHER_TYPES,
        "ip-dscp" | "ip6-dscp" => CODE_POINTS,
        "tcp-sport" | "tcp-dport" | "udp-sport" | "udp-dport" | "sport" | "dport" => SERVICES,
        "icmp-type" => ICMP_TYPES,
        "icmp-code" => ICMP_CODES,
        "icmp6-type" => ICMP6_TYPES,
        "icmp6-code" => ICMP6_CODES,
        "tcp-flags" => TCP_FLAGS,
        "ct-state" => CT_STATES,
        "day" => DAYS,
        _ => &[],
    }
}

/// Whether values of this field are bits with names, which are joined to values and masks.
pub(crate) fn has_flags(field: Field) -> bool {
    field.info().name == "tcp-flags"
}

/// The number of a name, in any case.
pub(crate) fn number_of(names: Names, word: &str) -> Option<u32> {
    names
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(word))
        .map(|&(_, n)| n)
}

/// The two ends of a range of which at least the first is a literal or a name; a name may have a `-` itself.
pub(crate) fn range_of(names: Names, word: &str) -> Option<(&str, &str)> {
    let (left, right) = word.split_once('-')?;
    if looks_like_literal(left) {
        return Some((left, right));
    }
    if names.is_empty() || number_of(names, word).is_some() {
        return None;
    }
    let parts = || {
        let ends = word.match_indices('-');
        ends.filter_map(|(at, _)| Some((word.get(..at)?, word.get(at + 1..)?)))
            .filter(|(left, _)| number_of(names, left).is_some())
    };
    parts()
        .find(|(_, right)| looks_like_literal(right) || number_of(names, right).is_some())
        .or_else(|| parts().next())
}

/// The parts of a value of flags: names, numbers, and what is between them.
pub(crate) fn flag_parts(word: &str) -> impl Iterator<Item = &str> {
    word.split(['/', ',', '|', '+'])
}

/// Whether a word is made of names of the field's values: one, a range that begins with one, or flags.
pub(crate) fn is_named(field: Field, word: &str) -> bool {
    let names = names_of(field);
    if names.is_empty() {
        return false;
    }
    if has_flags(field) {
        return flag_parts(word)
            .all(|part| number_of(names, part).is_some() || looks_like_literal(part));
    }
    number_of(names, word).is_some()
        || range_of(names, word).is_some_and(|(left, right)| {
            number_of(names, left).is_some()
                && (number_of(names, right).is_some() || looks_like_literal(right))
        })
}

/// The name of a value that is printed beside it: of flags all that are set.
pub(crate) fn name_of(field: Field, value: u128) -> Option<String> {
    let names = names_of(field);
    let exact = names.iter().find(|&&(_, n)| u128::from(n) == value);
    if let Some((name, _)) = exact {
        return Some((*name).to_owned());
    }
    if !has_flags(field) {
        return None;
    }
    let mut seen = 0;
    let mut set = Vec::new();
    for &(name, bit) in names {
        if value & u128::from(bit) != 0 && seen & bit == 0 {
            seen |= bit;
            set.push(name);
        }
    }
    Some(set.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{TARGETS, field, is_one_of};

    const TABLES: &[Names] = &[
        SERVICES,
        PROTOCOLS,
        ETHER_TYPES,
        CODE_POINTS,
        FAMILIES,
        ICMP_TYPES,
        ICMP_CODES,
        ICMP6_TYPES,
        ICMP6_CODES,
        TCP_FLAGS,
        CT_STATES,
        DAYS,
    ];

    /// Protocols that are fields as well: behind a field that takes their names they are its value.
    const BOTH: [&str; 5] = ["tcp", "udp", "icmp", "icmp6", "icmpv6"];

    /// A word of a rule is one thing: a name is no field, no target and no number, and stands for one number.
    #[test]
    fn names_are_nothing_else() {
        for table in TABLES {
            let mut seen = std::collections::BTreeSet::new();
            for &(name, _) in *table {
                let is_field = field(name).is_some() && !BOTH.contains(&name);
                assert!(!is_field && !is_one_of(name, TARGETS), "{name}");
                assert!(!looks_like_literal(name), "{name} reads as a number");
                assert!(
                    name.to_ascii_lowercase() == name && seen.insert(name),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn ranges_of_names_that_have_hyphens() {
        let of = |word| range_of(SERVICES, word);
        assert_eq!(of("ftp-data"), None);
        assert_eq!(of("http-https"), Some(("http", "https")));
        assert_eq!(of("ftp-data-ssh"), Some(("ftp-data", "ssh")));
        assert_eq!(of("ssh-http-alt"), Some(("ssh", "http-alt")));
        assert_eq!(of("22-http-alt"), Some(("22", "http-alt")));
        assert_eq!(of("ssh-1024"), Some(("ssh", "1024")));
        assert_eq!(of("ssh-nonsense"), Some(("ssh", "nonsense")));
        assert_eq!(of("nonsense-ssh"), None);
    }

    #[test]
    fn flags_are_named_together() {
        let flags = crate::words::field("tcp-flags").expect("a field");
        let named: Vec<_> = [0x02, 0x12, 0, 0xff, 0xc2]
            .map(|n| name_of(flags, n))
            .into();
        let wanted = [
            "syn",
            "syn,ack",
            "none",
            "fin,syn,rst,psh,ack,urg,ece,cwr",
            "syn,ece,cwr",
        ];
        assert_eq!(named, wanted.map(|name| Some(name.to_owned())));
        assert!(
            is_named(flags, "syn/syn|ack") && is_named(flags, "SYN") && !is_named(flags, "syn-ack")
        );
    }
}
