//! A rule of nftables: tests, statements and a verdict, in the order written.

use super::table::{Table, closing, elements};
use super::tokens::{Kind, Token, text_of};
use crate::answers::{self, Answer};
use crate::chains::Then;
use crate::condition::{
    CT_ESTABLISHED, CT_INVALID, CT_NEW, CT_RELATED, CT_UNTRACKED, Condition, Field, IP4, IP6, Part,
    TCP, TooMany, UDP, product, prune, subtract,
};
use crate::finding::Effect;
use crate::nat::{self, Target};
use crate::numbers::Numbers;
use crate::packets_before::{Change, Limited, Per};
use crate::state::State;
use crate::values::{self, Family};
use crate::writes::{self, Write};

/// What a rule says.
pub(super) struct Made {
    /// Conditions and what happens; more than one of a verdict map. Or why there is none.
    pub(super) branches: Result<Vec<(Vec<Condition>, Then)>, String>,
    pub(super) log: Option<String>,
    pub(super) to: Option<Target>,
    pub(super) out: Option<String>,
    pub(super) notes: Vec<(String, Effect)>,
    pub(super) limited: Option<Limited>,
    pub(super) change: Option<(Vec<Condition>, Change)>,
    pub(super) writes: Vec<(Vec<Condition>, Write)>,
    pub(super) answers: Vec<Answer>,
    /// What leaving it out means.
    pub(super) effect: Effect,
}

/// Reads a rule.
pub(super) fn read(words: &[Token], table: &Table, state: &mut State) -> Made {
    let has = |word: &str| {
        words
            .iter()
            .any(|token| token.kind == Kind::Word && token.text == word)
    };
    let effect = if has("vmap") || has("jump") || has("goto") || has("return") {
        Effect::Either
    } else if has("accept") {
        Effect::Narrower
    } else if has("drop") || has("reject") {
        Effect::Wider
    } else if has("masquerade") || has("snat") || has("dnat") || has("redirect") {
        Effect::Either
    } else if has("log") {
        Effect::NotLogged
    } else if words.iter().any(|token| token.text.starts_with('@')) && (has("add") || has("update"))
    {
        Effect::NotAdded
    } else {
        Effect::NoChange
    };
    let mut reader = Reader {
        words,
        at: 0,
        table,
        state,
        when: vec![Condition::any()],
        then: Then::Continue,
        branches: Vec::new(),
        log: None,
        logs_all: false,
        to: None,
        out: None,
        notes: Vec::new(),
        limited: None,
        change: None,
        writes: Vec::new(),
        answers: Vec::new(),
        closed: None,
    };
    let read = reader.rule().and_then(|()| reader.is_one_thing());
    let branches = read.map(|()| {
        let mut branches = std::mem::take(&mut reader.branches);
        if branches.is_empty() || reader.then != Then::Continue {
            branches.push((reader.when.clone(), reader.then.clone()));
        }
        branches
    });
    Made {
        branches,
        log: reader.log,
        to: reader.to,
        out: reader.out,
        notes: reader.notes,
        limited: reader.limited,
        change: reader.change,
        writes: reader.writes,
        answers: reader.answers,
        effect,
    }
}

/// What is tested.
#[derive(Clone, Copy, Debug)]
pub(super) enum Selector {
    /// A field, and the EtherType or protocol that naming it asks for.
    Field(Field, Option<(Field, u128)>),
    Incoming,
    Outgoing,
    /// `meta nfproto`: the IP version.
    Version,
}

pub(super) struct Reader<'a, 's> {
    words: &'a [Token],
    at: usize,
    pub(super) table: &'a Table,
    pub(super) state: &'s mut State,
    pub(super) when: Vec<Condition>,
    then: Then,
    branches: Vec<(Vec<Condition>, Then)>,
    log: Option<String>,
    /// The log stands in front of the limit, if there is one.
    logs_all: bool,
    to: Option<Target>,
    out: Option<String>,
    notes: Vec<(String, Effect)>,
    pub(super) limited: Option<Limited>,
    /// A change of a set, and the packets that it is for.
    pub(super) change: Option<(Vec<Condition>, Change)>,
    /// What is written, and the packets that it is for.
    writes: Vec<(Vec<Condition>, Write)>,
    answers: Vec<Answer>,
    /// A statement that counts packets or fills a set: what is tested behind it is not counted.
    pub(super) closed: Option<&'static str>,
}

pub(super) fn too_many(_: TooMany) -> String {
    "it becomes too many rules of weir".to_owned()
}

impl Reader<'_, '_> {
    pub(super) fn peek(&self) -> &str {
        self.words
            .get(self.at)
            .map_or("", |token| token.text.as_str())
    }

