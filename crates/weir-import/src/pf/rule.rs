//! A rule of pf.conf: action, direction, interface, protocol, both ends, flags, ICMP types, states.

use std::collections::BTreeMap;

use crate::answers::{self, Answer};
use crate::condition::{Condition, Field, Part, TCP, TooMany, ip, product, prune, subtract};
use crate::finding::Effect;
use crate::nat::{self, Target};
use crate::numbers::Numbers;
use crate::state::State;
use crate::values::{self, Family};
use crate::writes::{self, Write};

/// What lines before a rule said.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) tables: BTreeMap<String, Table>,
    /// `set block-policy return`
    pub(super) answers: bool,
    /// Which packets have a tag by now.
    pub(super) tags: BTreeMap<String, Vec<Condition>>,
    /// That cannot be said any more.
    pub(super) tags_lost: bool,
}

impl Known {
    /// Packets that a rule matches have its tag from then on, and no other: a packet has one.
    pub(super) fn tag(&mut self, name: &str, when: &[Condition]) -> Result<(), TooMany> {
        for (_, others) in self.tags.iter_mut().filter(|(other, _)| *other != name) {
            *others = subtract(std::mem::take(others), when.iter())?;
        }
        let own = self.tags.entry(name.to_owned()).or_default();
        own.extend_from_slice(when);
        *own = prune(std::mem::take(own));
        Ok(())
    }
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) four: Numbers,
    pub(super) six: Numbers,
    /// Why its members are not known.
    pub(super) unknown: Option<&'static str>,
    /// The set that stands for it, if programs fill it.
    pub(super) dynamic: Option<u8>,
}

/// A rule that was read.
pub(super) struct Made {
    pub(super) when: Vec<Condition>,
    pub(super) pass: bool,
    pub(super) quick: bool,
    pub(super) keeps_state: bool,
    /// TCP packets open states whatever their flags are.
    pub(super) any_flags: bool,
    pub(super) notes: Vec<(String, Effect)>,
    /// `match`: no verdict.
    pub(super) no_verdict: bool,
    /// For what leaves only.
    pub(super) out: bool,
    /// The tag that its packets have from then on.
    pub(super) tag: Option<String>,
    /// How senders of what it blocks are told.
    pub(super) answers: Vec<Answer>,
    /// What is written to its packets.
    pub(super) write: Option<Write>,
    /// `nat-to`, `rdr-to`: whether sources are translated, and to what.
    pub(super) to: Option<(bool, Target)>,
    /// The interfaces that it names, without a negation.
    pub(super) on: Vec<String>,
}

pub(super) fn too_many(_: TooMany) -> String {
    "it becomes too many rules of weir".to_owned()
}

/// Reads a rule from its action on.
pub(super) fn read(words: &[String], state: &mut State, known: &Known) -> Result<Made, String> {
    let mut rule = Rule {
        words,
        at: 0,
        state,
        known,
        when: Condition::of(Field::EthType, ip()).into_iter().collect(),
        protocols: Vec::new(),
    };
    rule.read()
}

struct Rule<'w, 'r> {
    words: &'w [String],
    at: usize,
    state: &'r mut State,
    known: &'r Known,
    when: Vec<Condition>,
    protocols: Vec<u128>,
}

impl Rule<'_, '_> {
    fn peek(&self) -> &str {
        self.words.get(self.at).map_or("", String::as_str)
    }

    fn take(&mut self) -> String {
        self.at += 1;
        self.words.get(self.at - 1).cloned().unwrap_or_default()
    }

    fn skip(&mut self, word: &str) -> bool {
        let found = self.at < self.words.len() && self.peek() == word;
        self.at += usize::from(found);
        found
    }

    fn narrow(&mut self, alternatives: &[Condition]) -> Result<(), String> {
        self.when = product(&self.when, alternatives).map_err(too_many)?;
        Ok(())
    }

