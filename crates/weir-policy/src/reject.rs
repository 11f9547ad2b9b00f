//! The words of `reject with`: kinds of answers and their codes, as nftables has them.

use crate::model::{Answer, Classes};

/// How a `reject` is written.
pub(crate) const FORMS: &str = "write `reject`, `reject with tcp-reset`, `reject with icmp port-unreachable`, `reject with icmp6 port-unreachable` or `reject with icmpx port-unreachable`";

/// Names of codes and the codes.
type Codes = &'static [(&'static str, u8)];

/// Of ICMP type 3 (RFC 792, RFC 1812 5.2.7.1).
const ICMP: Codes = &[
    ("net-unreachable", 0),
    ("host-unreachable", 1),
    ("prot-unreachable", 2),
    ("port-unreachable", 3),
    ("net-prohibited", 9),
    ("host-prohibited", 10),
    ("admin-prohibited", 13),
];

/// Of ICMPv6 type 1 (RFC 4443 3.1).
const ICMP6: Codes = &[
    ("no-route", 0),
    ("admin-prohibited", 1),
    ("addr-unreachable", 3),
    ("port-unreachable", 4),
    ("policy-fail", 5),
    ("reject-route", 6),
];

/// Of either family: name, code of ICMP, code of ICMPv6.
const ICMPX: &[(&str, u8, u8)] = &[
    ("no-route", 0, 0),
    ("host-unreachable", 1, 3),
    ("port-unreachable", 3, 4),
    ("admin-prohibited", 13, 1),
];

/// Why an answer cannot be.
pub(crate) struct Problem {
    /// The code is meant, not the kind.
    pub(crate) is_code: bool,
    pub(crate) message: String,
    pub(crate) help: String,
}

/// The kind as `weir fmt` writes it.
pub(crate) fn canonical(kind: &str) -> Option<&'static str> {
    let mut words = kind.split_whitespace();
    let (first, second) = (words.next()?, words.next());
    match (first.to_ascii_lowercase().as_str(), second) {
        ("tcp", Some(_)) | ("tcp-reset" | "tcp-rst", None) => Some("tcp-reset"),
        ("icmp" | "icmp4", None) => Some("icmp"),
        ("icmp6" | "icmpv6", None) => Some("icmp6"),
        ("icmpx", None) => Some("icmpx"),
        _ => None,
    }
}

/// The names of codes that may stand behind a kind; `None`: no code does.
pub(crate) fn codes(kind: &str) -> Option<Vec<&'static str>> {
    let names = |codes: Codes| codes.iter().map(|(name, _)| *name).collect();
    match canonical(kind)? {
        "icmp" => Some(names(ICMP)),
        "icmp6" => Some(names(ICMP6)),
        "icmpx" => Some(ICMPX.iter().map(|(name, ..)| *name).collect()),
        _ => None,
    }
}

/// What a kind and its code mean, and which packets have such answers.
pub(crate) fn answer(kind: &str, code: Option<&str>) -> Result<(Answer, Classes), Problem> {
    let usual = Answer::USUAL;
    let without = Answer {
        reset: false,
        ..usual
    };
    let known = canonical(kind).ok_or_else(|| Problem {
        is_code: false,
        message: format!("unknown answer `{kind}`"),
        help: without_kind(kind).unwrap_or_else(|| FORMS.to_owned()),
    })?;
    let code = code.map(str::to_ascii_lowercase).unwrap_or_default();
    let of = |codes: Codes| codes.iter().find(|(name, _)| *name == code).copied();
    let found = match known {
        "tcp-reset" => Some((usual, Classes::TCP)),
        "icmp" => of(ICMP).map(|(_, icmp4)| (Answer { icmp4, ..without }, Classes::IP4)),
        "icmp6" => of(ICMP6).map(|(_, icmp6)| (Answer { icmp6, ..without }, Classes::IP6)),
        _ => (ICMPX.iter().find(|(name, ..)| *name == code)).map(|&(_, icmp4, icmp6)| {
            let answer = Answer {
                icmp4,
                icmp6,
                ..without
            };
            (answer, Classes::default())
        }),
    };
    found.ok_or_else(|| Problem {
        is_code: true,
        message: format!("`{code}` is not a code of `{known}`"),
        help: format!(
            "the codes are {}",
            codes(known).unwrap_or_default().join(", ")
        ),
    })
}

/// What to write for a code without its kind.
fn without_kind(code: &str) -> Option<String> {
    let has = |kind: &str| codes(kind).is_some_and(|codes| codes.contains(&code));
    let kind = ["icmpx", "icmp", "icmp6"]
        .into_iter()
        .find(|kind| has(kind))?;
    Some(format!("write `reject with {kind} {code}`"))
}

/// An answer to packets of these classes in words.
pub(crate) fn phrase(answer: Answer, classes: Classes) -> String {
    let is_tcp = classes.contains(Classes::TCP);
    if answer.reset && is_tcp {
        return "with a TCP reset".to_owned();
    }
    let name = |codes: Codes, code: u8| {
        let found = codes.iter().find(|(_, one)| *one == code);
        found.map_or("?", |(name, _)| name)
    };
    let mut errors = Vec::new();
    if !classes.contains(Classes::IP6) {
        errors.push(format!("ICMP {}", name(ICMP, answer.icmp4)));
    }
    if !classes.contains(Classes::IP4) {
        errors.push(format!("ICMPv6 {}", name(ICMP6, answer.icmp6)));
    }
    let errors = errors.join(" or ");
    let other = [Classes::UDP, Classes::ICMP, Classes::ICMP6];
    if answer.reset && !other.iter().any(|&one| classes.contains(one)) {
        format!("with a reset if it is TCP, else with {errors}")
    } else {
        format!("with {errors}")
    }
}
