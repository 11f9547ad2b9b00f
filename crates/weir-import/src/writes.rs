//! What rules write: marks, priorities, DSCP, TTL, VLAN tags, MSS, and the targets of weir that write the same.
//!
//! Rules of weir see the packet as received. So a write is only translated where no rule behind it tests what it wrote (`order`).

use crate::condition::{Condition, Field, IP4, IP6, Part, TCP};
use crate::numbers::Numbers;
use crate::values::{self, Family};

/// One field of a packet, and the target that writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) target: String,
    /// A test that conditions cannot say, in front of the target.
    pub(crate) test: Option<String>,
    /// What is written, where conditions can test it.
    pub(crate) field: Option<Field>,
    /// Packets that have the field.
    pub(crate) when: Condition,
    /// Writing it twice is not the same as once.
    pub(crate) counts: bool,
}

/// Why there is no such write.
type Refused = String;

fn field(field: Field, target: String) -> Option<Write> {
    Some(Write {
        target,
        test: None,
        field: Some(field),
        when: Condition::of(field, field.domain())?,
        counts: false,
    })
}

fn meta(of: Field, target: String) -> Write {
    Write {
        target,
        test: None,
        field: Some(of),
        when: Condition::any(),
        counts: false,
    }
}

/// `mark set` of the bits of a mask.
fn mark(value: u32, mask: u32) -> Write {
    let target = match mask {
        u32::MAX => format!("mark set x{value:x}"),
        _ => format!("mark set x{value:x}/x{mask:x}"),
    };
    meta(Field::Mark, target)
}

/// A class `MAJOR:MINOR`, both in hex, or a number.
fn priority(word: &str) -> Option<Write> {
    let number = match word.split_once(':') {
        Some((major, minor)) => {
            let half = |digits: &str| match digits {
                "" => Some(0),
                _ => u16::from_str_radix(digits, 16).ok(),
            };
            u32::from(half(major)?) << 16 | u32::from(half(minor)?)
        }
        None => u32::try_from(values::number(Field::Priority, word)?).ok()?,
    };
    let target = match number >> 16 {
        0 => format!("priority set {number}"),
        major => format!("priority set {major:x}:{:x}", number & 0xffff),
    };
    Some(meta(Field::Priority, target))
}

fn number(of: Field, word: &str, name: &str) -> Option<Write> {
    let value = values::number(of, word)?;
    field(of, format!("mod {name} {value}"))
}

fn dscp(family: Family, word: &str) -> Option<Write> {
    match family {
        Family::Four => number(Field::Dscp4, word, "ip-dscp"),
        Family::Six => number(Field::Dscp6, word, "ip6-dscp"),
    }
}

fn ttl(family: Family, word: &str) -> Option<Write> {
    match family {
        Family::Four => number(Field::Ttl, word, "ip-ttl"),
        Family::Six => number(Field::HopLimit, word, "ip6-hop-limit"),
    }
}

/// Netfilter leaves 0 where 1 was; a router does not send on either. So only what has more is decremented here.
fn decrement(family: Family) -> Option<Write> {
    let of = match family {
        Family::Four => Field::Ttl,
        Family::Six => Field::HopLimit,
    };
    Some(Write {
        when: Condition::of(of, Numbers::range(2, 255))?,
        counts: true,
        ..field(of, "ttl dec".to_owned())?
    })
}

fn word32(word: &str) -> Option<u32> {
    u32::try_from(values::number(Field::Mark, word)?).ok()
}

