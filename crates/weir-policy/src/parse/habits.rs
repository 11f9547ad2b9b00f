//! Lines written as nftables, iptables or pf have them, in weir's words.
//!
//! Looked at only when a line is no rule: what is valid is never taken for something else. A line that is understood whole becomes
//! a rule; of others the first phrase that is known is translated, or nothing is said.

mod limits;

use super::set_habits::{self, Recent};
use crate::ast::Span;
use crate::words::is_name;
use limits::{HITS, Limit, uncounted};

/// What to say instead of the errors of a line.
pub(super) struct Advice {
    pub(super) span: Span,
    pub(super) message: String,
    pub(super) help: String,
}

/// A word of the line: blanks, `;` and quotes part words, braces keep them together.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    span: Span,
}

/// Recognizes a line from `at` in the text on.
pub(super) fn advice(line: &str, at: u32) -> Option<Advice> {
    let words = words(line, at);
    operators(&words)
        .or_else(|| iptables(&words))
        .or_else(|| pf(&words))
        .or_else(|| nftables(&words))
}

fn words(line: &str, at: u32) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut start: Option<usize> = None;
    let mut depth = 0usize;
    let mut quoted = false;
    let mut end = |start: &mut Option<usize>, to: usize| {
        if let Some(from) = start.take()
            && let Some(text) = line.get(from..to)
        {
            let span = Span {
                start: at + from as u32,
                end: at + to as u32,
            };
            words.push(Word { text, span });
        }
    };
    for (i, c) in line.char_indices() {
        match c {
            '"' => {
                start.get_or_insert(i);
                quoted = !quoted;
            }
            _ if quoted => {}
            '{' => {
                if depth == 0 {
                    end(&mut start, i);
                    start = Some(i);
                }
                depth += 1;
            }
            '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    end(&mut start, i + 1);
                }
            }
            _ if depth > 0 => {}
            c if c.is_whitespace() || matches!(c, ';' | '\\') => end(&mut start, i),
            _ => {
                start.get_or_insert(i);
            }
        }
    }
    end(&mut start, line.len());
    words
}

/// A rule in the making.
#[derive(Default)]
struct Made {
    stateful: bool,
    matches: Vec<String>,
    targets: Vec<String>,
    notes: Vec<&'static str>,
}

impl Made {
    fn rule(&self) -> String {
        let mut parts: Vec<&str> = Vec::new();
        // A stateful rule cannot change sets, nor limit addresses or connections.
        let of_its_own = |target: &String| {
            let begins = ["add @", "delete @", "drop over "];
            begins.into_iter().any(|word| target.starts_with(word))
        };
        let by_state = self.stateful && self.targets.iter().any(of_its_own);
        if self.stateful && !by_state {
            parts.push("add-stateful");
        }
        parts.extend(self.matches.iter().map(String::as_str));
        if by_state {
            parts.push("ct-state new");
        }
        if self.matches.is_empty() && !by_state && !self.targets.is_empty() {
            parts.push("all");
        }
        parts.extend(self.targets.iter().map(String::as_str));
        parts.join(" ")
    }

    fn limit(&mut self, limit: &Limit) {
        for note in limit.put(&mut self.targets) {
            self.note(note);
        }
    }

