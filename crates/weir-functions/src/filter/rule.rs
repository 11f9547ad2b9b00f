//! The text of one rule: what it does, which packets it is about, and its options.
//!
//! `docs/filter.md` has the grammar. A mistake is told with its column and, where a word is nearly right, with the word that was meant.
//! What a set is called is kept as a name; whether there is such a set is not decided here.

use super::units;
use weir_bpf::abi::filter::action;
use weir_value::{PortRange, Prefix};

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The packet passes, whatever other rules say.
    Allow {
        /// Mark it carries to the functions behind.
        mark: Option<u32>,
        /// CPUs it is moved to; empty: those of the filter.
        cpus: Vec<u32>,
    },
    /// The packet is dropped.
    Deny,
    /// The packet is dropped while a load value is above a limit.
    Shed {
        /// Name of the load value.
        load: String,
        /// Limit.
        above: u64,
    },
    /// The packet is dropped when it comes too soon.
    Limit(Limit),
    /// TCP connections begin with a SYN cookie.
    Cookie,
}

impl Action {
    /// `WEIR_A_*`, which is the order in which rules are asked.
    pub fn number(&self) -> u8 {
        match self {
            Action::Allow { .. } => action::ALLOW,
            Action::Deny => action::DENY,
            Action::Shed { .. } => action::SHED,
            Action::Limit(_) => action::LIMIT,
            Action::Cookie => action::COOKIE,
        }
    }
}

/// How often packets may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Nanoseconds a packet.
    pub interval_ns: u64,
    /// Packets that may come at once.
    pub burst: u64,
    /// What is counted apart.
    pub per: Per,
    /// How long a source is blocked that comes too often; 0: not at all.
    pub block_ns: u64,
}

impl Limit {
    /// How far ahead of now the word of the limit may run.
    pub fn ahead_ns(&self) -> u64 {
        self.interval_ns.saturating_mul(self.burst - 1)
    }
}

/// What a limit is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// All packets of the rule together.
    Rule,
    /// Sources that have so many bits in common.
    Source {
        /// In IPv4.
        len4: u8,
        /// In IPv6.
        len6: u8,
    },
    /// An entry of the rule's set.
    Entry,
}

/// A condition that may be negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test<T> {
    /// `not` stands before it.
    pub is_negated: bool,
    /// One of these holds.
    pub any: Vec<T>,
}

/// What a `from` or `to` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// A prefix.
    Prefix(Prefix),
    /// A set, by its name.
    Set(String),
}

/// A closed range of ports.
pub type Ports = (u16, u16);

/// What stands where a protocol may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A protocol by its number.
    Protocol(u8),
    /// A TCP segment with SYN and without ACK.
    TcpSyn,
    /// A fragment, the first or a later one.
    Fragment,
    /// IPv4, or IPv6.
    Family {
        /// Which.
        is_ip6: bool,
    },
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// As it was written.
    pub text: String,
    /// What it does.
    pub action: Action,
    /// Protocols and the like: every test must hold.
    pub kinds: Vec<Test<Kind>>,
    /// Source addresses.
    pub from: Option<Test<Addresses>>,
    /// Destination addresses.
    pub to: Option<Test<Addresses>>,
    /// Source ports, closed ranges.
    pub from_port: Option<Test<Ports>>,
    /// Destination ports.
    pub to_port: Option<Test<Ports>>,
}

/// A mistake in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Characters before it.
    pub column: usize,
    /// In one sentence.
    pub message: String,
    /// What to write instead.
    pub advice: Option<String>,
}

const ACTIONS: &[&str] = &[
    "allow",
    "accept",
    "deny",
    "drop",
    "shed",
    "limit",
    "syncookie",
];
const WORDS: &[&str] = &[
    "from",
    "to",
    "from-port",
    "to-port",
    "not",
    "fragment",
    "tcp-syn",
    "ip4",
    "ip6",
    "rate",
    "burst",
    "per",
    "block",
    "when",
    "mark",
    "cpu",
];

