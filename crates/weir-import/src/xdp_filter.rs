//! `xdp-filter status`, and the commands that filled it: ports, addresses and MAC addresses that are dropped, or the only ones that pass.

use crate::chains::{Decision, Verdict};
use crate::condition::{Condition, Field, Part, TCP, UDP};
use crate::finding::{Effect, Finding};
use crate::numbers::Numbers;
use crate::policy::Draft;
use crate::state::State;
use crate::values;

/// An interface that the program is loaded on.
struct Loaded {
    number: u128,
    /// Nothing passes but what is listed.
    denies: bool,
}

/// Reads a status or commands.
pub(crate) fn read(text: &str, state: &mut State, source: &str) -> Draft {
    let mut reader = Reader {
        loaded: Vec::new(),
        listed: Vec::new(),
    };
    for (line, raw) in (1u32..).zip(text.lines()) {
        let written = raw.split('#').next().unwrap_or_default().trim();
        let words: Vec<&str> = written.split_whitespace().collect();
        let found = match &words[..] {
            [] => Ok(()),
            ["xdp-filter" | "sudo", rest @ ..] => {
                let rest = if rest.first() == Some(&"xdp-filter") {
                    rest.get(1..).unwrap_or_default()
                } else {
                    rest
                };
                reader.command(line, written, rest, state)
            }
            _ => reader.status(line, written, &words, state),
        };
        if let Err(reason) = found {
            state
                .findings
                .push(Finding::new(line, written, reason, Effect::Either));
        }
    }
    reader.draft(state, source)
}

struct Reader {
    loaded: Vec<Loaded>,
    listed: Vec<(u32, String, Vec<Condition>)>,
}

impl Reader {
    /// A line of `xdp-filter status`.
    fn status(
        &mut self,
        line: u32,
        text: &str,
        words: &[&str],
        state: &mut State,
    ) -> Result<(), String> {
        // `  eth0 (skb mode)   tcp,udp,ipv6,ipv4,ethernet,allow`, the mode in one word or more.
        if let Some(features) = words.last()
            && features
                .split(',')
                .any(|word| word == "allow" || word == "deny")
            && let Some(name) = words.first().and_then(|name| values::interface(name))
        {
            let number = state.names.interface(name);
            let denies = features.split(',').any(|word| word == "deny");
            self.loaded.push(Loaded { number, denies });
            return Ok(());
        }
        // `  80   dst,tcp,udp   12`: what, mode, hits.
        if let [what, mode, hits] = words
            && hits.bytes().all(|b| b.is_ascii_digit())
            && mode.split(',').any(|word| matches!(word, "src" | "dst"))
        {
            return self.list(line, text, what, mode);
        }
        Ok(())
    }