    pub(super) fn take(&mut self) -> &str {
        self.at += 1;
        self.words
            .get(self.at - 1)
            .map_or("", |token| token.text.as_str())
    }

    pub(super) fn skip(&mut self, word: &str) -> bool {
        let found = self.peek() == word && self.at < self.words.len();
        self.at += usize::from(found);
        found
    }

    /// Passes pairs of a word and its value.
    pub(super) fn skip_pairs(&mut self, names: &[&str]) {
        while names.contains(&self.peek()) && self.at < self.words.len() {
            self.at += 2;
        }
    }

    fn rule(&mut self) -> Result<(), String> {
        while let Some(token) = self.words.get(self.at) {
            if token.kind == Kind::Text {
                return Err(format!("`{}` stands where no text can", token.text));
            }
            let word = token.text.clone();
            self.at += 1;
            match word.as_str() {
                "counter" => self.skip_pairs(&["packets", "bytes", "name"]),
                "comment" => self.at += 1,
                "accept" => self.then = Then::Accept,
                "drop" => self.then = Then::Drop,
                "return" => self.then = Then::Return,
                "continue" => self.then = Then::Continue,
                "jump" => self.then = Then::Jump(self.take().to_owned()),
                "goto" => self.then = Then::Goto(self.take().to_owned()),
                "reject" => self.reject()?,
                "log" => {
                    let before = self.limited.is_none();
                    self.log()?;
                    self.logs_all = before && self.log.is_some();
                }
                "masquerade" | "snat" | "dnat" | "redirect" => self.translate(&word)?,
                "limit" | "meter" if self.closed.is_some() => {
                    return Err(format!(
                        "`{word}` stands behind what counts packets or fills a set"
                    ));
                }
                "limit" => {
                    self.limited = Some(self.limit()?);
                    self.closed = Some("limit");
                }
                "meter" => self.changes_set(&word)?,
                "quota" => {
                    return Err("`quota` counts bytes of IP packets, `drop over N bytes` of weir those of frames, 14 more a packet".to_owned());
                }
                "ct" if self.peek() == "count" && self.closed.is_none() => {
                    self.limited = Some(self.connections()?);
                    self.closed = Some("ct count");
                }
                "update" | "add" | "delete" if self.peek().starts_with('@') => {
                    if self.limited.is_some() {
                        return Err("weir changes a set for all packets of a rule, not for those that a limit matches".to_owned());
                    }
                    self.changes_set(&word)?;
                }
                "queue" | "tproxy" | "synproxy" => {
                    return Err(format!(
                        "`{word}` hands packets to programs, which weir does not"
                    ));
                }
                "notrack" => {
                    return Err(
                        "weir cannot leave packets out of the table of connections".to_owned()
                    );
                }
                "reset" if self.peek() == "tcp" => {
                    let start = self.at - 1;
                    self.at = (self.at + 3).min(self.words.len());
                    let words = self.words.get(start..self.at).unwrap_or_default();
                    let words: Vec<&str> = words.iter().map(|token| token.text.as_str()).collect();
                    self.written(&words)?;
                }
                "flow" | "dup" | "fwd" => return Err(format!("`{word}` has no counterpart")),
                "fib" => self.address_type()?,
                _ => {
                    self.at -= 1;
                    self.test()?;
                }
            }
        }
        Ok(())
    }

    /// What stands behind `reject`. nft adds a test for the packets that can get the answer.
    fn reject(&mut self) -> Result<(), String> {
        let rest = self.words.get(self.at..).unwrap_or_default();
        let stop = rest.iter().position(|token| token.text == "comment");
        let rest = rest.get(..stop.unwrap_or(rest.len())).unwrap_or_default();
        self.at += rest.len();
        self.then = Then::Drop;
        let words: Vec<&str> = rest.iter().map(|token| token.text.as_str()).collect();
        match answers::nft(&words) {
            Some(answer) if words.is_empty() || words.contains(&"icmpx") => {
                self.answers.push(answer);
            }
            Some(answer) => {
                let limits = if words.contains(&"tcp") {
                    Condition::of(Field::Proto, Numbers::one(TCP))
                } else {
                    Some(answer.to.clone())
                };
                let narrower = product(&self.when, limits.as_slice()).map_err(too_many)?;
                if self.closed.is_some() && narrower != self.when {
                    return Err(
                        "its answer is for some packets only, and a statement before it counts all"
                            .to_owned(),
                    );
                }
                self.when = narrower;
                self.answers.push(answer);
            }
            None => self.notes.push((
                format!("weir has no answer like `reject {}`", text_of(rest)),
                Effect::NoAnswer,
            )),
        }
        Ok(())
    }