/// Reads a rule.
///
/// # Errors
/// The first mistake.
pub fn parse(text: &str) -> Result<Rule, RuleError> {
    let mut reader = Reader {
        words: words(text),
        at: 0,
        end: text.trim_end().len(),
    };
    let (column, verb) = reader.want("an action")?;
    if !ACTIONS.contains(&verb) {
        return Err(RuleError {
            column,
            message: format!("`{verb}` is not an action"),
            advice: Some(match weir_policy::nearest(verb, ACTIONS.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "a rule begins with allow, deny, shed, limit or syncookie".to_owned(),
            }),
        });
    }
    let mut rule = Rule {
        text: text.trim().to_owned(),
        action: Action::Deny,
        kinds: Vec::new(),
        from: None,
        to: None,
        from_port: None,
        to_port: None,
    };
    let mut options = Options::default();
    while let Some((column, word)) = reader.next() {
        reader.part(&mut rule, &mut options, column, word)?;
    }
    rule.action = options.finish(verb, column, reader.end)?;
    if rule.action == Action::Cookie {
        match rule.kinds.is_empty() {
            true => rule.kinds.push(Test {
                is_negated: false,
                any: vec![Kind::Protocol(6)],
            }),
            false
                if rule
                    .kinds
                    .iter()
                    .any(|t| t.is_negated || t.any != [Kind::Protocol(6)]) =>
            {
                return Err(RuleError {
                    column,
                    message: "`syncookie` is about TCP".to_owned(),
                    advice: Some("leave the protocol out: `syncookie to-port 443`".to_owned()),
                });
            }
            false => {}
        }
    }
    if let Action::Limit(limit) = rule.action
        && limit.per == Per::Entry
    {
        let has_set = |test: &Option<Test<Addresses>>| test.as_ref().is_some_and(|t| !t.is_negated);
        if !has_set(&rule.from) && !has_set(&rule.to) {
            return Err(RuleError {
                column,
                message: "`per entry` wants a set or prefixes to count by".to_owned(),
                advice: Some("add `from @SET` or `to @SET`".to_owned()),
            });
        }
    }
    Ok(rule)
}