    fn read(&mut self) -> Result<Made, String> {
        let action = self.take();
        let mut made = Made {
            when: Vec::new(),
            pass: action == "pass",
            quick: false,
            keeps_state: action == "pass",
            any_flags: false,
            notes: Vec::new(),
            no_verdict: action == "match",
            out: false,
            tag: None,
            answers: Vec::new(),
            write: None,
            to: None,
            on: Vec::new(),
        };
        let mut flags = false;
        // What it answers is said, or that it does not.
        let mut silent = false;
        while self.at < self.words.len() {
            let word = self.take();
            match word.as_str() {
                "drop" => silent = true,
                "return" | "return-rst" | "return-icmp" | "return-icmp6" => {
                    let mut options = Vec::new();
                    if self.skip("(") {
                        while self.at < self.words.len() && self.peek() != ")" {
                            options.push(self.take());
                        }
                        self.skip(")");
                    }
                    let options: Vec<&str> = (options.iter().map(String::as_str))
                        .filter(|option| *option != ",")
                        .collect();
                    silent = true;
                    match answers::pf(&word, &options) {
                        Ok(answers) => made.answers = answers,
                        Err(reason) => made.notes.push((reason, Effect::NoAnswer)),
                    }
                }
                "in" => {}
                "out" => made.out = true,
                "log" => {
                    if self.skip("(") {
                        while self.at < self.words.len() && self.take() != ")" {}
                    }
                    made.notes.push((
                        "`log` of a rule is not translated".to_owned(),
                        Effect::NotLogged,
                    ));
                }
                "quick" => made.quick = true,
                "on" => made.on = self.interfaces(made.out)?,
                "inet" => self.family(Family::Four)?,
                "inet6" => self.family(Family::Six)?,
                "proto" => self.protocols()?,
                "all" | "any" | "," => {}
                "from" => self.end(true)?,
                "to" => self.end(false)?,
                "port" => return Err("`port` without `from` or `to`".to_owned()),
                "flags" => {
                    flags = true;
                    let value = self.take();
                    if value == "any" {
                        made.any_flags = true;
                    } else {
                        let set = tcp_flags(&value)
                            .ok_or_else(|| format!("the flags `{value}` are not understood"))?;
                        let one: Vec<Condition> =
                            Condition::of(Field::TcpFlags, set).into_iter().collect();
                        self.narrow(&one)?;
                        // A RST, a FIN or an answer opens no connection of weir.
                        made.any_flags = true;
                    }
                }
                "icmp-type" => self.icmp(Field::IcmpType, Field::IcmpCode)?,
                "icmp6-type" => self.icmp(Field::Icmp6Type, Field::Icmp6Code)?,
                "keep" | "modulate" | "synproxy" => {
                    self.skip("state");
                    if word == "synproxy" {
                        made.notes.push((
                            "weir does not answer for the server; connections are opened without"
                                .to_owned(),
                            Effect::NoChange,
                        ));
                    }
                    if self.skip("(") {
                        let mut options = String::new();
                        while self.at < self.words.len() && self.peek() != ")" {
                            options.push_str(&self.take());
                            options.push(' ');
                        }
                        self.skip(")");
                        if options.contains("max-src-conn-rate") {
                            return Err("`max-src-conn-rate` counts connections whose handshake is complete, with a count that fades, and puts sources above it into a table; weir counts packets, and puts sources of all packets of a rule into a set".to_owned());
                        }
                        let limits = ["max", "overload", "source-track", "adaptive", "sloppy"];
                        if limits.iter().any(|limit| options.contains(limit)) {
                            return Err(format!(
                                "weir has no such limits of states: {}",
                                options.trim_end()
                            ));
                        }
                    }
                }
                "no" => {
                    self.skip("state");
                    made.keeps_state = false;
                }
                "tag" => made.tag = Some(self.take()),
                // Only packets that are received are judged, so what leaves has no tag that is known.
                "tagged" if made.out => {
                    self.take();
                }
                "tagged" => self.tagged(false)?,
                "!" if self.skip("tagged") => match made.out {
                    true => self.at += 1,
                    false => self.tagged(true)?,
                },
                "scrub" => self.scrub(&mut made),
                "label" | "queue" | "prio" | "rtable" | "set" => {
                    if self.skip("(") {
                        while self.at < self.words.len() && self.take() != ")" {}
                    } else {
                        self.take();
                    }
                    if matches!(word.as_str(), "set" | "rtable") {
                        made.notes
                            .push((format!("`{word}` is not translated"), Effect::NoChange));
                    }
                }
                "nat-to" | "rdr-to" => {
                    let source = word == "nat-to";
                    made.to = Some((source, self.target(source)?));
                }
                "binat-to" | "af-to" | "route-to" | "reply-to" | "dup-to" | "divert-to"
                | "divert-packet" => {
                    return Err(format!("`{word}` has no counterpart"));
                }
                "user" | "group" => {
                    return Err("weir sees packets, not the processes that send them".to_owned());
                }
                "os" => {
                    return Err("weir does not guess the operating system of a sender".to_owned());
                }
                "allow-opts" => {
                    made.notes.push((
                        "packets with IP options pass in weir without it".to_owned(),
                        Effect::NoChange,
                    ));
                }
                other => return Err(format!("`{other}` has no counterpart")),
            }
        }
        if made.pass && !flags && made.keeps_state {
            self.syn_only()?;
        }
        if self.known.answers && !silent && !made.pass && !made.no_verdict {
            made.answers = answers::pf("return", &[])?;
        }
        made.when = std::mem::take(&mut self.when);
        Ok(made)
    }