    fn log(&mut self) -> Result<(), String> {
        let mut prefix = String::new();
        let mut group = false;
        loop {
            match self.peek() {
                "prefix" => {
                    self.at += 1;
                    prefix = self.take().to_owned();
                }
                "level" | "snaplen" | "queue-threshold" => self.at += 2,
                "group" => {
                    group = true;
                    self.at += 2;
                }
                "flags" => {
                    self.at += 2;
                    while self.skip(",") {
                        self.at += 1;
                    }
                    // `flags tcp sequence`
                    if matches!(self.peek(), "sequence" | "options") {
                        self.at += 1;
                    }
                }
                _ => break,
            }
        }
        match group {
            true => self.notes.push((
                "weir's log goes to the readers of weir, not to a group of netlink".to_owned(),
                Effect::NotLogged,
            )),
            false => self.log = Some(prefix),
        }
        Ok(())
    }

    fn translate(&mut self, what: &str) -> Result<(), String> {
        let mut family = match self.table.family.as_str() {
            "ip6" => Family::Six,
            _ => Family::Four,
        };
        if self.skip("ip6") {
            family = Family::Six;
        } else if self.skip("ip") {
            family = Family::Four;
        }
        let mut value = String::new();
        if self.skip("to") {
            while let Some(token) = self.words.get(self.at) {
                if token.kind != Kind::Word
                    || matches!(
                        token.text.as_str(),
                        "random" | "persistent" | "fully-random" | "comment" | "counter"
                    )
                {
                    break;
                }
                value.push_str(&token.text);
                self.at += 1;
            }
            if self
                .words
                .get(self.at)
                .is_some_and(|token| token.kind == Kind::Open)
                || value.contains("map")
            {
                return Err(format!("`{what}` to the value of a map has no counterpart"));
            }
        }
        if value.starts_with('[') || value.matches(':').count() > 1 {
            family = Family::Six;
        }
        while matches!(self.peek(), "random" | "persistent" | "fully-random" | ",") {
            self.at += 1;
        }
        let ports = value.strip_prefix(':').filter(|ports| !ports.is_empty());
        self.to = Some(match what {
            "masquerade" => nat::masquerade(ports)?,
            "redirect" => nat::redirect(ports)?,
            _ => nat::to(&value, what == "snat", family)?,
        });
        Ok(())
    }

