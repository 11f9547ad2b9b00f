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

/// Targets of iptables that write what weir can.
const TARGETS: &[&str] = &[
    "MARK",
    "CLASSIFY",
    "DSCP",
    "TOS",
    "ECN",
    "TTL",
    "HL",
    "TCPMSS",
    "TCPOPTSTRIP",
];

/// A target of iptables; `None`: it is none that writes what weir can. `mtu`: that of the paths.
pub(crate) fn iptables(
    target: &str,
    options: &[(String, String)],
    family: Family,
    mtu: Option<u16>,
) -> Option<Result<Write, Refused>> {
    if !TARGETS.contains(&target) {
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
        ("TOS", "--set-tos", _) => match tos(family, value) {
            Some(write) => Some(write),
            None => {
                return Some(Err(
                    "weir writes all bits of the DSCP, and this mask keeps some: write `-j DSCP --set-dscp`".to_owned(),
                ));
            }
        },
        ("ECN", "--ecn-tcp-remove", _) => segments(Some(family)).map(|when| Write {
            target: "mod tcp-ece 0 mod tcp-cwr 0".to_owned(),
            test: None,
            field: Some(Field::TcpFlags),
            when,
            counts: false,
        }),
        ("TCPMSS", "--set-mss", _) => value
            .parse()
            .ok()
            .and_then(|size| segment_size(Some(family), size)),
        ("TCPMSS", "--clamp-mss-to-pmtu", _) => match mtu {
            Some(mtu) => clamped(family, mtu),
            None => return Some(Err(NO_MTU.to_owned())),
        },
        ("TCPOPTSTRIP", "--strip-options", _) => {
            let kinds: Option<Vec<u8>> = value.split(',').map(option_kind).collect();
            kinds.and_then(|kinds| without_options(Some(family), &kinds))
        }
        ("TTL", "--ttl-inc", _) | ("HL", "--hl-inc", _) => {
            return Some(Err(
                "weir does not increment a TTL: packets in a loop would never end".to_owned(),
            ));
        }
        _ => None,
    };
    Some(write.ok_or_else(bad))
}

/// What is different where a segment has no maximum segment size, for a target of iptables.
pub(crate) fn left_out(target: &str) -> Option<&'static str> {
    (target == "TCPMSS").then_some(
        "the kernel adds the option to SYN segments that have none: where that is meant write `tcp-syn ! tcp-opt-mss add tcp-opt-mss 536`",
    )
}

/// A statement of nftables in words, `meta mark set 0x10`. Two writes: one for each version of IP. `mtu`: that of the paths.
pub(crate) fn nft(words: &[&str], mtu: Option<u16>) -> Result<Vec<Write>, Refused> {
    let one = match words {
        ["meta", "mark", "set", rest @ ..] => mark_of(rest),
        ["meta", "priority", "set", value] => priority(value),
        ["ip", "dscp", "set", value] => dscp(Family::Four, value),
        ["ip6", "dscp", "set", value] => dscp(Family::Six, value),
        ["ip", "ttl", "set", value] => ttl(Family::Four, value),
        ["ip6", "hoplimit", "set", value] => ttl(Family::Six, value),
        ["vlan", "id", "set", value] => number(Field::VlanId, value, "vlan-id"),
        ["tcp", "option", "maxseg", "size", "set", "rt", "mtu"] => {
            let mtu = mtu.ok_or(NO_MTU)?;
            let both = [Family::Four, Family::Six].map(|family| clamped(family, mtu));
            return Ok(both.into_iter().flatten().collect());
        }
        ["tcp", "option", "maxseg", "size", "set", value] => {
            value.parse().ok().and_then(|size| segment_size(None, size))
        }
        ["reset", "tcp", "option", name] => {
            option_kind(name).and_then(|kind| without_options(None, &[kind]))
        }
        _ => None,
    };
    let what = words.join(" ");
    one.map(|write| vec![write]).ok_or_else(|| match words {
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

/// Why segments are not clamped.
const NO_MTU: &str =
    "the MTU of the paths is not in the file: give it with `--mtu BYTES`, for PPPoE `--mtu 1492`";

/// `VALUE/MASK` of the whole byte, or of the DSCP alone. A mask that keeps bits of either is not weir's.
fn tos(family: Family, value: &str) -> Option<Write> {
    let (value, mask) = value.split_once('/').unwrap_or((value, "0xff"));
    let number = |word: &str| word32(word).and_then(|number| u8::try_from(number).ok());
    let (value, mask) = (number(value)?, number(mask)?);
    let of = match family {
        Family::Four => (Field::Dscp4, "ip-dscp", "ip-ecn"),
        Family::Six => (Field::Dscp6, "ip6-dscp", "ip6-ecn"),
    };
    let (dscp, ecn) = (value >> 2, value & 3);
    let target = match mask {
        0xff => format!("mod {} {dscp} mod {} {ecn}", of.1, of.2),
        0xfc if ecn == 0 => format!("mod {} {dscp}", of.1),
        _ => return None,
    };
    field(of.0, target)
}

/// TCP of one version of IP, or of both.
fn segments(family: Option<Family>) -> Option<Condition> {
    let ip = match family {
        Some(family) => Numbers::one(family.version()),
        None => crate::condition::ip(),
    };
    let ip = Condition::of(Field::EthType, ip)?;
    ip.with(&Part::Has(Field::Proto, Numbers::one(TCP)))
}

/// The kernel lowers a maximum segment size, and never raises one.
fn segment_size(family: Option<Family>, size: u16) -> Option<Write> {
    Some(Write {
        target: format!("mod tcp-opt-mss {size}"),
        test: Some(format!("tcp-opt-mss > {size}")),
        field: None,
        when: segments(family)?,
        counts: false,
    })
}

/// `max-mss` of pf.
pub(crate) fn max_mss(size: &str) -> Option<Write> {
    segment_size(None, size.parse().ok()?)
}

/// What a path of this MTU has room for, without options: RFC 6691.
fn clamped(family: Family, mtu: u16) -> Option<Write> {
    let headers = match family {
        Family::Four => 40,
        Family::Six => 60,
    };
    segment_size(Some(family), mtu.checked_sub(headers)?)
}

/// The kind of a TCP option, by number or as iptables and nftables call it.
fn option_kind(name: &str) -> Option<u8> {
    let named = match name {
        "mss" | "maxseg" => 2,
        "wscale" | "window" => 3,
        "sack-permitted" | "sack-perm" => 4,
        "sack" => 5,
        "timestamp" => 8,
        "md5" | "md5sig" => 19,
        "mptcp" => 30,
        "fastopen" => 34,
        _ => return name.parse().ok().filter(|kind| *kind > 1),
    };
    Some(named)
}

/// Without these options. The kernel writes NOPs over them, weir moves what is behind.
fn without_options(family: Option<Family>, kinds: &[u8]) -> Option<Write> {
    let strips = kinds.iter().map(|kind| format!("strip tcp-opt {kind}"));
    Some(Write {
        target: strips.collect::<Vec<_>>().join(" "),
        test: None,
        field: None,
        when: segments(family)?,
        counts: false,
    })
}

/// Whether the packets are of one IP version, so that a target for both is meant for these.
pub(crate) fn of_one_version(when: &Condition) -> Option<u128> {
    (when.has.get(&Field::EthType)?.single()).filter(|&version| version == IP4 || version == IP6)
}