/// A target of iptables; `None`: it is none that writes what weir can.
pub(crate) fn iptables(
    target: &str,
    options: &[(String, String)],
    family: Family,
) -> Option<Result<Write, Refused>> {
    if !matches!(target, "MARK" | "CLASSIFY" | "DSCP" | "TTL" | "HL") {
        return None;
    }
    let (option, value) = match options {
        [(option, value)] => (option.as_str(), value.as_str()),
        _ => {
            return Some(Err(format!(
                "these options of `{target}` are not understood"
            )));
        }
    };
    let bad = || format!("`{target} {option} {value}` has no counterpart");
    let write = match (target, option, family) {
        ("MARK", "--set-mark" | "--set-xmark", _) => {
            let (value, mask) = value.split_once('/').unwrap_or((value, "0xffffffff"));
            match (word32(value), word32(mask)) {
                (Some(value), Some(mask)) if value & !mask == 0 => Some(mark(value, mask)),
                (Some(value), Some(mask)) if option == "--set-mark" => {
                    Some(mark(value, mask | value))
                }
                (Some(_), Some(_)) => {
                    return Some(Err(
                        "it inverts bits of the mark, and weir sets or clears bits".to_owned(),
                    ));
                }
                _ => None,
            }
        }
        ("MARK", "--or-mark", _) => word32(value).map(|value| mark(value, value)),
        ("MARK", "--and-mark", _) => word32(value).map(|value| mark(0, !value)),
        ("CLASSIFY", "--set-class", _) => priority(value),
        ("DSCP", "--set-dscp" | "--set-dscp-class", _) => dscp(family, &value.to_lowercase()),
        ("TTL", "--ttl-set", Family::Four) | ("HL", "--hl-set", Family::Six) => ttl(family, value),
        ("TTL", "--ttl-dec", Family::Four) | ("HL", "--hl-dec", Family::Six) => match value {
            "1" => decrement(family),
            _ => return Some(Err("weir decrements by 1 only".to_owned())),
        },
        ("TTL", "--ttl-inc", _) | ("HL", "--hl-inc", _) => {
            return Some(Err(
                "weir does not increment a TTL: packets in a loop would never end".to_owned(),
            ));
        }
        _ => None,
    };
    Some(write.ok_or_else(bad))
}

/// A statement of nftables in words, `meta mark set 0x10`.
pub(crate) fn nft(words: &[&str]) -> Result<Write, Refused> {
    let one = match words {
        ["meta", "mark", "set", rest @ ..] => mark_of(rest),
        ["meta", "priority", "set", value] => priority(value),
        ["ip", "dscp", "set", value] => dscp(Family::Four, value),
        ["ip6", "dscp", "set", value] => dscp(Family::Six, value),
        ["ip", "ttl", "set", value] => ttl(Family::Four, value),
        ["ip6", "hoplimit", "set", value] => ttl(Family::Six, value),
        ["vlan", "id", "set", value] => number(Field::VlanId, value, "vlan-id"),
        ["tcp", "option", "maxseg", "size", "set", value] => segment_size(value),
        _ => None,
    };
    let what = words.join(" ");
    one.ok_or_else(|| match words {
        ["ct", ..] => format!(
            "`{what}` writes what belongs to a connection, and weir has marks of packets only"
        ),
        ["meta", "mark" | "priority", "set", ..] => {
            format!("`{what}` is not translated: weir sets fixed values, or bits of the mark")
        }
        _ => format!("`{what}` is not translated"),
    })
}

/// `0x10`, and what `nft list` writes where bits stay: `meta mark & 0xffffff00 | 0x10`, `meta mark | 0x10`, `meta mark & 0xff`.
fn mark_of(words: &[&str]) -> Option<Write> {
    let words: Vec<&str> = (words.iter().copied())
        .filter(|word| !matches!(*word, "(" | ")"))
        .collect();
    let clears = |word: &str| word32(word).map(|kept| !kept);
    match words[..] {
        [value] => Some(mark(word32(value)?, u32::MAX)),
        ["meta", "mark", "&" | "and", kept] => Some(mark(0, clears(kept)?)),
        ["meta", "mark", "|" | "or", value] => Some(mark(word32(value)?, word32(value)?)),
        ["meta", "mark", "&" | "and", kept, "|" | "or", value] => {
            Some(mark(word32(value)?, clears(kept)? | word32(value)?))
        }
        _ => None,
    }
}

/// The kernel lowers a maximum segment size, and never raises one.
fn segment_size(word: &str) -> Option<Write> {
    let size: u16 = word.parse().ok()?;
    let ip = Condition::of(Field::EthType, crate::condition::ip())?;
    Some(Write {
        target: format!("mod tcp-opt-mss {size}"),
        test: Some(format!("tcp-opt-mss > {size}")),
        field: None,
        when: ip.with(&Part::Has(Field::Proto, Numbers::one(TCP)))?,
        counts: false,
    })
}

/// Whether the packets are of one IP version, so that a target for both is meant for these.
pub(crate) fn of_one_version(when: &Condition) -> Option<u128> {
    (when.has.get(&Field::EthType)?.single()).filter(|&version| version == IP4 || version == IP6)
}