    /// Whether what is counted has a counterpart, with all that is done.
    fn is_one_thing(&mut self) -> Result<(), String> {
        let Some(limited) = &self.limited else {
            return Ok(());
        };
        let within = !limited.over && limited.limit.per == Per::Rule;
        let then_goes_on = self.then == Then::Continue;
        if self.log.is_some() && !self.logs_all && !then_goes_on {
            self.log = None;
            let reason = "a limit of weir is of what a rule logs or of what it drops, not of both: `log` beside a verdict reports every packet of its rule";
            self.notes.push((reason.to_owned(), Effect::NotLogged));
        }
        if self.change.is_some() {
            return Err("a rule counts packets and changes a set".to_owned());
        }
        match &self.then {
            Then::Continue if self.log.is_some() && !self.logs_all && within => Ok(()),
            Then::Continue => Err(
                "weir drops what is above a rate or logs what is within, and has no other limit"
                    .to_owned(),
            ),
            Then::Jump(_) | Then::Goto(_) => Err(
                "a limit in front of a jump has no counterpart: weir drops what is above a rate"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }

    /// A test, or a statement that begins like one.
    fn test(&mut self) -> Result<(), String> {
        let start = self.at;
        let first = self.selector()?;
        if self.sets_next() {
            return self.writes(start);
        }
        if let Some(closed) = self.closed {
            let word = text_of(self.words.get(start..self.at).unwrap_or_default());
            return Err(format!(
                "`{word}` is tested behind {closed}, which counts the packets that reach it"
            ));
        }
        let Some(first) = first else {
            return Ok(());
        };
        let mut selectors = vec![first];
        while self.skip(".") {
            selectors.extend(self.selector()?);
        }
        if let Selector::Field(Field::TcpFlags, _) = first
            && !matches!(self.peek(), "{" | "vmap")
            && !self.peek().starts_with('@')
        {
            return self.flags();
        }
        if self.skip("vmap") {
            return self.verdicts(&selectors);
        }
        let mut negated = false;
        let mut compared = String::new();
        if self
            .words
            .get(self.at)
            .is_some_and(|token| token.kind == Kind::Sign)
        {
            let sign = self.take().to_owned();
            match sign.as_str() {
                "!=" => negated = true,
                "==" => {}
                "<" | "<=" | ">" | ">=" => compared = sign,
                "&" => return Err("a mask of this field has no counterpart".to_owned()),
                other => return Err(format!("`{other}` is not understood")),
            }
        }
        if let (Some(name), [Selector::Field(field, _)]) = (
            self.peek().strip_prefix('@').map(str::to_owned),
            &selectors[..],
        ) && self.table.sets.get(&name).is_some_and(|set| set.changes)
        {
            let field = *field;
            self.at += 1;
            return self.membership(&name, field, !negated);
        }
        let values = self.values()?;
        if let (false, Selector::Field(field, _), [one]) = (compared.is_empty(), first, &values[..])
        {
            let word = one.first().map_or("", |token| token.text.as_str());
            let number =
                values::number(field, word).ok_or_else(|| format!("`{word}` is not a number"))?;
            let max = u128::MAX >> (128 - field.bits().clamp(1, 128));
            let set = match compared.as_str() {
                "<" => number.checked_sub(1).map(|high| Numbers::range(0, high)),
                "<=" => Some(Numbers::range(0, number)),
                ">" => Some(Numbers::range(number.saturating_add(1), max)),
                _ => Some(Numbers::range(number, max)),
            };
            let set = set.unwrap_or_default();
            return self.narrow(&[of(first, set)]);
        }
        if let [one] = &selectors[..] {
            let conditions = self.any_of(*one, &values, negated)?;
            return self.narrow_all(conditions);
        }
        let mut alternatives = Vec::new();
        for value in &values {
            alternatives.extend(self.tuple(&selectors, value)?);
        }
        if !negated {
            return self.narrow_all(prune(alternatives));
        }
        // What has all fields of the tuple, and is not in the set.
        let mut with_all = vec![Condition::any()];
        for selector in &selectors {
            if let Selector::Field(field, _) = selector {
                let present: Vec<Condition> = of(*selector, field.domain()).into_iter().collect();
                with_all = product(&with_all, &present).map_err(too_many)?;
            }
        }
        let left = subtract(with_all, alternatives.iter()).map_err(too_many)?;
        self.narrow_all(left)
    }

    /// Whether the words write what they name: `set` is next, or behind the name of an option.
    fn sets_next(&self) -> bool {
        let rest = self.words.get(self.at..).unwrap_or_default();
        let is_set = |token: &Token| token.kind == Kind::Word && token.text == "set";
        let Some(at) = rest.iter().take(4).position(is_set) else {
            return false;
        };
        let before = rest.get(..at).unwrap_or_default();
        let others = (0..at).any(|from| rest.get(from..).is_some_and(begins_write));
        !others && !before.iter().any(|token| is_statement(&token.text))
    }

    /// A statement that writes something, which changes no verdict.
    fn writes(&mut self, start: usize) -> Result<(), String> {
        while self.at < self.words.len() && !self.skip("set") {
            self.at += 1;
        }
        if !self.skip_value() {
            while (self.words.get(self.at)).is_some_and(|token| !is_statement(&token.text)) {
                self.at += 1;
            }
        }
        let words = self.words.get(start..self.at).unwrap_or_default();
        let words: Vec<&str> = words.iter().map(|token| token.text.as_str()).collect();
        self.written(&words)
    }

    fn written(&mut self, words: &[&str]) -> Result<(), String> {
        match writes::nft(words, self.state.options.mtu) {
            Ok(_) if self.limited.is_some() => {
                let reason = "weir has no limit for what a rule writes".to_owned();
                self.notes.push((reason, Effect::NoChange));
            }
            Ok(writes) => {
                let all: Vec<Condition> = writes.iter().map(|write| write.when.clone()).collect();
                // Naming a header asks for it, for what stands behind as well.
                self.when = product(&self.when, &all).map_err(too_many)?;
                for write in writes {
                    let of = std::slice::from_ref(&write.when);
                    let when = product(&self.when, of).map_err(too_many)?;
                    self.writes.push((when, write));
                }
            }
            Err(reason) => self.notes.push((reason, Effect::NoChange)),
        }
        Ok(())
    }

    /// Passes a value: numbers, names and `meta mark`, with `&`, `|` and `^` between. Whether there was one.
    fn skip_value(&mut self) -> bool {
        loop {
            while self.skip("(") {}
            if self.skip("meta") || self.skip("ct") {
                self.at += 1;
            } else if matches!(
                self.peek(),
                "map" | "jhash" | "symhash" | "numgen" | "ip" | "ip6" | "tcp" | "udp" | "th" | "rt"
            ) || self.at >= self.words.len()
            {
                return false;
            } else {
                self.at += 1;
            }
            while self.skip(")") {}
            let joins = ["&", "|", "^", "and", "or", "xor", "<<", ">>"];
            if !joins.iter().any(|sign| self.skip(sign)) {
                return true;
            }
        }
    }

    pub(super) fn narrow(&mut self, alternatives: &[Option<Condition>]) -> Result<(), String> {
        self.narrow_all(alternatives.iter().flatten().cloned().collect())
    }

    fn narrow_all(&mut self, alternatives: Vec<Condition>) -> Result<(), String> {
        self.when = product(&self.when, &alternatives).map_err(too_many)?;
        Ok(())
    }

    /// `fib daddr type local`, as far as it is about addresses alone.
    fn address_type(&mut self) -> Result<(), String> {
        let asks = || "`fib` asks the routing table, which rules of weir do not see".to_owned();
        let source = match self.take() {
            "saddr" => true,
            "daddr" => false,
            _ => return Err(asks()),
        };
        if !self.skip("type") {
            return Err(asks());
        }
        let negated = self.skip("!=");
        let values = self.values()?;
        let mut alternatives = Vec::new();
        for family in [Family::Four, Family::Six] {
            let field = match source {
                true => family.source(),
                false => family.destination(),
            };
            let mut set = Numbers::default();
            for value in &values {
                let kind = value.first().map_or("", |token| token.text.as_str());
                // Addresses of one family are enough where a table is for both.
                set = set.or(&self.state.of_type(kind, family)?.unwrap_or_default());
            }
            alternatives.extend(Condition::of(field, set));
        }
        match negated {
            false => self.narrow_all(alternatives),
            true => {
                let left = std::mem::take(&mut self.when);
                self.when = subtract(left, alternatives.iter()).map_err(too_many)?;
                Ok(())
            }
        }
    }

    /// `ip saddr`, `tcp dport`, `meta l4proto`, `iifname`.
    /// `None`: the words are no test, or one that is done.
    pub(super) fn selector(&mut self) -> Result<Option<Selector>, String> {
        let first = self.take().to_owned();
        let plain = |field| Ok(Some(Selector::Field(field, None)));
        let on = |field, class, value| Ok(Some(Selector::Field(field, Some((class, value)))));
        match first.as_str() {
            "iif" | "iifname" => return Ok(Some(Selector::Incoming)),
            "oif" | "oifname" => return Ok(Some(Selector::Outgoing)),
            _ => {}
        }
        let second = self.take().to_owned();
        match (first.as_str(), second.as_str()) {
            ("meta", "iif" | "iifname") => Ok(Some(Selector::Incoming)),
            ("meta", "oif" | "oifname") => Ok(Some(Selector::Outgoing)),
            ("meta", "l4proto") => plain(Field::Proto),
            ("meta", "nfproto") => Ok(Some(Selector::Version)),
            ("meta", "protocol") | ("ether", "type") => plain(Field::EthType),
            ("meta", "hour") => {
                let zone = "`hour` of nft is local time of the host that lists the rules, here it is UTC: write `timezone +02:00` in front of the policy if they differ";
                if !self.notes.iter().any(|(note, _)| note == zone) {
                    self.notes.push((zone.to_owned(), Effect::NoChange));
                }
                plain(Field::Hour)
            }
            ("meta", "day") => plain(Field::Day),
            ("meta", "time") => {
                Err("weir tests times of day and days of the week, no dates".to_owned())
            }
            ("meta", "mark") if self.peek() != "set" => plain(Field::Mark),
            ("meta", "mark" | "priority") | ("ct", "mark") => match self.peek() {
                "set" => Ok(None),
                _ => Err(format!("weir does not test {first} {second}")),
            },
            ("tcp" | "ip" | "ip6", "option") | ("exthdr", _) if self.sets_next() => Ok(None),
            ("ether", "saddr") => plain(Field::EthSaddr),
            ("ether", "daddr") => plain(Field::EthDaddr),
            ("vlan", "id") => plain(Field::VlanId),
            ("ip", "saddr") => plain(Field::Saddr4),
            ("ip", "daddr") => plain(Field::Daddr4),
            ("ip6", "saddr") => plain(Field::Saddr6),
            ("ip6", "daddr") => plain(Field::Daddr6),
            ("ip", "protocol") => on(Field::Proto, Field::EthType, IP4),
            ("ip", "ttl") => plain(Field::Ttl),
            ("ip", "dscp") => plain(Field::Dscp4),
            ("ip", "length") => plain(Field::Length4),
            ("ip6", "hoplimit") => plain(Field::HopLimit),
            ("ip6", "dscp") => plain(Field::Dscp6),
            ("ip", "frag-off") => {
                // Written by iptables-nft for `-f`.
                let words: Vec<&str> = (self.words.get(self.at..).unwrap_or_default().iter())
                    .take(4)
                    .map(|token| token.text.as_str())
                    .collect();
                match words[..] {
                    ["&", "0x1fff" | "8191", "!=" | "==", "0" | "0x0"] => {
                        let later = words.get(2) == Some(&"!=");
                        self.at += 4;
                        let one = of(
                            Selector::Field(Field::FragLater, Some((Field::EthType, IP4))),
                            Numbers::one(u128::from(later)),
                        );
                        self.narrow(&[one])?;
                        Ok(None)
                    }
                    _ => Err(
                        "`ip frag-off` has no counterpart but `& 0x1fff` compared with 0"
                            .to_owned(),
                    ),
                }
            }
            ("ip6", "nexthdr") => plain(Field::Next6),
            ("tcp", "sport") => on(Field::Sport, Field::Proto, TCP),
            ("tcp", "dport") => on(Field::Dport, Field::Proto, TCP),
            ("tcp", "flags") => plain(Field::TcpFlags),
            ("udp", "sport") => on(Field::Sport, Field::Proto, UDP),
            ("udp", "dport") => on(Field::Dport, Field::Proto, UDP),
            ("sctp", "sport") => on(Field::Sport, Field::Proto, 132),
            ("sctp", "dport") => on(Field::Dport, Field::Proto, 132),
            ("dccp", "sport") => on(Field::Sport, Field::Proto, 33),
            ("dccp", "dport") => on(Field::Dport, Field::Proto, 33),
            ("udplite", "sport") => on(Field::Sport, Field::Proto, 136),
            ("udplite", "dport") => on(Field::Dport, Field::Proto, 136),
            ("th", "sport") => plain(Field::Sport),
            ("th", "dport") => plain(Field::Dport),
            ("icmp", "type") => plain(Field::IcmpType),
            ("icmp", "code") => plain(Field::IcmpCode),
            ("icmpv6", "type") => plain(Field::Icmp6Type),
            ("icmpv6", "code") => plain(Field::Icmp6Code),
            ("ct", "state") => plain(Field::CtState),
            ("ct", "status") => plain(Field::Translated),
            _ => Err(format!("weir does not test `{first} {second}`")),
        }
    }

    /// One value, values with commas between, `{ ... }` or `@set`.
    fn values(&mut self) -> Result<Vec<Vec<Token>>, String> {
        let Some(token) = self.words.get(self.at) else {
            return Err("a value is missing".to_owned());
        };
        if token.kind == Kind::Open {
            let close = closing(self.words, self.at);
            let inside = self.words.get(self.at..close).unwrap_or_default();
            self.at = close + 1;
            return Ok(elements(inside));
        }
        if let Some(name) = token.text.strip_prefix('@') {
            self.at += 1;
            return self.set(name);
        }
        let mut out = Vec::new();
        loop {
            let mut one = Vec::new();
            while let Some(token) = self.words.get(self.at) {
                let joins = is_between(&token.text)
                    || one
                        .last()
                        .is_some_and(|last: &Token| is_between(&last.text));
                if !one.is_empty() && !joins {
                    break;
                }
                one.push(token.clone());
                self.at += 1;
            }
            out.push(one);
            if !self.skip(",") {
                return Ok(out);
            }
        }
    }

    fn set(&self, name: &str) -> Result<Vec<Vec<Token>>, String> {
        let set = self.table.sets.get(name);
        let set = set.ok_or_else(|| format!("there is no set or map `{name}`"))?;
        match set.changes {
            true => Err(format!(
                "the set `{name}` changes while rules run, and only single addresses are looked up in such sets of weir"
            )),
            false => Ok(set.elements.clone()),
        }
    }

    /// The condition that a field has one of these values.
    fn any_of(
        &mut self,
        selector: Selector,
        values: &[Vec<Token>],
        negated: bool,
    ) -> Result<Vec<Condition>, String> {
        let name_of = self.words.get(self.at.wrapping_sub(1));
        let name_of = name_of
            .and_then(|token| token.text.strip_prefix('@'))
            .map(str::to_owned);
        match selector {
            Selector::Outgoing => {
                let names: Vec<&str> = (values.iter())
                    .filter_map(|value| value.first())
                    .map(|token| token.text.as_str())
                    .collect();
                if let ([name], false) = (&names[..], negated) {
                    self.out = Some((*name).to_owned());
                }
                self.state.leaves_by(&names, negated)
            }
            Selector::Incoming => {
                let mut set = Numbers::default();
                for value in values {
                    let word = value.first().map_or("", |token| token.text.as_str());
                    let name = values::interface(word)
                        .ok_or_else(|| format!("`{word}` is not a whole name of an interface"))?;
                    set = set.or(&Numbers::one(self.state.names.interface(name)));
                }
                let set = if negated {
                    set.not_in(&Field::In.domain())
                } else {
                    set
                };
                Ok(Condition::of(Field::In, set).into_iter().collect())
            }
            Selector::Version => {
                let mut set = Numbers::default();
                for value in values {
                    set = set.or(&Numbers::one(version(value)?));
                }
                let set = if negated {
                    set.not_in(&crate::condition::ip())
                } else {
                    set
                };
                Ok(Condition::of(Field::EthType, set).into_iter().collect())
            }
            Selector::Field(field, _) => {
                let mut intervals = Vec::new();
                for value in values {
                    intervals.extend_from_slice(number_of(field, value)?.intervals());
                }
                let set = Numbers::new(intervals);
                if let Some(name) = name_of {
                    self.state.names.call(set.clone(), &name);
                }
                let set = if negated {
                    set.not_in(&field.domain())
                } else {
                    set
                };
                Ok(of(selector, set).into_iter().collect())
            }
        }
    }

    /// The conditions of `a . b`.
    fn tuple(&mut self, selectors: &[Selector], value: &[Token]) -> Result<Vec<Condition>, String> {
        let parts: Vec<&[Token]> = value.split(|token| token.text == ".").collect();
        if parts.len() != selectors.len() {
            return Err("an element has another number of parts than the test".to_owned());
        }
        let mut out = vec![Condition::any()];
        for (selector, part) in selectors.iter().zip(parts) {
            let one = self.any_of(*selector, &[part.to_vec()], false)?;
            out = product(&out, &one).map_err(too_many)?;
        }
        Ok(out)
    }

    /// `vmap { key : verdict, ... }` or `vmap @map`.
    fn verdicts(&mut self, selectors: &[Selector]) -> Result<(), String> {
        let entries = self.values()?;
        let mut keyed: Vec<(Then, Vec<Vec<Token>>)> = Vec::new();
        for entry in entries {
            let colon = entry.iter().position(|token| token.text == ":");
            let colon = colon.ok_or("an element of a map has no verdict")?;
            let (key, verdict) = (
                entry.get(..colon).unwrap_or_default(),
                entry.get(colon + 1..).unwrap_or_default(),
            );
            let verdict: Vec<&str> = verdict.iter().map(|token| token.text.as_str()).collect();
            let then = match verdict[..] {
                ["accept", ..] => Then::Accept,
                ["drop", ..] => Then::Drop,
                ["return", ..] => Then::Return,
                ["continue", ..] => Then::Continue,
                ["jump", chain, ..] => Then::Jump(chain.to_owned()),
                ["goto", chain, ..] => Then::Goto(chain.to_owned()),
                _ => return Err("a verdict of a map is not understood".to_owned()),
            };
            match keyed.iter_mut().find(|(known, _)| *known == then) {
                Some((_, keys)) => keys.push(key.to_vec()),
                None => keyed.push((then, vec![key.to_vec()])),
            }
        }
        for (then, keys) in keyed {
            let conditions = match selectors {
                [one] => self.any_of(*one, &keys, false)?,
                _ => {
                    let mut all = Vec::new();
                    for key in &keys {
                        all.extend(self.tuple(selectors, key)?);
                    }
                    prune(all)
                }
            };
            let when = product(&self.when, &conditions).map_err(too_many)?;
            self.branches.push((when, then));
        }
        Ok(())
    }

    /// What stands behind `tcp flags`.
    fn flags(&mut self) -> Result<(), String> {
        let bad = || "these TCP flags are not understood".to_owned();
        let mask = match self.skip("&") {
            true => Some(self.flag_words().ok_or_else(bad)?),
            false => None,
        };
        let sign = match self.words.get(self.at) {
            Some(token) if token.kind == Kind::Sign && token.text != "(" => {
                self.at += 1;
                token.text.clone()
            }
            _ => String::new(),
        };
        let value = self.flag_words().ok_or_else(bad)?;
        let mask = match (mask, self.skip("/")) {
            (None, true) => Some(self.flag_words().ok_or_else(bad)?),
            (mask, _) => mask,
        };
        let all = Field::TcpFlags.domain();
        let set = match (mask, sign.as_str()) {
            (Some(mask), "" | "==") => values::masked_flags(mask, value),
            (Some(mask), "!=") => values::masked_flags(mask, value).not_in(&all),
            (None, "==") => Numbers::one(value),
            // One of them is set.
            (None, "") => values::masked_flags(value, 0).not_in(&all),
            _ => return Err(bad()),
        };
        self.narrow(&[of(Selector::Field(Field::TcpFlags, None), set)])
    }

    /// Flags joined by `|` or commas, in parentheses or not.
    fn flag_words(&mut self) -> Option<u128> {
        let open = self.skip("(");
        let mut all = 0;
        loop {
            let token = self.words.get(self.at)?;
            all |= values::flags(&token.text, &['|'])?;
            self.at += 1;
            if !self.skip("|") && !self.skip(",") {
                break;
            }
        }
        (!open || self.skip(")")).then_some(all)
    }
}

/// Whether the words write something: `meta mark set`, `tcp option maxseg size set`.
fn begins_write(words: &[Token]) -> bool {
    let text = |at: usize| words.get(at).map_or("", |token| token.text.as_str());
    let begins = matches!(
        text(0),
        "meta" | "ct" | "ip" | "ip6" | "vlan" | "tcp" | "ether"
    );
    begins && (text(2) == "set" || text(4) == "set")
}

/// Words that begin a statement without a value in front.
fn is_statement(word: &str) -> bool {
    matches!(
        word,
        "accept"
            | "drop"
            | "return"
            | "continue"
            | "jump"
            | "goto"
            | "counter"
            | "comment"
            | "log"
            | "reject"
            | "limit"
    )
}

/// A condition on one field, with what naming it asks for.
fn of(selector: Selector, set: Numbers) -> Option<Condition> {
    let Selector::Field(field, needed) = selector else {
        return None;
    };
    let condition = Condition::of(field, set)?;
    match needed {
        Some((field, value)) => condition.with(&Part::Has(field, Numbers::one(value))),
        None => Some(condition),
    }
}

fn version(value: &[Token]) -> Result<u128, String> {
    match value.first().map_or("", |token| token.text.as_str()) {
        "ipv4" | "2" => Ok(IP4),
        "ipv6" | "10" => Ok(IP6),
        other => Err(format!("`{other}` is not an IP version")),
    }
}

/// What stands between the parts of one value: of a concatenation, of a range of texts.
fn is_between(word: &str) -> bool {
    matches!(word, "." | "-")
}

/// The numbers that an element means for a field.
fn number_of(field: Field, value: &[Token]) -> Result<Numbers, String> {
    // Elements may go on with `timeout`, `counter` or `comment`.
    let word = value.first().map_or("", |token| token.text.as_str());
    let extra = value.get(1).map_or("", |token| token.text.as_str());
    if let (Field::Hour | Field::Day, "-", Some(end)) = (field, extra, value.get(2)) {
        let ends = values::number(field, word).zip(values::number(field, &end.text));
        let (low, high) = ends.ok_or_else(|| format!("`{word}` is not understood here"))?;
        return match (field, low <= high) {
            (_, true) => Ok(Numbers::range(low, high)),
            // nft makes of it what the other way around is not, without both ends.
            (Field::Hour, false) => Ok(Numbers::range(high, low).not_in(&field.domain())),
            _ => Err(format!("the range of days from `{word}` runs backwards")),
        };
    }
    if matches!(extra, "timeout" | "expires") {
        return Err("an element of the set ends after a time".to_owned());
    }
    if !matches!(extra, "" | "counter" | "comment") {
        return Err(format!("`{word} {extra}` is not understood"));
    }
    let found = match field {
        Field::Saddr4 | Field::Daddr4 => values::addresses(word)
            .filter(|(family, _)| *family == Family::Four)
            .map(|(_, set)| set),
        Field::Saddr6 | Field::Daddr6 => values::addresses(word)
            .filter(|(family, _)| *family == Family::Six)
            .map(|(_, set)| set),
        Field::EthSaddr | Field::EthDaddr => values::mac(word),
        Field::CtState => match word {
            "invalid" => Some(CT_INVALID),
            "established" => Some(CT_ESTABLISHED),
            "related" => Some(CT_RELATED),
            "new" => Some(CT_NEW),
            "untracked" => Some(CT_UNTRACKED),
            _ => None,
        }
        .map(Numbers::one),
        Field::Next6 => values::numbers(Field::Proto, word, '-'),
        Field::Translated if word == "dnat" => Some(Numbers::one(1)),
        Field::Translated => return Err(format!("weir does not test `ct status {word}`")),
        _ => values::numbers(field, word, '-'),
    };
    found.ok_or_else(|| format!("`{word}` is not understood here"))
}