    /// `scrub ( no-df max-mss 1440 )`, or the options without parentheses.
    fn scrub(&mut self, made: &mut Made) {
        let mut others = Vec::new();
        let listed = self.skip("(");
        while self.at < self.words.len() {
            let word = self.take();
            match word.as_str() {
                ")" if listed => break,
                "," => {}
                "max-mss" => {
                    let size = self.take();
                    made.write = writes::max_mss(&size);
                    if made.write.is_none() {
                        others.push(format!("max-mss {size}"));
                    }
                }
                "min-ttl" | "set-tos" | "fragment" => {
                    others.push(format!("{word} {}", self.take()))
                }
                "reassemble" if self.skip("tcp") => others.push("reassemble tcp".to_owned()),
                _ => others.push(word),
            }
        }
        if !others.is_empty() {
            let note = format!("`scrub` is not translated: {}", others.join(", "));
            made.notes.push((note, Effect::NoChange));
        }
    }

    /// What stands behind `nat-to` and `rdr-to`: an address or a range, `(IF)`, a port.
    fn target(&mut self, source: bool) -> Result<Target, String> {
        let mut target = if self.skip("(") {
            self.take();
            if !self.skip(")") || !source {
                return Err("what it is translated to is not an address".to_owned());
            }
            nat::masquerade(None)?
        } else {
            let mut address = self.take();
            if self.skip("-") {
                address = format!("{address}-{}", self.take());
            }
            let family = match address.matches(':').count() {
                0 => Family::Four,
                _ => Family::Six,
            };
            nat::to(&address, source, family).map_err(|_| {
                format!("weir translates to one address or a range, not to `{address}`")
            })?
        };
        if self.skip("port") {
            let port = self.take();
            let port = values::number(Field::Dport, &port);
            target.ports = Some(Numbers::one(port.ok_or("the port is not understood")?));
        }
        // How one of several is chosen.
        while matches!(
            self.peek(),
            "round-robin" | "random" | "source-hash" | "sticky-address" | "bitmask"
        ) {
            self.at += 1;
        }
        Ok(target)
    }

    /// Packets that earlier rules gave the tag, or all others.
    fn tagged(&mut self, not: bool) -> Result<(), String> {
        let name = self.take();
        if self.known.tags_lost {
            return Err("which packets have a tag is not known here".to_owned());
        }
        let tags = &self.known.tags;
        let when = tags.get(&name).cloned().unwrap_or_default();
        if when.is_empty() && !not {
            return Err(format!("no rule before it sets the tag {name}"));
        }
        match not {
            false => self.narrow(&when),
            true => {
                let left = std::mem::take(&mut self.when);
                self.when = subtract(left, when.iter()).map_err(too_many)?;
                Ok(())
            }
        }
    }

    /// `flags S/SA` is what `pass` means for TCP.
    fn syn_only(&mut self) -> Result<(), String> {
        let syn = Condition::of(Field::TcpFlags, values::masked_flags(0x12, 0x02));
        let not_tcp = Numbers::one(TCP).not_in(&Field::Proto.domain());
        let others = Condition::of(Field::Proto, not_tcp);
        let both: Vec<Condition> = syn.into_iter().chain(others).collect();
        self.narrow(&both)
    }

    fn family(&mut self, family: Family) -> Result<(), String> {
        let version = match family {
            Family::Four => crate::condition::IP4,
            Family::Six => crate::condition::IP6,
        };
        let one: Vec<Condition> = Condition::of(Field::EthType, Numbers::one(version))
            .into_iter()
            .collect();
        self.narrow(&one)
    }

