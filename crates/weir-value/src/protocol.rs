//! IP protocols, by name or number.

use crate::{Invalid, decimal};

/// Names of IP protocols. Some have several.
pub const PROTOCOLS: [(&str, u8); 40] = [
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
    ("ip6ip", 41),
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
    ("egp", 8),
    ("ipcomp", 108),
    ("mpls-in-ip", 137),
    ("isis", 124),
    ("fc", 133),
    ("encap", 98),
    ("pgm", 113),
    ("hopopt", 0),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("mobility", 135),
    ("mobility-header", 135),
    ("hip", 139),
    ("shim6", 140),
];

/// A protocol by name or number.
///
/// # Errors
/// There is no such protocol.
pub fn protocol(text: &str) -> Result<u8, Invalid> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == text);
    named
        .map(|(_, number)| *number)
        .or_else(|| decimal(text.as_bytes()).and_then(|n| u8::try_from(n).ok()))
        .ok_or_else(|| {
            Invalid::new(
                "unknown protocol",
                text,
                "a name such as tcp, udp or icmp6, or a number from 0 to 255",
            )
        })
}