    /// `load`, `port`, `ip`, `ether` with options.
    fn command(
        &mut self,
        line: u32,
        text: &str,
        words: &[&str],
        state: &mut State,
    ) -> Result<(), String> {
        let mut plain = Vec::new();
        let mut mode = String::new();
        let mut protocols = String::new();
        let mut denies = false;
        let mut at = words.iter();
        while let Some(word) = at.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) if name.starts_with('-') => (name, Some(value)),
                _ => (*word, None),
            };
            let mut value = || value.or_else(|| at.next().copied()).unwrap_or_default();
            match name {
                "-m" | "--mode" if words.first() == Some(&"load") => {
                    value();
                }
                "-m" | "--mode" => mode = value().to_owned(),
                "-p" | "--proto" if words.first() == Some(&"port") => {
                    protocols = value().to_owned()
                }
                "-p" | "--policy" => denies = value() == "deny",
                "-f" | "--features" => {
                    value();
                }
                "-r" | "--remove" => {
                    return Err("a removal is not read; give the status".to_owned());
                }
                "-s" | "--status" | "-v" | "--verbose" => {}
                _ if name.starts_with('-') => return Err(format!("`{name}` is not understood")),
                _ => plain.push(*word),
            }
        }
        match plain[..] {
            ["load", name] => {
                let name = values::interface(name)
                    .ok_or_else(|| format!("`{name}` is not an interface"))?;
                let number = state.names.interface(name);
                self.loaded.push(Loaded { number, denies });
                Ok(())
            }
            ["port" | "ip" | "ether", what] => {
                let mode = if mode.is_empty() { "dst" } else { &mode };
                let protocols = match (plain.first(), protocols.is_empty()) {
                    (Some(&"port"), true) => "tcp,udp",
                    _ => &protocols,
                };
                self.list(line, text, what, &format!("{mode},{protocols}"))
            }
            ["status" | "poll" | "unload", ..] | [] => Ok(()),
            _ => Err("this command is not understood".to_owned()),
        }
    }

    /// Something that is filtered; `mode` says at which end, and of ports for which protocols.
    fn list(&mut self, line: u32, text: &str, what: &str, mode: &str) -> Result<(), String> {
        let has = |word: &str| mode.split(',').any(|one| one == word);
        let mut when = Vec::new();
        let mut ends: Vec<bool> = Vec::new();
        if has("src") {
            ends.push(true);
        }
        if has("dst") {
            ends.push(false);
        }
        for source in ends {
            if let Some(port) = values::number(Field::Dport, what) {
                let field = if source { Field::Sport } else { Field::Dport };
                for (name, protocol) in [("tcp", TCP), ("udp", UDP)] {
                    if has(name) {
                        let one = Condition::of(field, Numbers::one(port));
                        when.extend(one.and_then(|one| {
                            one.with(&Part::Has(Field::Proto, Numbers::one(protocol)))
                        }));
                    }
                }
            } else if let Some(mac) = values::mac(what) {
                let field = if source {
                    Field::EthSaddr
                } else {
                    Field::EthDaddr
                };
                when.extend(Condition::of(field, mac));
            } else if let Some((family, set)) = values::addresses(what) {
                let field = if source {
                    family.source()
                } else {
                    family.destination()
                };
                when.extend(Condition::of(field, set));
            } else {
                return Err(format!("`{what}` is not a port or an address"));
            }
        }
        if when.is_empty() {
            return Err("it says neither source nor destination".to_owned());
        }
        self.listed.push((line, text.to_owned(), when));
        Ok(())
    }

    fn draft(self, state: &mut State, source: &str) -> Draft {
        let interfaces = |denies: bool| {
            let of = self.loaded.iter().filter(|one| one.denies == denies);
            Numbers::new(of.map(|one| (one.number, one.number)).collect())
        };
        let (allowing, denying) = (interfaces(false), interfaces(true));
        if self.loaded.is_empty() {
            state.findings.push(Finding::new(
                1,
                "(no interface)",
                "no interface is named; the policy drops what is listed on every interface that it runs on",
                Effect::NoChange,
            ));
        }
        let mut decisions = Vec::new();
        let mut rest = Vec::new();
        let mut on = |set: &Numbers, verdict: Verdict| {
            for (line, text, when) in &self.listed {
                let when = when.iter().filter_map(|one| match set.is_empty() {
                    true => Some(one.clone()),
                    false => one.with(&Part::Has(Field::In, set.clone())),
                });
                decisions.push(Decision {
                    line: *line,
                    text: text.clone(),
                    when: when.collect(),
                    verdict,
                    log: None,
                    stateful: false,
                    limited: None,
                    change: None,
                    write: None,
                    answers: Vec::new(),
                });
            }
        };
        if !allowing.is_empty() || self.loaded.is_empty() {
            on(&allowing, Verdict::Drop);
        }
        if !denying.is_empty() {
            on(&denying, Verdict::Accept);
            rest.extend(Condition::of(Field::In, denying));
        }
        Draft {
            head: vec![format!("made by `weir import` from {source}")],
            decisions,
            rest,
            ready: Vec::new(),
            tracked: vec![],
        }
    }
}