    fn note(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn advice(&self, span: Span, message: &str) -> Advice {
        let mut help = match (self.matches.is_empty(), self.targets.is_empty()) {
            (true, true) => String::new(),
            _ => format!("write `{}`", self.rule()),
        };
        for note in &self.notes {
            if !help.is_empty() {
                help.push_str("; ");
            }
            help.push_str(note);
        }
        Advice {
            span,
            message: message.to_owned(),
            help,
        }
    }
}

const LETS_ANSWERS_IN: &str =
    "answers to what `add-stateful` rules open are let in without this rule";
const LOCAL_TIME: &str = "hours are UTC here, unless a line of the policy says `timezone +02:00`";
const OUT: &str = "`out` is known with `weir run --egress`";
const NO_CHAINS: &str = "a policy has no tables and base chains: remove this line; `weir run POLICY -i INTERFACE` attaches it";

/// Words between tests, as programs have them.
fn operators(words: &[Word<'_>]) -> Option<Advice> {
    for (n, word) in words.iter().enumerate() {
        let (message, help) = match word.text.to_ascii_lowercase().as_str() {
            "&&" | "and" => (
                "the tests of a rule all hold: nothing stands between them",
                "leave this out",
            ),
            "||" | "or" => (
                "a rule has no alternatives: all its tests must hold",
                "for several values write `FIELD in { A, B }`, else one rule for each",
            ),
            "not" => (
                "`not` is written `!`",
                "write `! FIELD VALUE`, or `FIELD != VALUE`",
            ),
            "=>" | "->" | "then" if n > 0 => {
                ("targets stand right behind the tests", "leave this out")
            }
            "if" if n == 0 => ("a rule begins with its tests", "leave this out"),
            _ => continue,
        };
        return Some(Advice {
            span: word.span,
            message: message.to_owned(),
            help: help.to_owned(),
        });
    }
    None
}

fn whole(words: &[Word<'_>]) -> Option<Span> {
    Some(words.first()?.span.to(words.last()?.span))
}

/// `a,b` and `{ a, b }` as values behind a field.
fn with_value(field: &str, value: &str, negated: bool) -> String {
    let value = value.trim_matches('"');
    let inner = value.strip_prefix('{').and_then(|v| v.strip_suffix('}'));
    let elements: Vec<&str> = inner
        .unwrap_or(value)
        .split([',', ' ', '\t', '\n', '\\'])
        .map(|element| element.trim().trim_matches('"'))
        .filter(|element| !element.is_empty())
        .collect();
    let not = if negated { "! " } else { "" };
    let is_interface = matches!(field, "in" | "out");
    match elements.as_slice() {
        [one] if inner.is_none() => match one.strip_prefix('@') {
            Some(set) if is_interface => format!("{not}{field} @{set}"),
            Some(set) => format!("{not}{field} in @{set}"),
            None => format!("{not}{field} {one}"),
        },
        _ if is_interface => format!("{not}{field} {{ {} }}", elements.join(", ")),
        _ => format!("{not}{field} in {{ {} }}", elements.join(", ")),
    }
}

/// Days of `--weekdays`, `Mon,Tue` or `1,2` from Monday on, as days of weir.
fn weekdays(list: &str) -> Option<String> {
    let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let day = |word: &str| match word.parse::<usize>() {
        Ok(number) => days.get(number.checked_sub(1)?).copied(),
        Err(_) => {
            let start = word.get(..2)?.to_ascii_lowercase();
            days.into_iter().find(|day| day.starts_with(&start))
        }
    };
    let all: Option<Vec<&str>> = list.split(',').map(day).collect();
    Some(all?.join(","))
}

/// `a:b`, `a:` and `:b` of ports as ranges.
fn ranges(value: &str) -> String {
    let one = |part: &str| match part.split_once(':') {
        Some(("", high)) => format!("0-{high}"),
        Some((low, "")) => format!("{low}-65535"),
        Some((low, high)) => format!("{low}-{high}"),
        None => part.to_owned(),
    };
    value.split(',').map(one).collect::<Vec<_>>().join(",")
}

/// The field of an address by how it is written.
fn address_field(value: &str, source: bool) -> &'static str {
    match (value.contains(':'), source) {
        (false, true) => "ip-saddr",
        (false, false) => "ip-daddr",
        (true, true) => "ip6-saddr",
        (true, false) => "ip6-daddr",
    }
}

/// A protocol as a test of its own.
fn protocol(name: &str) -> String {
    match name {
        "tcp" | "udp" | "icmp" | "icmp6" => name.to_owned(),
        "icmpv6" | "ipv6-icmp" => "icmp6".to_owned(),
        _ => format!("l4-proto {name}"),
    }
}

/// A verdict in the words of others.
fn verdict(word: &str, made: &mut Made) -> bool {
    let target = match word.to_ascii_lowercase().as_str() {
        "accept" | "allow" | "permit" | "pass" => "accept",
        "drop" | "deny" | "block" | "discard" => "drop",
        "reject" => "reject",
        "log" => "log",
        _ => return false,
    };
    made.targets.push(target.to_owned());
    true
}

/// `--reject-with` of iptables and ip6tables, and `reject with` of nftables as one word.
fn rejection(how: &str) -> String {
    let known = [
        ("icmpx-", "icmpx"),
        ("icmpv6-", "icmp6"),
        ("icmp6-", "icmp6"),
        ("icmp-", "icmp"),
    ];
    if how == "tcp-reset" {
        return "reject with tcp-reset".to_owned();
    }
    for (prefix, family) in known {
        let Some(code) = how.strip_prefix(prefix) else {
            continue;
        };
        let code = match code {
            "proto-unreachable" => "prot-unreachable",
            "adm-prohibited" => "admin-prohibited",
            _ => code,
        };
        if crate::reject::answer(family, Some(code)).is_ok() {
            return format!("reject with {family} {code}");
        }
    }
    "reject".to_owned()
}

/// Chains that packets enter without a jump.
const BASE_CHAINS: &[&str] = &["INPUT", "FORWARD", "OUTPUT", "PREROUTING", "POSTROUTING"];

/// Targets of iptables; other words behind `-j` are chains.
const EXTENSIONS: &[&str] = &[
    "MASQUERADE",
    "SNAT",
    "DNAT",
    "REDIRECT",
    "NETMAP",
    "MARK",
    "CONNMARK",
    "RETURN",
    "QUEUE",
    "NFQUEUE",
    "NOTRACK",
    "TCPMSS",
    "TCPOPTSTRIP",
    "TTL",
    "HL",
    "DSCP",
    "TOS",
    "CT",
    "SET",
    "NFLOG",
    "ULOG",
    "TRACE",
    "CLASSIFY",
    "AUDIT",
    "CHECKSUM",
    "TEE",
    "TPROXY",
    "ECN",
    "HMARK",
];

const BEHIND_A_JUMP: &str = "rules behind a jump count as well, whatever the chain says";

/// The choices of a verdict map of nftables; `None`: a verdict that weir has not.
fn choices(field: &str, map: &str, made: &mut Made) -> Option<String> {
    let inner = map.strip_prefix('{')?.strip_suffix('}')?;
    let mut choices = Vec::new();
    for one in inner
        .split(',')
        .map(str::trim)
        .filter(|one| !one.is_empty())
    {
        let (key, verdict) = one.rsplit_once(" : ").or_else(|| one.rsplit_once(": "))?;
        let key = match key.trim().trim_matches('"') {
            "*" => "else",
            key => key,
        };
        let words: Vec<&str> = verdict.split_whitespace().collect();
        let target = match words.as_slice() {
            ["accept"] => "accept".to_owned(),
            ["drop"] => "drop".to_owned(),
            ["jump" | "goto", chain] => format!("jump {chain}"),
            _ => return None,
        };
        choices.push(format!("{key}: {target}"));
    }
    if choices.iter().any(|one| one.contains("jump ")) {
        made.note(BEHIND_A_JUMP);
    }
    (!choices.is_empty()).then(|| format!("choose {field} {{ {} }}", choices.join(", ")))
}

/// Whether an option of iptables is of a match that limits.
fn is_limit(option: &str) -> bool {
    let begins = ["--limit", "--hashlimit", "--connlimit"];
    begins.into_iter().any(|word| option.starts_with(word))
}

/// Options of iptables and ip6tables.
fn iptables(words: &[Word<'_>]) -> Option<Advice> {
    let is_option = |word: &Word<'_>| {
        word.text.strip_prefix('-').is_some_and(|rest| {
            rest.trim_start_matches('-')
                .starts_with(|c: char| c.is_ascii_alphabetic())
        })
    };
    if words.first().is_some_and(|w| {
        matches!(w.text, "*filter" | "*nat" | "*mangle" | "*raw" | "COMMIT")
            || (w.text.starts_with(':') && w.text.len() > 1)
    }) {
        return Some(Advice {
            span: whole(words)?,
            message: "this is the format of iptables-save".to_owned(),
            help: NO_CHAINS.to_owned(),
        });
    }
    let first = words.iter().position(is_option)?;
    let mut made = Made::default();
    let mut proto: Option<&str> = None;
    let mut tested_ports = false;
    let mut negated = false;
    let mut known = true;
    let mut limit = Limit::default();
    let mut recent: Option<(bool, Recent)> = None;
    let mut time: Option<(String, String)> = None;
    // `tcp-dport 80 -j DROP`: what stands in front of the first option stays, if it is not the command.
    let mut front = words.get(..first).unwrap_or_default();
    while let Some(word) = front.first()
        && matches!(word.text, "sudo" | "iptables" | "ip6tables" | "mmb" | "add")
    {
        front = front.get(1..).unwrap_or_default();
    }
    if !front.is_empty() {
        let text: Vec<&str> = front.iter().map(|w| w.text).collect();
        made.matches.push(text.join(" "));
    }
    let mut rest = words.get(first..).unwrap_or_default().iter();
    let mut next = || rest.next().map(|word| word.text);
    while let Some(option) = next() {
        let not = std::mem::take(&mut negated);
        // A value may have the `!` in front of it.
        let mut value = |negated: &mut bool| -> String {
            match next() {
                Some("!") => {
                    *negated = true;
                    next().unwrap_or_default().to_owned()
                }
                other => other.unwrap_or_default().to_owned(),
            }
        };
        let mut not = not;
        match option {
            "!" => negated = true,
            "-t" | "--table" => {
                value(&mut not);
            }
            "-A" | "--append" | "-D" | "--delete" | "-I" | "--insert" => {
                let chain = value(&mut not);
                if is_name(&chain) && !BASE_CHAINS.contains(&chain.as_str()) {
                    made.note("rules of a chain stand between `chain NAME {` and `}`");
                }
            }
            "-N" | "--new-chain" => {
                let chain = value(&mut not);
                return Some(Advice {
                    span: whole(words)?,
                    message: "this is iptables; in weir a chain stands around its rules".to_owned(),
                    help: format!(
                        "write `chain {chain} {{`, its rules on lines of their own, and `}}`"
                    ),
                });
            }
            "-P" | "--policy" => {
                let chain_policy = [value(&mut not), value(&mut not)];
                if !verdict(chain_policy[1].as_str(), &mut made) {
                    known = false;
                }
                made.note("packets that no rule drops pass: for a policy of drop this is the last rule, and everything else needs `accept`");
            }
            "-p" | "--protocol" | "--proto" => {
                let name = value(&mut not);
                proto = ["tcp", "udp", "icmp", "icmpv6", "ipv6-icmp"]
                    .into_iter()
                    .find(|p| name.eq_ignore_ascii_case(p));
                if proto.is_none() || not {
                    let name = name.to_ascii_lowercase();
                    if name != "all" {
                        made.matches.push(with_value("l4-proto", &name, not));
                    }
                    proto = None;
                }
            }
            "-s" | "--source" | "--src" | "-d" | "--destination" | "--dst" => {
                let address = value(&mut not);
                let field = address_field(&address, option.contains("-s"));
                made.matches.push(with_value(field, &address, not));
            }
            "-i" | "--in-interface" | "-o" | "--out-interface" => {
                let name = value(&mut not);
                known &= !name.ends_with('+');
                let field = if option.contains('o') && option != "--in-interface" {
                    "out"
                } else {
                    "in"
                };
                if field == "out" {
                    made.note(OUT);
                }
                made.matches.push(with_value(field, &name, not));
            }
            "--dport"
            | "--destination-port"
            | "--sport"
            | "--source-port"
            | "--dports"
            | "--destination-ports"
            | "--sports"
            | "--source-ports" => {
                let ports = ranges(&value(&mut not));
                let side = if option.contains("-d") {
                    "dport"
                } else {
                    "sport"
                };
                known &= matches!(proto, Some("tcp" | "udp"));
                let field = format!("{}-{side}", proto.unwrap_or("tcp"));
                made.matches.push(with_value(&field, &ports, not));
                tested_ports = true;
            }
            "-m" | "--match" => {
                let module = value(&mut not);
                match module.as_str() {
                    "recent" => recent = Some((false, Recent::default())),
                    "connlimit" => limit.connlimit(),
                    "time" => time = Some(("00:00".to_owned(), "23:59:59".to_owned())),
                    _ => {}
                }
                if let Some((message, help)) = uncounted(&module) {
                    return Some(Advice {
                        span: whole(words)?,
                        message: message.to_owned(),
                        help: help.to_owned(),
                    });
                }
                known &= matches!(
                    module.as_str(),
                    "tcp"
                        | "recent"
                        | "set"
                        | "udp"
                        | "icmp"
                        | "icmp6"
                        | "multiport"
                        | "state"
                        | "conntrack"
                        | "comment"
                        | "limit"
                        | "hashlimit"
                        | "connlimit"
                        | "mac"
                        | "time"
                );
            }
            "--timestart" | "--timestop" => {
                let (start, stop) = time.get_or_insert_default();
                let end = if option == "--timestart" { start } else { stop };
                *end = value(&mut not);
                known &= !not;
            }
            "--weekdays" => {
                let days = weekdays(&value(&mut not));
                known &= days.is_some();
                let days = days.unwrap_or_default();
                made.matches.push(with_value("day", &days, not));
            }
            "--utc" => {}
            "--match-set" => {
                let (name, side) = (value(&mut not), value(&mut not));
                let test = set_habits::match_set(&name, &side, not);
                known &= test.is_some();
                made.matches.extend(test);
            }
            "--add-set" | "--del-set" => {
                let (name, side) = (value(&mut not), value(&mut not));
                let target = set_habits::set_target(option, &name, &side);
                known &= target.is_some();
                made.targets.extend(target);
            }
            "--mac-source" => {
                let address = value(&mut not);
                made.matches.push(with_value("eth-saddr", &address, not));
            }
            "--comment" => {
                value(&mut not);
                made.note("a comment stands behind `#`");
            }
            "--syn" => {
                known &= !not;
                made.matches
                    .push("tcp-flags syn/fin,syn,rst,ack".to_owned());
                tested_ports = true;
            }
            "--tcp-flags" => {
                known &= !not;
                let (mask, set) = (value(&mut not), value(&mut not));
                let all = "fin,syn,rst,psh,ack,urg";
                let mask = mask.to_ascii_lowercase().replace("all", all);
                let set = set.to_ascii_lowercase().replace("all", all);
                made.matches.push(format!("tcp-flags {set}/{mask}"));
                tested_ports = true;
            }
            "--icmp-type" | "--icmpv6-type" => {
                let words = value(&mut not);
                let name = if option == "--icmp-type" {
                    "icmp"
                } else {
                    "icmp6"
                };
                match words.split_once('/') {
                    Some((kind, code)) => {
                        known &= !not;
                        made.matches
                            .push(format!("{name}-type {kind} {name}-code {code}"));
                    }
                    None => made
                        .matches
                        .push(with_value(&format!("{name}-type"), &words, not)),
                }
                tested_ports = true;
            }
            "--state" | "--ctstate" => {
                let states = value(&mut not).to_ascii_lowercase();
                match states.as_str() {
                    "new" if !not => made.stateful = true,
                    _ => {
                        if states.contains("established") && !not {
                            made.note(LETS_ANSWERS_IN);
                        }
                        made.matches.push(with_value("ct-state", &states, not));
                    }
                }
            }
            _ if is_limit(option) => {
                let value = match Limit::is_bare(option) {
                    true => String::new(),
                    false => value(&mut not),
                };
                known &= limit.iptables(option, &value, not);
            }
            "-j" | "--jump" | "-g" | "--goto" => {
                let name = value(&mut not);
                if name != "SET" && !verdict(&name, &mut made) {
                    let is_chain = is_name(&name) && !EXTENSIONS.contains(&name.as_str());
                    known &= is_chain;
                    if is_chain {
                        made.targets.push(format!("jump {name}"));
                        made.note(BEHIND_A_JUMP);
                    }
                }
            }
            "--log-prefix" => {
                let text = value(&mut not);
                if let Some(log) = made.targets.iter_mut().find(|t| *t == "log") {
                    *log = format!("log \"{}\"", text.trim_matches('"').trim());
                }
            }
            "--reject-with" => {
                let how = value(&mut not);
                if let Some(reject) = made.targets.iter_mut().find(|t| *t == "reject") {
                    *reject = rejection(&how);
                }
            }
            "--log-level" => {
                value(&mut not);
            }
            _ => {
                known &= recent.as_mut().is_some_and(|(negated, recent)| {
                    *negated |= not;
                    recent.option(option, || value(&mut not))
                });
            }
        }
    }
    if let Some((negated, recent)) = recent {
        match recent.hits().filter(|_| !negated) {
            Some((hits, seconds, address)) => {
                limit.hits(hits, seconds, address);
                made.note(HITS);
            }
            None => {
                let (matches, targets, note) = recent.words(negated);
                made.matches.extend(matches);
                made.targets.splice(0..0, targets);
                made.note(note);
            }
        }
    }
    if let Some((start, stop)) =
        time.filter(|(start, stop)| (start != "00:00") || (stop != "23:59:59"))
    {
        made.matches.push(format!("hour {start}-{stop}"));
    }
    if let Some(name) = proto.filter(|_| !tested_ports) {
        made.matches.insert(0, protocol(name));
    }
    made.limit(&limit);
    let span = whole(words)?;
    if !known {
        let word = words.get(first)?;
        return Some(Advice {
            span: word.span,
            message: format!("`{}` is an option of iptables", word.text),
            help: "a rule is tests and targets: `tcp-dport 22 ip-saddr 10.0.0.0/8 drop`; docs/language.md lists them".to_owned(),
        });
    }
    Some(made.advice(span, "this is iptables; weir has a word for each field"))
}

/// Rules of pf: `block in on em0`, `pass in proto tcp from any to any port 80`.
fn pf(words: &[Word<'_>]) -> Option<Advice> {
    let first = words.first()?;
    let blocks = match first.text {
        "block" => true,
        "pass" => false,
        _ => return None,
    };
    let mut made = Made::default();
    let mut stateful = !blocks;
    let mut log = false;
    let mut protocols: Vec<String> = Vec::new();
    let mut tests: Vec<String> = Vec::new();
    let mut ports: Vec<(bool, String)> = Vec::new();
    let mut known = true;
    let mut direction = "in";
    let mut answer = "drop";
    let mut source = true;
    let mut limits: Vec<Limit> = Vec::new();
    let mut rest = words.get(1..).unwrap_or_default().iter().peekable();
    while let Some(word) = rest.next() {
        match word.text {
            "drop" | "all" | "any" | "state" | "keep" | "modulate" | "synproxy" | "inet"
            | "inet6" => {}
            "return" => answer = "reject",
            "return-rst" => answer = "reject with tcp-reset",
            "return-icmp" => answer = "reject with icmpx port-unreachable",
            "no" => stateful = false,
            "quick" => made.note(
                "rules do not stop at the first match: `accept` beats `drop` wherever it stands",
            ),
            "in" | "out" => direction = word.text,
            "log" => log = true,
            "on" => {
                let name = rest.next()?;
                known &= !name.text.starts_with('$');
                if direction == "out" {
                    made.note(OUT);
                }
                tests.push(with_value(direction, name.text, false));
            }
            "proto" => {
                let names = rest.next()?.text;
                protocols = names
                    .split(['{', '}', ',', ' '])
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned)
                    .collect();
            }
            "flags" => {
                rest.next()?;
            }
            "from" | "to" => source = word.text == "from",
            "port" => {
                let value = rest.next()?.text;
                let value = match (value, rest.peek()) {
                    ("=", Some(_)) => rest.next()?.text.to_owned(),
                    ("!=" | "<" | "<=" | ">" | ">=", Some(_)) => {
                        format!("{value} {}", rest.next()?.text)
                    }
                    _ => ranges(value),
                };
                ports.push((source, value));
            }
            "icmp-type" | "icmp6-type" => {
                let name = rest.next()?.text.replace("echoreq", "echo-request");
                tests.push(format!("{} {name}", word.text));
                protocols.clear();
            }
            "!" => {
                let value = rest.next()?.text;
                tests.push(with_value(address_field(value, source), value, true));
            }
            // `keep state (max-src-conn 10, overload <bad> flush)`
            word if word.starts_with('(') && !blocks => {
                let mut options = word.to_owned();
                while !options.ends_with(')') {
                    options.push(' ');
                    options.push_str(rest.next()?.text);
                }
                for option in options.trim_matches(['(', ')']).split(',') {
                    let option: Vec<&str> = option.split_whitespace().collect();
                    match limits::of_states(&option) {
                        Some(limit) => limits.extend(limit),
                        None => known = false,
                    }
                }
            }
            value if value.starts_with('<') && value.ends_with('>') => {
                let name = value.trim_matches(['<', '>']);
                known &= is_name(name);
                tests.push(format!(
                    "{} in @{name}",
                    if source { "ip-saddr" } else { "ip-daddr" }
                ));
            }
            value if value.starts_with(|c: char| c.is_ascii_digit()) || value.contains(':') => {
                tests.push(with_value(address_field(value, source), value, false));
            }
            _ => known = false,
        }
    }
    made.stateful = stateful;
    let of_ports = protocols.iter().all(|p| p == "tcp" || p == "udp");
    let alternatives: Vec<Vec<String>> = match (ports.is_empty(), protocols.as_slice()) {
        (true, []) => vec![Vec::new()],
        (true, names) => names.iter().map(|name| vec![protocol(name)]).collect(),
        (false, []) => vec![with_ports("", &ports)],
        (false, names) => {
            known &= of_ports;
            names.iter().map(|name| with_ports(name, &ports)).collect()
        }
    };
    let span = whole(words)?;
    if !known {
        return Some(Advice {
            span: first.span,
            message: format!("`{}` is how pf begins a rule", first.text),
            help: "a rule ends with what it does: `in em0 tcp-dport 22 drop`, `in em0 tcp-dport 80 accept`".to_owned(),
        });
    }
    if log {
        made.targets.push("log".to_owned());
    }
    made.targets.push(
        match (blocks, limits.is_empty()) {
            (true, _) => answer,
            (false, true) => "accept",
            // `accept` would override the limit.
            (false, false) => "timeout 1d",
        }
        .to_owned(),
    );
    let mut rules = Vec::new();
    for alternative in alternatives {
        made.matches = tests.iter().cloned().chain(alternative).collect();
        rules.push(format!("`{}`", made.rule()));
        for limit in &limits {
            rules.extend(limit.beside(&made.matches));
        }
    }
    limits
        .iter()
        .flat_map(Limit::notes)
        .for_each(|note| made.note(note));
    made.matches.clear();
    made.targets.clear();
    let mut said = made.advice(span, "this is pf; in weir a rule ends with what it does");
    let help = format!("write {}", rules.join(" and "));
    said.help = match said.help.as_str() {
        "" => help,
        notes => format!("{help}; {notes}"),
    };
    Some(said)
}

fn with_ports(protocol: &str, ports: &[(bool, String)]) -> Vec<String> {
    ports
        .iter()
        .map(|(source, value)| {
            let side = if *source { "sport" } else { "dport" };
            let field = match protocol {
                "" => side.to_owned(),
                protocol => format!("{protocol}-{side}"),
            };
            with_value(&field, value, false).replace(&format!("{side} in {{ != }}"), side)
        })
        .collect()
}

/// Two words of nftables that are one field of weir.
const FIELDS: &[(&str, &str, &str)] = &[
    ("ip", "saddr", "ip-saddr"),
    ("ip", "daddr", "ip-daddr"),
    ("ip", "protocol", "ip-proto"),
    ("ip", "ttl", "ip-ttl"),
    ("ip", "dscp", "ip-dscp"),
    ("ip", "ecn", "ip-ecn"),
    ("ip", "id", "ip-id"),
    ("ip", "length", "ip-len"),
    ("ip", "checksum", "ip-checksum"),
    ("ip", "version", "ip-ver"),
    ("ip", "hdrlength", "ip-ihl"),
    ("ip6", "saddr", "ip6-saddr"),
    ("ip6", "daddr", "ip6-daddr"),
    ("ip6", "nexthdr", "ip6-next"),
    ("ip6", "hoplimit", "ip6-hop-limit"),
    ("ip6", "dscp", "ip6-dscp"),
    ("ip6", "ecn", "ip6-ecn"),
    ("ip6", "flowlabel", "ip6-flow-label"),
    ("ip6", "length", "ip6-len"),
    ("tcp", "dport", "tcp-dport"),
    ("tcp", "sport", "tcp-sport"),
    ("tcp", "sequence", "tcp-seq-num"),
    ("tcp", "ackseq", "tcp-ack-num"),
    ("tcp", "window", "tcp-win"),
    ("tcp", "checksum", "tcp-checksum"),
    ("tcp", "urgptr", "tcp-urg-ptr"),
    ("udp", "dport", "udp-dport"),
    ("udp", "sport", "udp-sport"),
    ("udp", "length", "udp-len"),
    ("udp", "checksum", "udp-checksum"),
    ("icmp", "type", "icmp-type"),
    ("icmp", "code", "icmp-code"),
    ("icmpv6", "type", "icmp6-type"),
    ("icmpv6", "code", "icmp6-code"),
    ("th", "dport", "dport"),
    ("th", "sport", "sport"),
    ("ether", "type", "eth-type"),
    ("ether", "saddr", "eth-saddr"),
    ("ether", "daddr", "eth-daddr"),
    ("vlan", "id", "vlan-id"),
    ("vlan", "pcp", "vlan-pcp"),
    ("vlan", "dei", "vlan-dei"),
    ("meta", "protocol", "eth-type"),
    ("meta", "iifname", "in"),
    ("meta", "oifname", "out"),
    ("meta", "hour", "hour"),
    ("meta", "day", "day"),
    ("meta", "iif", "in"),
    ("meta", "oif", "out"),
];

/// Rules of nftables.
fn nftables(words: &[Word<'_>]) -> Option<Advice> {
    let span = whole(words)?;
    let text = |n: usize| words.get(n).map_or("", |word: &Word<'_>| word.text);
    let mut made = Made::default();
    let mut at = 0;
    if text(at) == "nft" {
        at += 1;
    }
    let says = |message: &str, help: &str| {
        Some(Advice {
            span,
            message: message.to_owned(),
            help: help.to_owned(),
        })
    };
    match (text(at), text(at + 1)) {
        ("add" | "insert" | "replace", "rule") => {
            at += if matches!(text(at + 2), "ip" | "ip6" | "inet" | "netdev" | "bridge") {
                5
            } else {
                4
            }
        }
        ("chain", _) => return None,
        ("table", _)
        | ("add" | "create" | "delete" | "flush", "table" | "chain" | "ruleset")
        | ("type", "filter" | "nat" | "route") => {
            return says("this is nftables", NO_CHAINS);
        }
        ("ipset", _) => return says("this is ipset", set_habits::IPSET),
        ("policy", "drop") => {
            return says(
                "this is nftables; in weir the last rule says what happens to the rest",
                "write `all drop` as the last rule: it drops what nothing accepts",
            );
        }
        ("policy", "accept") => {
            return says(
                "this is nftables; in weir packets that no rule drops pass",
                "remove this line",
            );
        }
        _ => {}
    }
    let mut limit = Limit::default();
    // The first phrase that is not weir's, as written and as weir has it.
    let mut first: Option<(Span, String)> = None;
    let mut known = true;
    let mut foreign = at > 0;
    while at < words.len() {
        let begins = at;
        let pair = FIELDS
            .iter()
            .find(|(a, b, _)| text(at) == *a && text(at + 1) == *b);
        let single = match text(at) {
            "iifname" | "iif" => Some("in"),
            "oifname" | "oif" => Some("out"),
            _ => None,
        };
        if let Some(field) = pair.map(|(.., field)| *field).or(single) {
            at += if pair.is_some() { 2 } else { 1 };
            if field == "out" {
                made.note(OUT);
            }
            if field == "hour" {
                made.note(LOCAL_TIME);
            }
            let mut negated = false;
            let mut test = match text(at) {
                "==" => {
                    at += 1;
                    None
                }
                "!=" => {
                    at += 1;
                    negated = true;
                    None
                }
                cond @ ("<" | ">" | "<=" | ">=") => {
                    at += 1;
                    Some(format!("{field} {cond} {}", text(at).trim_matches('"')))
                }
                _ => None,
            };
            if text(at) == "vmap" {
                match choices(field, text(at + 1), &mut made) {
                    Some(target) => made.targets.push(target),
                    None => known = false,
                }
                at += 2;
            } else if at < words.len() {
                let times = text(at).replace('"', "").to_ascii_lowercase();
                let value = match field {
                    "hour" | "day" => &times,
                    _ => text(at),
                };
                at += 1;
                made.matches.push(
                    test.take()
                        .unwrap_or_else(|| with_value(field, value, negated)),
                );
            } else {
                made.matches.push(field.to_owned());
            }
        } else {
            match (text(at), text(at + 1)) {
                ("tcp", "flags") => {
                    at += 2;
                    let flags: Vec<&str> = words
                        .get(at..)
                        .unwrap_or_default()
                        .iter()
                        .map(|w| w.text)
                        .collect();
                    match flags.as_slice() {
                        [value, "/", mask, ..] => {
                            made.matches.push(format!("tcp-flags {value}/{mask}"));
                            at += 3;
                        }
                        ["&", mask, "==", value, ..] => {
                            let plain =
                                |word: &str| word.trim_matches(['(', ')']).replace('|', ",");
                            made.matches.push(format!(
                                "tcp-flags {}/{}",
                                plain(value),
                                plain(mask)
                            ));
                            at += 4;
                        }
                        [flag, ..] if is_name(flag) => {
                            made.matches.push(format!("tcp-{flag}"));
                            at += 1;
                        }
                        _ => known = false,
                    }
                }
                ("meta", "l4proto") => {
                    let name = text(at + 2);
                    made.matches.push(match is_name(name) {
                        true => protocol(name),
                        false => with_value("l4-proto", name, false),
                    });
                    at += 3;
                }
                ("meta", "nfproto") => {
                    let version = text(at + 2).replace("ipv", "ip");
                    made.matches.push(format!("net-proto {version}"));
                    at += 3;
                }
                ("ct", "state") => {
                    at += 2;
                    let negated = text(at) == "!=";
                    at += usize::from(negated || text(at) == "==");
                    match text(at) {
                        "new" if !negated => made.stateful = true,
                        "vmap" => {
                            at += 1;
                            match choices("ct-state", text(at), &mut made) {
                                Some(target) => made.targets.push(target),
                                None => known = false,
                            }
                        }
                        states => {
                            if states.contains("established") && !negated {
                                made.note(LETS_ANSWERS_IN);
                            }
                            made.matches.push(with_value("ct-state", states, negated));
                        }
                    }
                    at += 1;
                }
                // With a limit inside it counts: that is below.
                (keyword @ ("add" | "update" | "delete"), set)
                    if set.starts_with('@') && !limits::is_in(text(at + 2)) =>
                {
                    match set_habits::change(keyword, set, text(at + 2)) {
                        Some(target) => made.targets.push(target),
                        None => known = false,
                    }
                    at += 3;
                }
                ("counter", _) => {
                    made.note("every rule counts its packets: leave `counter` out");
                    at += 1;
                }
                ("log", "prefix") => {
                    made.targets.push(format!("log {}", text(at + 2)));
                    at += 3;
                }
                ("comment", _) => {
                    made.note("a comment stands behind `#`");
                    at += 2;
                }
                ("limit", "rate") | ("ct", "count") => {
                    let rest: Vec<&str> = (words.get(at..).unwrap_or_default().iter())
                        .map(|word| word.text)
                        .collect();
                    let taken = limit.nftables(&rest);
                    known &= taken > 0;
                    at += taken.max(2);
                }
                ("meter" | "add" | "update", _) if text(at + 2).starts_with('{') => {
                    match limit.braced(text(at + 2)) {
                        Some(family) if !made.matches.iter().any(|m| m.starts_with("ip")) => {
                            made.matches.push(family.to_owned());
                        }
                        other => known &= other.is_some(),
                    }
                    at += 3;
                }
                ("reject", "with") => {
                    let how: Vec<&str> = (words.get(at + 2..).unwrap_or_default().iter())
                        .map(|word| word.text)
                        .filter(|word| *word != "type")
                        .collect();
                    made.targets.push(match how.as_slice() {
                        ["tcp", "reset"] => "reject with tcp-reset".to_owned(),
                        [family, code] => rejection(&format!("{family}-{code}")),
                        _ => "reject".to_owned(),
                    });
                    at = words.len();
                }
                ("jump" | "goto", chain) if is_name(chain) => {
                    made.targets.push(format!("jump {chain}"));
                    made.note(BEHIND_A_JUMP);
                    // A jump is written alike.
                    if text(at) == "jump" {
                        at += 2;
                        continue;
                    }
                    at += 2;
                }
                ("masquerade", _) => {
                    made.stateful = true;
                    made.targets.push("map ip-saddr ADDRESS".to_owned());
                    made.note("ADDRESS is the address outside");
                    at += 1;
                }
                ("snat" | "dnat", "to") => {
                    let (side, port) = match text(at) {
                        "snat" => ("saddr", "sport"),
                        _ => ("daddr", "dport"),
                    };
                    made.stateful = true;
                    let to = text(at + 2);
                    match to
                        .split_once(':')
                        .filter(|(address, _)| address.contains('.'))
                    {
                        Some((address, to_port)) => {
                            let protocol = if made.matches.iter().any(|m| m.starts_with("udp")) {
                                "udp"
                            } else {
                                "tcp"
                            };
                            made.targets.push(format!(
                                "map ip-{side} {address} map {protocol}-{port} {to_port}"
                            ));
                        }
                        None => made.targets.push(format!(
                            "map {} {to}",
                            if to.contains(':') {
                                format!("ip6-{side}")
                            } else {
                                format!("ip-{side}")
                            }
                        )),
                    }
                    at += 3;
                }
                (word, _) => {
                    // Words of weir stay; verdicts that are written alike, too.
                    let weirs = matches!(word, "accept" | "drop" | "log");
                    if verdict(word, &mut made) {
                        foreign |= !weirs;
                    } else {
                        known = false;
                    }
                    at += 1;
                    if weirs {
                        continue;
                    }
                    if !known {
                        continue;
                    }
                }
            }
        }
        foreign = true;
        if first.is_none()
            && let (Some(from), Some(to)) = (
                words.get(begins),
                words.get(at.min(words.len()).saturating_sub(1)),
            )
        {
            let now = made.matches.last().cloned().unwrap_or_default();
            first = Some((from.span.to(to.span), now));
        }
    }
    if !foreign {
        return None;
    }
    made.limit(&limit);
    if known {
        return Some(made.advice(span, "this is nftables; weir has one word for each field"));
    }
    let (span, now) = first.filter(|(_, now)| !now.is_empty())?;
    Some(Advice {
        span,
        message: "this is nftables; weir has one word for each field".to_owned(),
        help: format!("write `{now}`"),
    })
}
