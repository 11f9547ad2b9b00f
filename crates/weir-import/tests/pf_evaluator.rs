//! pf.conf as its manual page says it, for packets of the tests: rules from the first to the last, the last match counts unless one is quick, states before rules.
//!
//! Shares nothing with the parser of weir-import. Reads what the rule set of the tests has.

use std::collections::{HashMap, HashSet};

use crate::packets::{INTERFACES, Packet};

/// A rule set, and the states that it made.
pub(crate) struct Pf {
    rules: Vec<Vec<String>>,
    macros: HashMap<String, String>,
    tables: HashMap<String, Vec<String>>,
    states: HashSet<(bool, u8, u128, u128, u16, u16)>,
}

/// `{ a, b }` and words with blanks around every sign.
fn words(text: &str) -> Vec<String> {
    let mut spaced = text.to_owned();
    for sign in ["{", "}", ",", "(", ")"] {
        spaced = spaced.replace(sign, &format!(" {sign} "));
    }
    let spaced = spaced.replace('!', " ! ").replace('"', " ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

impl Pf {
    pub(crate) fn read(text: &str) -> Pf {
        let mut pf = Pf {
            rules: Vec::new(),
            macros: HashMap::new(),
            tables: HashMap::new(),
            states: HashSet::new(),
        };
        for line in text.replace("\\\n", " ").lines() {
            let line = line.split('#').next().expect("a part").trim();
            if let Some((name, value)) = line
                .split_once('=')
                .filter(|(name, _)| !name.trim().contains(' '))
            {
                let value = pf.expanded(value);
                pf.macros.insert(name.trim().to_owned(), value.join(" "));
                continue;
            }
            let words = pf.expanded(line);
            match words.first().map(String::as_str) {
                Some("table") => {
                    let members = words
                        .iter()
                        .skip_while(|w| *w != "{")
                        .filter(|w| !matches!(w.as_str(), "{" | "}" | ","));
                    let mut list: Vec<String> = Vec::new();
                    let mut not = "";
                    for member in members {
                        if member == "!" {
                            not = "!";
                        } else {
                            list.push(format!("{not}{member}"));
                            not = "";
                        }
                    }
                    pf.tables.insert(words[1].clone(), list);
                }
                Some("pass" | "block") if !words.contains(&"out".to_owned()) => {
                    pf.rules.push(words)
                }
                Some("antispoof") => {
                    // For lan0, with the networks that the tests route there.
                    for network in ["192.168.10.0/24", "192.168.20.0/24", "2001:db8:10::/64"] {
                        pf.rules.push(self::words(&format!(
                            "block in quick on ! lan0 from {network} to any"
                        )));
                    }
                }
                _ => {}
            }
        }
        pf
    }

    fn expanded(&self, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        for word in words(text) {
            match word.strip_prefix('$') {
                Some(name) => out.extend(words(&self.macros[name])),
                None => out.push(word),
            }
        }
        out
    }

    /// Judges a packet, and keeps its state.
    pub(crate) fn passes(&mut self, p: &Packet) -> bool {
        let key = |a, b, c, d| (p.six, p.protocol, a, b, c, d);
        let icmp = matches!(p.protocol, 1 | 58);
        let id = p.numbers.0 as u16;
        // Of an answer the question is looked for.
        let (there, back) = match icmp {
            true => match p.sport {
                0 | 129 => (None, Some(key(p.destination, p.source, id, 0))),
                8 | 128 => (Some(key(p.source, p.destination, id, 0)), None),
                _ => (None, None),
            },
            false if matches!(p.protocol, 6 | 17) => (
                Some(key(p.source, p.destination, p.sport, p.dport)),
                Some(key(p.destination, p.source, p.dport, p.sport)),
            ),
            false => (
                Some(key(p.source, p.destination, 0, 0)),
                Some(key(p.destination, p.source, 0, 0)),
            ),
        };
        if [there, back]
            .iter()
            .flatten()
            .any(|key| self.states.contains(key))
        {
            return true;
        }
        let mut verdict = (true, false);
        for rule in &self.rules {
            let keeps = !rule
                .windows(2)
                .any(|pair| pair[0] == "no" && pair[1] == "state");
            if self.matches(rule, p, keeps) {
                verdict = (rule[0] == "pass", keeps);
                if rule.contains(&"quick".to_owned()) {
                    break;
                }
            }
        }
        if let ((true, true), Some(there)) = (verdict, there) {
            self.states.insert(there);
        }
        verdict.0
    }

    fn matches(&self, rule: &[String], p: &Packet, keeps: bool) -> bool {
        let mut flags = false;
        let mut at = 1;
        let list = |at: &mut usize| -> Vec<String> {
            let mut out = Vec::new();
            if rule[*at] != "{" {
                out.push(rule[*at].clone());
                *at += 1;
                return out;
            }
            let mut depth = 0;
            loop {
                match rule[*at].as_str() {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    "," => {}
                    word => out.push(word.to_owned()),
                }
                *at += 1;
                if depth == 0 {
                    return out;
                }
            }
        };
        while at < rule.len() {
            let word = rule[at].as_str();
            at += 1;
            let holds = match word {
                "in" | "quick" | "all" | "log" | "return" | "any" | "keep" | "state" | "no" => true,
                "on" => {
                    let not = rule[at] == "!";
                    at += usize::from(not);
                    (list(&mut at)[0] == INTERFACES[p.interface]) != not
                }
                "inet" => !p.six,
                "inet6" => p.six,
                "proto" => list(&mut at)
                    .iter()
                    .any(|name| protocol(name) == p.protocol),
                "from" | "to" => {
                    let address = if word == "from" {
                        p.source
                    } else {
                        p.destination
                    };
                    let mut holds = true;
                    if rule[at] != "port" {
                        let not = rule[at] == "!";
                        at += usize::from(not);
                        let mut hosts = list(&mut at);
                        if rule.get(at).is_some_and(|w| w == "-") {
                            hosts = vec![format!("{}-{}", hosts[0], rule[at + 1])];
                            at += 2;
                        }
                        holds = hosts
                            .iter()
                            .any(|host| self.host(host, address, p.six, not));
                    }
                    if rule.get(at).is_some_and(|w| w == "port") {
                        at += 1;
                        let port = if word == "from" { p.sport } else { p.dport };
                        let op = rule[at].as_str();
                        let next = rule.get(at + 1).map_or("", String::as_str);
                        let of = |name: &str| number(name);
                        let has = if let ">" | ">=" | "<" = op {
                            at += 2;
                            match op {
                                ">" => port > of(next),
                                ">=" => port >= of(next),
                                _ => port < of(next),
                            }
                        } else if next == "><" || next == "<>" {
                            let (low, high) = (of(op), of(&rule[at + 2]));
                            at += 3;
                            match next {
                                "><" => low < port && port < high,
                                _ => port < low || port > high,
                            }
                        } else {
                            list(&mut at).iter().any(|one| match one.split_once(':') {
                                Some((low, high)) => (of(low)..=of(high)).contains(&port),
                                None => of(one) == port,
                            })
                        };
                        holds &= has && matches!(p.protocol, 6 | 17);
                    }
                    holds
                }
                "icmp-type" | "icmp6-type" => {
                    let is_six = word == "icmp6-type";
                    let types = list(&mut at);
                    let mut holds = p.protocol == if is_six { 58 } else { 1 }
                        && types.iter().any(|name| icmp(name) == p.sport);
                    if rule.get(at).is_some_and(|w| w == "code") {
                        holds &= number(&rule[at + 1]) == p.dport;
                        at += 2;
                    }
                    holds
                }
                "flags" => {
                    flags = true;
                    let (set, mask) = rule[at].split_once('/').expect("flags");
                    at += 1;
                    let bits = |letters: &str| {
                        letters.bytes().fold(0u8, |all, c| {
                            all | 1 << "FSRPAU".bytes().position(|f| f == c).expect("a flag")
                        })
                    };
                    p.protocol == 6 && p.flags & bits(mask) == bits(set)
                }
                other => panic!("`{other}` in {rule:?}"),
            };
            if !holds {
                return false;
            }
        }
        !(rule[0] == "pass" && keeps && !flags && p.protocol == 6 && p.flags & 0x12 != 0x02)
    }

    fn host(&self, host: &str, address: u128, six: bool, not: bool) -> bool {
        if host == "any" {
            return true;
        }
        if let Some(members) = self.tables.get(host) {
            // The longest prefix counts.
            let best = (members.iter())
                .filter(|member| within(member.trim_start_matches('!'), address, six))
                .max_by_key(|member| {
                    member
                        .split_once('/')
                        .map_or(128, |(_, len)| len.parse::<u32>().expect("a length"))
                });
            let inside = best.is_some_and(|member| !member.starts_with('!'));
            return inside != not;
        }
        let is_six = host.contains(':');
        is_six == six && within(host, address, six) != not
    }
}

fn protocol(name: &str) -> u8 {
    match name {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        "icmp6" => 58,
        "gre" => 47,
        "esp" => 50,
        other => panic!("protocol {other}"),
    }
}

fn number(name: &str) -> u16 {
    match name {
        "http" => 80,
        "https" => 443,
        "smtp" => 25,
        "submission" => 587,
        "submissions" => 465,
        "imaps" => 993,
        "domain" => 53,
        "ntp" => 123,
        "ssh" => 22,
        other => other.parse().expect("a port"),
    }
}

fn icmp(name: &str) -> u16 {
    match name {
        "echoreq" => 8,
        "unreach" => 3,
        "timex" => 11,
        "paramprob" => 12,
        other => other.parse().expect("a type"),
    }
}

/// Whether an address is in a prefix, a range, or is this one.
fn within(text: &str, address: u128, six: bool) -> bool {
    let read = |text: &str| -> Option<u128> {
        match text.contains(':') {
            true if six => text.parse::<std::net::Ipv6Addr>().ok().map(u128::from),
            false if !six => {
                let dots = text.matches('.').count();
                let full = format!("{text}{}", ".0".repeat(3 - dots));
                full.parse::<std::net::Ipv4Addr>()
                    .ok()
                    .map(|a| u32::from(a).into())
            }
            _ => None,
        }
    };
    if let Some((low, high)) = text.split_once('-') {
        return read(low)
            .zip(read(high))
            .is_some_and(|(low, high)| (low..=high).contains(&address));
    }
    let (prefix, length) = text
        .split_once('/')
        .unwrap_or((text, if six { "128" } else { "32" }));
    let width: u32 = if six { 128 } else { 32 };
    let length: u32 = length.parse().expect("a length");
    read(prefix).is_some_and(|prefix| {
        length == 0 || prefix >> (width - length) == address >> (width - length)
    })
}