    /// Words of `{ a, b }`, or one.
    fn list(&mut self) -> Vec<String> {
        if !self.skip("{") {
            return vec![self.take()];
        }
        let mut out = Vec::new();
        let mut depth = 0usize;
        while self.at < self.words.len() {
            match self.take().as_str() {
                "{" => depth += 1,
                "}" if depth == 0 => break,
                "}" => depth -= 1,
                "," => {}
                word => out.push(word.to_owned()),
            }
        }
        out
    }

    /// The interfaces behind `on`, which received packets come in by.
    fn interfaces(&mut self, out: bool) -> Result<Vec<String>, String> {
        let not = self.skip("!");
        let names = self.list();
        if names.iter().any(|name| name == "any") {
            return Ok(Vec::new());
        }
        if out {
            return match not {
                true => Err("`! IF` of what leaves is not understood".to_owned()),
                false => Ok(names),
            };
        }
        let mut set = Numbers::default();
        for name in &names {
            let name =
                values::interface(name).ok_or_else(|| format!("`{name}` is not an interface"))?;
            set = set.or(&Numbers::one(self.state.names.interface(name)));
        }
        let set = if not {
            set.not_in(&Field::In.domain())
        } else {
            set
        };
        let one: Vec<Condition> = Condition::of(Field::In, set).into_iter().collect();
        self.narrow(&one)?;
        Ok(if not { Vec::new() } else { names })
    }

    fn protocols(&mut self) -> Result<(), String> {
        let mut set = Numbers::default();
        for word in self.list() {
            let number = match word.as_str() {
                "icmp6" => Some(58),
                word => values::number(Field::Proto, word),
            };
            let number = number.ok_or_else(|| format!("unknown protocol `{word}`"))?;
            self.protocols.push(number);
            set = set.or(&Numbers::one(number));
        }
        let one: Vec<Condition> = Condition::of(Field::Proto, set).into_iter().collect();
        self.narrow(&one)
    }

    /// What stands behind `from` or `to`.
    fn end(&mut self, source: bool) -> Result<(), String> {
        if self.peek() != "port" {
            self.addresses(source)?;
        }
        if self.skip("port") {
            let field = if source { Field::Sport } else { Field::Dport };
            let set = self.ports(field)?;
            let one: Vec<Condition> = Condition::of(field, set).into_iter().collect();
            self.narrow(&one)?;
        }
        Ok(())
    }

    fn addresses(&mut self, source: bool) -> Result<(), String> {
        let mut hosts: Vec<(bool, String)> = Vec::new();
        if self.skip("{") {
            let mut depth = 0usize;
            let mut not = false;
            while self.at < self.words.len() {
                match self.take().as_str() {
                    "{" => depth += 1,
                    "}" if depth == 0 => break,
                    "}" => depth -= 1,
                    "!" => not = true,
                    "," => {}
                    "-" => {
                        let high = self.take();
                        if let Some((_, low)) = hosts.last_mut() {
                            *low = format!("{low}-{high}");
                        }
                    }
                    word => hosts.push((std::mem::take(&mut not), word.to_owned())),
                }
            }
        } else {
            let not = self.skip("!");
            let mut host = self.take();
            if host == "{" {
                return Err("`!` in front of a list is not pf".to_owned());
            }
            if host == "(" {
                host = format!("({})", self.take());
                self.skip(")");
            }
            if self.skip("-") {
                host = format!("{host}-{}", self.take());
            }
            hosts.push((not, host));
        }
        let mut alternatives = Vec::new();
        for (not, host) in hosts {
            alternatives.extend(self.host(&host, not, source)?);
        }
        // Members of a list are rules of their own.
        let alternatives = merged(prune(alternatives), source);
        self.narrow(&alternatives)
    }

