//! What only the log needs: names of numbers, and records as their version 2 had them.

use serde_json::{Map, Value};

use super::numbers::MOST_LOGGED;

/// A record as version 2 of the log has it: one for each question of a query; one for an answer, about its first question.
pub(crate) fn older(record: &Map<String, Value>) -> Vec<Map<String, Value>> {
    let is_answer = record.get("type").is_some_and(|t| t == "response");
    let mut common = Map::new();
    common.insert("version".into(), 2.into());
    let kind = if is_answer { "answer" } else { "query" };
    common.insert("type".into(), kind.into());
    let kept: &[&str] = if is_answer {
        &[
            "id",
            "flags",
            "qr",
            "aa",
            "tc",
            "rd",
            "ra",
            "z",
            "opcode",
            "rcode",
            "answers",
            "grouped",
            "authorities",
            "additionals",
        ]
    } else {
        &["id", "tx_id", "opcode"]
    };
    for key in kept {
        if let Some(value) = record.get(*key) {
            common.insert((*key).into(), value.clone());
        }
    }
    let questions = record.get("queries").and_then(Value::as_array);
    let mut all: Vec<Map<String, Value>> = (questions.into_iter().flatten())
        .take(if is_answer { 1 } else { MOST_LOGGED })
        .filter_map(Value::as_object)
        .map(|question| {
            let mut one = common.clone();
            one.extend(question.clone());
            one
        })
        .collect();
    if all.is_empty() && is_answer {
        all.push(common);
    }
    all
}

pub(super) fn rcode_name(code: u16) -> String {
    const NAMES: [&str; 11] = [
        "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET",
        "NXRRSET", "NOTAUTH", "NOTZONE",
    ];
    NAMES
        .get(usize::from(code))
        .map_or_else(|| code.to_string(), |n| (*n).to_string())
}

/// Types as logs of such sensors name them; the others, newer ones among them, by number.
pub(super) fn type_name(kind: u16) -> String {
    let name = match kind {
        1 => "A",
        2 => "NS",
        3 => "MD",
        4 => "MF",
        5 => "CNAME",
        6 => "SOA",
        7 => "MB",
        8 => "MG",
        9 => "MR",
        10 => "NULL",
        11 => "WKS",
        12 => "PTR",
        13 => "HINFO",
        14 => "MINFO",
        15 => "MX",
        16 => "TXT",
        17 => "RP",
        18 => "AFSDB",
        19 => "X25",
        20 => "ISDN",
        21 => "RT",
        22 => "NSAP",
        23 => "NSAPPTR",
        24 => "SIG",
        25 => "KEY",
        26 => "PX",
        27 => "GPOS",
        28 => "AAAA",
        29 => "LOC",
        30 => "NXT",
        33 => "SRV",
        34 => "ATMA",
        35 => "NAPTR",
        36 => "KX",
        37 => "CERT",
        38 => "A6",
        39 => "DNAME",
        41 => "OPT",
        42 => "APL",
        43 => "DS",
        44 => "SSHFP",
        45 => "IPSECKEY",
        46 => "RRSIG",
        47 => "NSEC",
        48 => "DNSKEY",
        49 => "DHCID",
        50 => "NSEC3",
        51 => "NSEC3PARAM",
        52 => "TLSA",
        55 => "HIP",
        59 => "CDS",
        60 => "CDNSKEY",
        65 => "HTTPS",
        99 => "SPF",
        249 => "TKEY",
        250 => "TSIG",
        254 => "MAILA",
        255 => "ANY",
        256 => "URI",
        other => return other.to_string(),
    };
    name.to_string()
}