#[derive(Default)]
struct Options {
    rate: Option<u64>,
    burst: Option<u64>,
    per: Option<Per>,
    block: Option<u64>,
    when: Option<(String, u64)>,
    mark: Option<u32>,
    cpus: Vec<u32>,
    /// Options that were given: where, which, and the actions they belong to.
    given: Vec<(usize, &'static str, &'static [&'static str])>,
}

impl Options {
    fn finish(self, verb: &str, column: usize, end: usize) -> Result<Action, RuleError> {
        let verb = match verb {
            "accept" => "allow",
            "drop" => "deny",
            other => other,
        };
        if let Some((column, option, of)) = self.given.iter().find(|(.., of)| !of.contains(&verb)) {
            return Err(RuleError {
                column: *column,
                message: format!("`{option}` does not go with `{verb}`"),
                advice: Some(format!("it belongs to `{}` rules", of.join("` and `"))),
            });
        }
        let missing = |message: &str, advice: &str| RuleError {
            column: end,
            message: message.to_owned(),
            advice: Some(advice.to_owned()),
        };
        Ok(match verb {
            "allow" => Action::Allow {
                mark: self.mark,
                cpus: self.cpus,
            },
            "shed" => {
                let (load, above) = self
                    .when
                    .ok_or_else(|| missing("`shed` needs a condition", "add `when load > N`"))?;
                Action::Shed { load, above }
            }
            "limit" => {
                let interval_ns = self
                    .rate
                    .ok_or_else(|| missing("`limit` wants a rate", "add `rate 1000/s`"))?;
                // A tenth of a second, but room for one packet.
                let burst = self.burst.unwrap_or((100_000_000 / interval_ns).max(1));
                let per = self.per.unwrap_or(Per::Rule);
                let block_ns = self.block.unwrap_or(0);
                if block_ns > 0 && !matches!(per, Per::Source { .. }) {
                    return Err(RuleError {
                        column,
                        message: "`block` blocks a source, and this limit is not counted by source"
                            .to_owned(),
                        advice: Some("add `per source`, or leave `block` out".to_owned()),
                    });
                }
                let limit = Limit {
                    interval_ns,
                    burst,
                    per,
                    block_ns,
                };
                if limit.ahead_ns() > 1 << 60 {
                    return Err(missing(
                        "the burst takes longer than a life to come back",
                        "write a smaller burst",
                    ));
                }
                Action::Limit(limit)
            }
            "syncookie" => Action::Cookie,
            _ => Action::Deny,
        })
    }
}

struct Reader<'t> {
    words: Vec<(usize, &'t str)>,
    at: usize,
    end: usize,
}

/// Words with the number of characters before them; commas and comparison signs are words of their own.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut start = None;
    for (i, c) in text.char_indices().chain([(text.len(), ' ')]) {
        let splits = c.is_whitespace() || matches!(c, ',' | '>');
        if splits && let Some(from) = start.take() {
            words.push((from, &text[from..i]));
        }
        if matches!(c, ',' | '>') {
            words.push((i, &text[i..i + 1]));
        } else if !splits && start.is_none() {
            start = Some(i);
        }
    }
    words
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Option<(usize, &'t str)> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }

    fn peek(&self) -> Option<&'t str> {
        self.words.get(self.at).map(|(_, word)| *word)
    }

    fn want(&mut self, what: &str) -> Result<(usize, &'t str), RuleError> {
        let end = self.end;
        self.next().ok_or_else(|| RuleError {
            column: end,
            message: format!("the rule ends where {what} is expected"),
            advice: None,
        })
    }

    /// `X, Y, Z`, each read by `read`; at least one.
    fn list<T>(
        &mut self,
        what: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, RuleError> {
        let mut all = Vec::new();
        loop {
            let (column, word) = self.want(what)?;
            all.push(read(word).map_err(|message| RuleError {
                column,
                message,
                advice: None,
            })?);
            if self.peek() != Some(",") {
                return Ok(all);
            }
            self.at += 1;
        }
    }

    /// Whether `not` stands here; it is taken.
    fn not(&mut self) -> bool {
        let is_there = self.peek() == Some("not");
        self.at += usize::from(is_there);
        is_there
    }

    fn part(
        &mut self,
        rule: &mut Rule,
        options: &mut Options,
        column: usize,
        word: &'t str,
    ) -> Result<(), RuleError> {
        let value = |message: String| RuleError {
            column,
            message,
            advice: None,
        };
        match word {
            "from" | "to" => {
                let is_negated = self.not();
                let place = if word == "from" {
                    &mut rule.from
                } else {
                    &mut rule.to
                };
                once(place.is_some(), column, word)?;
                let any = self.list("an address or a @set", addresses)?;
                *place = Some(Test { is_negated, any });
            }
            "from-port" | "to-port" => {
                let is_negated = self.not();
                let place = if word == "from-port" {
                    &mut rule.from_port
                } else {
                    &mut rule.to_port
                };
                once(place.is_some(), column, word)?;
                let any = self.list("a port", |word| {
                    let ports: PortRange = word.parse()?;
                    Ok((ports.first, ports.last))
                })?;
                *place = Some(Test { is_negated, any });
            }
            "rate" => {
                options.given.push((column, "rate", &["limit"]));
                once(options.rate.is_some(), column, word)?;
                let (column, word) = self.want("a rate")?;
                options.rate = Some(units::interval_ns(word).map_err(|message| RuleError {
                    column,
                    message,
                    advice: None,
                })?);
            }
            "burst" => {
                options.given.push((column, "burst", &["limit"]));
                once(options.burst.is_some(), column, word)?;
                let (_, word) = self.want("a number of packets")?;
                let burst =
                    weir_value::count(word).map_err(|invalid| value(invalid.to_string()))?;
                if !(1..=1_000_000_000).contains(&burst) {
                    return Err(value(format!(
                        "`{word}` is not a number of packets from 1 to 1G"
                    )));
                }
                options.burst = Some(burst);
            }
            "per" => {
                options.given.push((column, "per", &["limit"]));
                once(options.per.is_some(), column, word)?;
                options.per = Some(self.per()?);
            }
            "block" => {
                options.given.push((column, "block", &["limit"]));
                once(options.block.is_some(), column, word)?;
                let (column, word) = self.want("a duration")?;
                options.block = Some(units::duration_ns(word).map_err(|message| RuleError {
                    column,
                    message,
                    advice: None,
                })?);
            }
            "when" => {
                options.given.push((column, "when", &["shed"]));
                once(options.when.is_some(), column, word)?;
                let (_, name) = self.want("the name of a load value")?;
                let (column, sign) = self.want("`>`")?;
                if sign != ">" {
                    return Err(RuleError {
                        column,
                        message: format!("`{sign}` stands where `>` is expected"),
                        advice: Some("write `when load > N`".to_owned()),
                    });
                }
                let (column, word) = self.want("a number")?;
                let above = weir_value::count(word).map_err(|invalid| RuleError {
                    column,
                    message: invalid.to_string(),
                    advice: None,
                })?;
                options.when = Some((name.to_owned(), above));
            }
            "mark" => {
                options.given.push((column, "mark", &["allow"]));
                once(options.mark.is_some(), column, word)?;
                let (column, word) = self.want("a number")?;
                let mark = weir_value::count(word)
                    .ok()
                    .and_then(|n| u32::try_from(n).ok());
                options.mark = Some(mark.ok_or_else(|| RuleError {
                    column,
                    message: format!("`{word}` is not a mark from 0 to 4294967295"),
                    advice: None,
                })?);
            }
            "cpu" => {
                options.given.push((column, "cpu", &["allow"]));
                once(!options.cpus.is_empty(), column, word)?;
                options.cpus = self.list("the number of a CPU", |word| {
                    weir_value::decimal(word.as_bytes())
                        .and_then(|n| u32::try_from(n).ok())
                        .filter(|n| *n < super::CPUS_MAX)
                        .ok_or_else(|| {
                            format!(
                                "`{word}` is not the number of a CPU from 0 to {}",
                                super::CPUS_MAX - 1
                            )
                        })
                })?;
            }
            _ => {
                let (is_negated, column, word) = match word {
                    "not" => {
                        let (column, word) = self.want("a protocol")?;
                        (true, column, word)
                    }
                    _ => (false, column, word),
                };
                let mut any = vec![kind(column, word)?];
                while self.peek() == Some(",") {
                    self.at += 1;
                    let (column, word) = self.want("a protocol")?;
                    any.push(kind(column, word)?);
                }
                rule.kinds.push(Test { is_negated, any });
            }
        }
        Ok(())
    }

    fn per(&mut self) -> Result<Per, RuleError> {
        let (column, word) = self.want("source, source/24, entry or rule")?;
        let wrong = |message: String| {
            RuleError {
            column,
            message,
            advice: Some("write `per source`, `per source/24`, `per source/24/56`, `per entry` or `per rule`".to_owned()),
        }
        };
        match word {
            "rule" => return Ok(Per::Rule),
            "entry" => return Ok(Per::Entry),
            "source" => {
                return Ok(Per::Source {
                    len4: 32,
                    len6: 128,
                });
            }
            _ => {}
        }
        let Some(lens) = word.strip_prefix("source/") else {
            return Err(wrong(format!("`{word}` is nothing a limit is counted by")));
        };
        let len = |digits: &str, most: u64| {
            weir_value::decimal(digits.as_bytes())
                .filter(|n| (1..=most).contains(n))
                .map(|n| n as u8)
                .ok_or_else(|| wrong(format!("`/{digits}` is not a length from /1 to /{most}")))
        };
        match lens.split_once('/') {
            Some((four, six)) => Ok(Per::Source {
                len4: len(four, 32)?,
                len6: len(six, 128)?,
            }),
            None => match len(lens, 128)? {
                four @ ..=32 => Ok(Per::Source {
                    len4: four,
                    len6: 64,
                }),
                six => Ok(Per::Source {
                    len4: 32,
                    len6: six,
                }),
            },
        }
    }
}

fn once(is_given: bool, column: usize, word: &str) -> Result<(), RuleError> {
    if !is_given {
        return Ok(());
    }
    Err(RuleError {
        column,
        message: format!("`{word}` is given twice"),
        advice: Some("join the two with commas, or write two rules".to_owned()),
    })
}

fn addresses(word: &str) -> Result<Addresses, String> {
    match word.strip_prefix('@') {
        Some("") => Err("`@` wants the name of a set behind it".to_owned()),
        Some(name) => Ok(Addresses::Set(name.to_owned())),
        None => Ok(Addresses::Prefix(word.parse::<Prefix>()?)),
    }
}

fn kind(column: usize, word: &str) -> Result<Kind, RuleError> {
    Ok(match word {
        "tcp-syn" => Kind::TcpSyn,
        "fragment" => Kind::Fragment,
        "ip4" => Kind::Family { is_ip6: false },
        "ip6" => Kind::Family { is_ip6: true },
        _ => match weir_value::protocol(word).ok() {
            Some(number) => Kind::Protocol(number),
            None => {
                let known = WORDS
                    .iter()
                    .copied()
                    .chain(weir_value::PROTOCOLS.iter().map(|(name, _)| *name));
                let near = weir_policy::nearest(word, known);
                return Err(RuleError {
                    column,
                    message: format!("`{word}` is not understood"),
                    advice: Some(match near {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "a condition is a protocol, from, to, from-port, to-port, fragment, ip4 or ip6".to_owned(),
                    }),
                });
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Rule {
        parse(text).unwrap_or_else(|e| panic!("{text}: {} at {}", e.message, e.column))
    }

    fn refused(text: &str) -> (usize, String, String) {
        let e = parse(text).expect_err("refused");
        (e.column, e.message, e.advice.unwrap_or_default())
    }

    #[test]
    fn the_rules_of_the_manual_are_read() {
        let rule = read("deny udp to-port 53, 1900, 10000-20000 from @bad to 192.0.2.0/24");
        assert_eq!(rule.action, Action::Deny);
        assert_eq!(
            rule.kinds,
            [Test {
                is_negated: false,
                any: vec![Kind::Protocol(17)]
            }]
        );
        assert_eq!(
            rule.to_port.expect("ports").any,
            [(53, 53), (1900, 1900), (10000, 20000)]
        );
        assert_eq!(
            rule.from.expect("from").any,
            [Addresses::Set("bad".to_owned())]
        );
        let rule = read("limit udp rate 1000/s burst 100 per source block 60s");
        let limit = Limit {
            interval_ns: 1_000_000,
            burst: 100,
            per: Per::Source {
                len4: 32,
                len6: 128,
            },
            block_ns: 60_000_000_000,
        };
        assert_eq!(rule.action, Action::Limit(limit));
        let Action::Limit(limit) = read("limit tcp-syn rate 10k/s per source/24").action else {
            panic!()
        };
        assert_eq!(limit.per, Per::Source { len4: 24, len6: 64 });
        assert_eq!(limit.burst, 1000);
        assert!(
            read("deny from not @country")
                .from
                .expect("from")
                .is_negated
        );
        assert_eq!(
            read("shed udp when load > 80").action,
            Action::Shed {
                load: "load".to_owned(),
                above: 80
            }
        );
        assert_eq!(
            read("allow from @vip mark 7").action,
            Action::Allow {
                mark: Some(7),
                cpus: Vec::new()
            }
        );
        assert_eq!(
            read("accept cpu 1, 2").action,
            Action::Allow {
                mark: None,
                cpus: vec![1, 2]
            }
        );
        assert_eq!(
            read("syncookie to-port 80, 443").kinds,
            [Test {
                is_negated: false,
                any: vec![Kind::Protocol(6)]
            }]
        );
        assert!(read("deny not tcp, udp").kinds[0].is_negated);
        read("limit rate 1M/s per entry from @customers");
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let said = |text| refused(text);
        assert_eq!(
            said("dney from 10.0.0.0/8"),
            (
                0,
                "`dney` is not an action".to_owned(),
                "did you mean `deny`?".to_owned()
            )
        );
        assert_eq!(said("deny form 10.0.0.0/8").2, "did you mean `from`?");
        assert_eq!(said("deny from 10.0.0.1/8").0, 10);
        assert_eq!(
            said("deny to-port 70000"),
            (
                13,
                "invalid port range `70000`: expected a port such as 80 or http, or a range such as 8000-8999".to_owned(),
                String::new()
            )
        );
        assert_eq!(
            said("deny udp rate 5/s").1,
            "`rate` does not go with `deny`"
        );
        assert_eq!(
            said("limit udp"),
            (
                9,
                "`limit` wants a rate".to_owned(),
                "add `rate 1000/s`".to_owned()
            )
        );
        assert_eq!(
            said("limit rate 5/s block 1m").1,
            "`block` blocks a source, and this limit is not counted by source"
        );
        assert_eq!(
            said("limit rate 5/s per entry").2,
            "add `from @SET` or `to @SET`"
        );
        assert_eq!(said("deny from @a from @b").1, "`from` is given twice");
        assert_eq!(
            said("deny from").1,
            "the rule ends where an address or a @set is expected"
        );
        assert_eq!(
            said("shed udp when load < 4").1,
            "`<` stands where `>` is expected"
        );
        assert_eq!(said("syncookie udp").1, "`syncookie` is about TCP");
        assert_eq!(said("").1, "the rule ends where an action is expected");
    }
}