    /// The condition of one host, prefix, range or table.
    fn host(&mut self, host: &str, not: bool, source: bool) -> Result<Vec<Condition>, String> {
        let field = |family: Family| {
            if source {
                family.source()
            } else {
                family.destination()
            }
        };
        let of = |four: Option<Numbers>, six: Option<Numbers>| {
            let sets = [(Family::Four, four), (Family::Six, six)];
            let conditions = sets.into_iter().filter_map(|(family, set)| {
                let set = set?;
                let set = if not {
                    set.not_in(&field(family).domain())
                } else {
                    set
                };
                Condition::of(field(family), set)
            });
            conditions.collect::<Vec<Condition>>()
        };
        if host == "any" {
            return match not {
                true => Err("`! any` is no packet".to_owned()),
                false => Ok(vec![Condition::any()]),
            };
        }
        if let Some(name) = host
            .strip_prefix('<')
            .and_then(|rest| rest.strip_suffix('>'))
        {
            let table = self.known.tables.get(name);
            let table = table.ok_or_else(|| format!("there is no table <{name}>"))?;
            if let Some(reason) = table.unknown {
                return Err(format!("<{name}>: {reason}"));
            }
            if let Some(set) = table.dynamic {
                let mut both = Vec::new();
                for family in [Family::Four, Family::Six] {
                    let test = self.state.names.dynamic.test(set, field(family))?;
                    both.extend(Condition::of(test, Numbers::one(u128::from(!not))));
                }
                return Ok(both);
            }
            return Ok(of(Some(table.four.clone()), Some(table.six.clone())));
        }
        if host == "self" {
            let (four, six) = (
                self.state.local(Family::Four),
                self.state.local(Family::Six),
            );
            if four.is_none() && six.is_none() {
                return Err("the addresses of this host are not in the file; give them with `--local ADDRESS`".to_owned());
            }
            return Ok(of(four, six));
        }
        if let Some((family, set)) = address(host) {
            return Ok(match family {
                Family::Four => of(Some(set), None),
                Family::Six => of(None, Some(set)),
            });
        }
        let interface = host.trim_matches(['(', ')']);
        if let Some(interface) = interface.strip_suffix(":network") {
            let of_family = |six: bool| {
                let routes = self.state.options.routes.iter();
                let routes = routes.filter(|(name, prefix)| {
                    name == interface && prefix.is_ip6 == six && prefix.len > 0
                });
                let set: Vec<(u128, u128)> = routes
                    .map(|(_, prefix)| (prefix.first, prefix.last()))
                    .collect();
                (!set.is_empty()).then(|| Numbers::new(set))
            };
            let (four, six) = (of_family(false), of_family(true));
            if four.is_some() || six.is_some() {
                return Ok(of(four, six));
            }
            return Err(format!(
                "the networks of {interface} are not in the file; give them with `--route {interface}=PREFIX`"
            ));
        }
        let own = |family: Family| {
            let address = self.state.address(Some(interface), family)?;
            Some(Numbers::one(address.first))
        };
        let (four, six) = (own(Family::Four), own(Family::Six));
        if four.is_some() || six.is_some() {
            return Ok(of(four, six));
        }
        match host {
            "urpf-failed" | "no-route" | "route" => Err(format!(
                "`{host}` asks the routing table, which rules of weir do not see"
            )),
            _ => Err(format!(
                "`{host}` is not an address; give that of an interface with `--local {interface}=ADDRESS`"
            )),
        }
    }

    fn ports(&mut self, field: Field) -> Result<Numbers, String> {
        let braces = self.skip("{");
        let mut set = Numbers::default();
        loop {
            if braces && (self.skip("}") || self.at >= self.words.len()) {
                break;
            }
            if braces && self.skip(",") {
                continue;
            }
            set = set.or(&self.port(field)?);
            if !braces {
                break;
            }
        }
        Ok(set)
    }

    fn port(&mut self, field: Field) -> Result<Numbers, String> {
        let domain = field.domain();
        let number = |word: &str| {
            values::number(field, word)
                .ok_or_else(|| format!("the port `{word}` is not understood"))
        };
        let word = self.take();
        Ok(match word.as_str() {
            "=" => Numbers::one(number(&self.take())?),
            "!=" => Numbers::one(number(&self.take())?).not_in(&domain),
            "<" => match number(&self.take())?.checked_sub(1) {
                Some(high) => Numbers::range(0, high),
                None => Numbers::default(),
            },
            "<=" => Numbers::range(0, number(&self.take())?),
            ">" => Numbers::range(number(&self.take())?.saturating_add(1), 65535),
            ">=" => Numbers::range(number(&self.take())?, 65535),
            word => match self.peek() {
                "><" => {
                    self.at += 1;
                    let (low, high) = (number(word)?, number(&self.take())?);
                    Numbers::range(low.saturating_add(1), high.saturating_sub(1))
                }
                "<>" => {
                    self.at += 1;
                    let (low, high) = (number(word)?, number(&self.take())?);
                    Numbers::range(low, high).not_in(&domain)
                }
                _ => values::numbers(field, word, ':')
                    .ok_or_else(|| format!("the port `{word}` is not understood"))?,
            },
        })
    }

