//! How rule sets tell the sender of a dropped packet: `REJECT`, `reject`, `block return`.
//!
//! An answer is a `reject with ...` of weir and the packets that it is for. What a firewall drops without an answer stays a `drop`.

use crate::condition::{Condition, Field, ICMP, ICMP6, IP4, IP6, Part, TCP, ip};
use crate::numbers::Numbers;
use crate::values::Family;

/// What the sender of some of the dropped packets is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Who of them gets it.
    pub(crate) to: Condition,
    /// `reject with ...`
    pub(crate) target: String,
}

/// A code: the word of weir and nftables, its number, other words for it.
pub(crate) type Code = (&'static str, &'static str, &'static [&'static str]);

/// Of ICMP type 3: iptables has the short words that end in `unreach` and `prohib`, pf those that end in `unr`.
pub(crate) const CODES4: &[Code] = &[
    ("net-unreachable", "0", &["net-unreach", "net-unr"]),
    ("host-unreachable", "1", &["host-unreach", "host-unr"]),
    (
        "prot-unreachable",
        "2",
        &["proto-unreachable", "proto-unreach", "proto-unr"],
    ),
    ("port-unreachable", "3", &["port-unreach", "port-unr"]),
    ("net-prohibited", "9", &["net-prohib"]),
    ("host-prohibited", "10", &["host-prohib"]),
    ("admin-prohibited", "13", &["admin-prohib", "filter-prohib"]),
];

/// Of ICMPv6 type 1.
pub(crate) const CODES6: &[Code] = &[
    ("no-route", "0", &["noroute-unr"]),
    ("admin-prohibited", "1", &["adm-prohibited", "admin-unr"]),
    ("addr-unreachable", "3", &["addr-unreach", "addr-unr"]),
    ("port-unreachable", "4", &["port-unreach", "port-unr"]),
    ("policy-fail", "5", &[]),
    ("reject-route", "6", &[]),
];

/// Of either version; nftables numbers them itself.
const CODES: &[Code] = &[
    ("no-route", "0", &[]),
    ("port-unreachable", "1", &[]),
    ("host-unreachable", "2", &[]),
    ("admin-prohibited", "3", &[]),
];

fn code(of: &[Code], word: &str) -> Option<&'static str> {
    let found = (of.iter())
        .find(|(name, number, others)| *name == word || *number == word || others.contains(&word));
    found.map(|(name, ..)| *name)
}

/// Packets with a TCP header. Later fragments have none, and are not answered.
fn segments() -> Condition {
    Condition::of(Field::TcpFlags, Field::TcpFlags.domain()).unwrap_or_default()
}

fn of_version(ether_type: u128) -> Condition {
    Condition::of(Field::EthType, Numbers::one(ether_type)).unwrap_or_default()
}

/// A reset for TCP.
pub(crate) fn reset() -> Answer {
    Answer {
        to: segments(),
        target: "reject with tcp-reset".to_owned(),
    }
}

/// An ICMP error of this version, with a code as any of the firewalls writes it.
pub(crate) fn error(family: Family, word: &str) -> Option<Answer> {
    let (codes, to, kind) = match family {
        Family::Four => (CODES4, IP4, "icmp"),
        Family::Six => (CODES6, IP6, "icmp6"),
    };
    Some(Answer {
        to: of_version(to),
        target: format!("reject with {kind} {}", code(codes, word)?),
    })
}

/// An error of the packet's version.
fn error_of_either(word: &str) -> Option<Answer> {
    Some(Answer {
        to: Condition::of(Field::EthType, ip())?,
        target: format!("reject with icmpx {}", code(CODES, word)?),
    })
}

/// `--reject-with WORD` of iptables; without a word port unreachable.
pub(crate) fn iptables(family: Family, word: &str) -> Option<Answer> {
    let prefix = match family {
        Family::Four => "icmp-",
        Family::Six => "icmp6-",
    };
    match word {
        "" => error(family, "port-unreachable"),
        "tcp-reset" | "tcp-rst" => Some(reset()),
        word => error(family, word.strip_prefix(prefix).unwrap_or(word)),
    }
}

/// `reject` of nftables with what follows it: the answer, for all packets of the rule. nft limits the rule to those that can get it.
pub(crate) fn nft(words: &[&str]) -> Option<Answer> {
    let words: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| *word != "type")
        .collect();
    match words[..] {
        [] => error_of_either("port-unreachable"),
        ["with", "tcp", "reset"] => Some(reset()),
        ["with", "icmp", word] => error(Family::Four, word),
        ["with", "icmpv6", word] => error(Family::Six, word),
        ["with", "icmpx", word] => error_of_either(word),
        _ => None,
    }
}

/// `return`, `return-rst`, `return-icmp` and `return-icmp6` of pf with their codes. pf answers no ICMP.
pub(crate) fn pf(word: &str, options: &[&str]) -> Result<Vec<Answer>, String> {
    let unknown = || format!("weir has no answer like `{word}({})`", options.join(" "));
    let errors = |four: &str, six: &str| -> Result<Vec<Answer>, String> {
        let mut out = Vec::new();
        let both = [(Family::Four, four, ICMP), (Family::Six, six, ICMP6)];
        for (family, code, without) in both.into_iter().filter(|(_, code, _)| !code.is_empty()) {
            let mut answer = error(family, code).ok_or_else(unknown)?;
            let others = Numbers::one(without).not_in(&Field::Proto.domain());
            answer.to = (answer.to)
                .with(&Part::Has(Field::Proto, others))
                .ok_or_else(unknown)?;
            out.push(answer);
        }
        Ok(out)
    };
    match (word, options) {
        ("return", []) => {
            let mut out = vec![reset()];
            // What has no header of TCP is not answered by an error.
            for mut answer in errors("port-unr", "port-unr")? {
                let others = Numbers::one(TCP).not_in(&Field::Proto.domain());
                answer.to = (answer.to)
                    .with(&Part::Has(Field::Proto, others))
                    .ok_or_else(unknown)?;
                out.push(answer);
            }
            Ok(out)
        }
        ("return-rst", []) => Ok(vec![reset()]),
        ("return-icmp", []) => errors("port-unr", "port-unr"),
        ("return-icmp", [four]) => errors(four, "port-unr"),
        ("return-icmp", [four, six]) => errors(four, six),
        ("return-icmp6", []) => errors("", "port-unr"),
        ("return-icmp6", [six]) => errors("", six),
        _ => Err(unknown()),
    }
}