    fn icmp(&mut self, kind: Field, code: Field) -> Result<(), String> {
        let mut alternatives = Vec::new();
        let braces = self.skip("{");
        loop {
            if braces && (self.skip("}") || self.at >= self.words.len()) {
                break;
            }
            if braces && self.skip(",") {
                continue;
            }
            let word = self.take();
            let number = icmp_type(kind, &word)
                .ok_or_else(|| format!("the ICMP type `{word}` is not understood"))?;
            let mut one = Condition::of(kind, Numbers::one(number));
            if self.skip("code") {
                let word = self.take();
                let number = values::number(code, &word)
                    .ok_or_else(|| format!("the ICMP code `{word}` is not understood"))?;
                one = one.and_then(|one| one.with(&Part::Has(code, Numbers::one(number))));
            }
            alternatives.extend(one);
            if !braces {
                break;
            }
        }
        // Types without codes become one set.
        let (plain, coded): (Vec<Condition>, Vec<Condition>) = alternatives
            .into_iter()
            .partition(|one| !one.has.contains_key(&code));
        let types = plain.iter().filter_map(|one| one.has.get(&kind));
        let types = types.fold(Numbers::default(), |all, one| all.or(one));
        let all: Vec<Condition> = coded
            .into_iter()
            .chain(Condition::of(kind, types))
            .collect();
        self.narrow(&all)
    }
}

/// Joins conditions on one address field, so that a list is one rule of weir.
fn merged(conditions: Vec<Condition>, source: bool) -> Vec<Condition> {
    let mut out: Vec<Condition> = Vec::new();
    for family in [Family::Four, Family::Six] {
        let field = if source {
            family.source()
        } else {
            family.destination()
        };
        let sets = conditions.iter().filter_map(|one| one.has.get(&field));
        let all = sets.fold(Numbers::default(), |all, one| all.or(one));
        out.extend(Condition::of(field, all));
    }
    let ends = [Field::Saddr4, Field::Saddr6, Field::Daddr4, Field::Daddr6];
    let names_none = |one: &&Condition| !ends.iter().any(|field| one.has.contains_key(field));
    out.extend(conditions.iter().filter(names_none).cloned());
    prune(out)
}

/// An address as pf writes it, `10/8` too.
pub(super) fn address(word: &str) -> Option<(Family, Numbers)> {
    if let Some(found) = values::addresses(word) {
        return Some(found);
    }
    let (address, length) = word.split_once('/')?;
    let parts = address.split('.').count();
    if parts >= 4 || address.contains(':') {
        return None;
    }
    values::addresses(&format!("{address}{}/{length}", ".0".repeat(4 - parts)))
}

/// `S/SA`, `/SFRA`.
fn tcp_flags(word: &str) -> Option<Numbers> {
    let (set, mask) = word.split_once('/').unwrap_or((word, "FSRPAUEW"));
    let bits = |letters: &str| {
        letters.chars().try_fold(0u128, |all, letter| {
            let at = "FSRPAUEW".find(letter)?;
            Some(all | 1 << at)
        })
    };
    let (set, mask) = (bits(set)?, bits(mask)?);
    Some(values::masked_flags(mask, set))
}

/// Types as pf calls them.
fn icmp_type(field: Field, word: &str) -> Option<u128> {
    const FOUR: &[(&str, u128)] = &[
        ("echorep", 0),
        ("unreach", 3),
        ("squench", 4),
        ("redir", 5),
        ("echoreq", 8),
        ("routeradv", 9),
        ("routersol", 10),
        ("timex", 11),
        ("paramprob", 12),
        ("timereq", 13),
        ("timerep", 14),
    ];
    const SIX: &[(&str, u128)] = &[
        ("unreach", 1),
        ("toobig", 2),
        ("timex", 3),
        ("paramprob", 4),
        ("echoreq", 128),
        ("echorep", 129),
        ("groupqry", 130),
        ("grouprep", 131),
        ("groupterm", 132),
        ("routersol", 133),
        ("routeradv", 134),
        ("neighbrsol", 135),
        ("neighbradv", 136),
        ("redir", 137),
    ];
    let names = if field == Field::IcmpType { FOUR } else { SIX };
    let named = names
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, number)| *number);
    named.or_else(|| values::number(field, word))
}
