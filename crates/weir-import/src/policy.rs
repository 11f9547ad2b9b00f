//! Decisions to the text of a policy.
//!
//! The first decision that holds counts; in weir every accept beats every drop. So drops are written as they are, and accepts without what drops
//! before them took. What cannot be written so within bounds is refused, never approximated.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use weir_value::{Mac, PROTOCOLS};

use crate::chains::{Decision, Verdict};
use crate::condition::{Class, Condition, Field, ICMP, ICMP6, IP4, IP6, TCP, UDP, ip};
use crate::finding::{Effect, Finding};
use crate::nat::Mapped;
use crate::numbers::Numbers;
use crate::order::{Reached, Wrote};
use crate::packets_before::{Change, written};
use crate::state::Names;

/// Sets of more intervals get a line of their own.
const INLINE: usize = 8;
/// What a policy is written from.
#[derive(Debug)]
pub(crate) struct Draft {
    /// What is said at the top, line by line.
    pub(crate) head: Vec<String>,
    pub(crate) decisions: Vec<Decision>,
    /// Packets that nothing decides and that are dropped.
    pub(crate) rest: Vec<Condition>,
    /// Translations: line, text, and the condition with what it maps.
    pub(crate) ready: Vec<(u32, String, Mapped)>,
    /// Packets that keep connections known, if rules ask for states of connections.
    pub(crate) tracked: Vec<Condition>,
}

/// The text, and how many rules it has. What cannot be written goes to the findings.
pub(crate) fn write(draft: Draft, names: &Names, findings: &mut Vec<Finding>) -> (String, usize) {
    let mut out = Writer {
        names,
        sets: Vec::new(),
        // Their names are taken.
        used: (names.dynamic.all().iter())
            .map(|set| (Vec::new(), set.name.clone()))
            .collect(),
        body: String::new(),
        rules: 0,
        line: 0,
    };
    let asks_states = (draft.decisions.iter())
        .flat_map(|decision| &decision.when)
        .any(|one| one.has.contains_key(&Field::CtState));
    if asks_states {
        out.trackers(&draft.tracked);
    }
    for (line, text, (when, maps)) in &draft.ready {
        out.origin(*line, text);
        let mut rule = format!("add-stateful {}", out.condition(when));
        for (field, pool) in maps {
            let _ = write!(rule, " map {}", out.pool(when, *field, pool));
        }
        out.rule(&rule);
    }
    let mut reached = Reached::new(&draft.decisions, &draft.rest, &names.dynamic);
    for (at, decision) in draft.decisions.iter().enumerate() {
        let told = findings.len();
        out.tell(findings, decision.line);
        match reached.next(at, decision) {
            Ok(wrote) => out.wrote(decision, &wrote, findings),
            Err((reason, effect)) => {
                findings.push(Finding::new(decision.line, &decision.text, reason, effect));
            }
        }
        out.refused(findings.get(told..).unwrap_or_default());
    }
    out.tell(findings, u32::MAX);
    match reached.rest() {
        Ok(rest) if !rest.is_empty() => {
            out.body.push_str("\n# what nothing accepts\n");
            for one in &rest {
                out.decision(one, "drop", false);
            }
        }
        Ok(_) => {}
        Err(reason) => {
            let line = draft.decisions.last().map_or(1, |last| last.line);
            findings.push(Finding::new(line, "policy drop", reason, Effect::Wider));
            out.refused(findings.get(findings.len() - 1..).unwrap_or_default());
        }
    }
    let mut text = String::new();
    for line in &draft.head {
        let _ = writeln!(text, "# {line}");
    }
    if !out.sets.is_empty() || !names.dynamic.all().is_empty() || names.counted.is_some() {
        text.push('\n');
    }
    if let Some(counted) = names.counted {
        let _ = writeln!(text, "limits {counted}");
    }
    for set in names.dynamic.all() {
        if let Some(who) = &set.filled_by {
            let _ = writeln!(text, "# {who}");
        }
        let size = set.size.map(|size| format!(" size {size}"));
        let _ = writeln!(
            text,
            "set {} = dynamic{}",
            set.name,
            size.unwrap_or_default()
        );
    }
    for set in &out.sets {
        text.push_str(set);
    }
    text.push_str(&out.body);
    (text, out.rules)
}

/// A log with a prefix that weir takes: at most 31 bytes, without quotes.
fn log_target(prefix: &str) -> String {
    let clean: String = prefix
        .chars()
        .filter(|c| !c.is_control() && *c != '"')
        .collect();
    let end = clean.floor_char_boundary(31.min(clean.len()));
    match clean.get(..end).map(str::trim_end) {
        None | Some("") => "log".to_owned(),
        Some(prefix) => format!("log \"{prefix}\""),
    }
}

struct Writer<'a> {
    names: &'a Names,
    /// Lines that define sets.
    sets: Vec<String>,
    /// What they hold, and their names.
    used: Vec<(Vec<String>, String)>,
    body: String,
    rules: usize,
    /// Line of the origin that was written last.
    line: u32,
}

/// Whether packets have no whole header of TCP.
fn lacks_segment(condition: &Condition) -> bool {
    [Class::Ports, Class::Tcp]
        .iter()
        .any(|class| condition.lacks.contains(class))
}

impl Writer<'_> {
    /// Writes the rules of a decision.
    fn wrote(&mut self, decision: &Decision, wrote: &Wrote, findings: &mut Vec<Finding>) {
        if wrote.rules.is_empty() && wrote.answered.is_empty() && !wrote.speaks {
            return;
        }
        self.origin(decision.line, &decision.text);
        if let Some(write) = &decision.write {
            let test = write.test.iter().map(|test| format!("{test} "));
            let target = test.chain([write.target.clone()]).collect::<String>();
            // Later fragments have no header of TCP: a rule about what they would write never matches.
            let is_of_segments = write.when.has.get(&Field::Proto) == Some(&Numbers::one(TCP));
            let rules = wrote.rules.iter();
            for one in rules.filter(|one| !is_of_segments || !lacks_segment(one)) {
                self.decision(one, &target, false);
            }
            return;
        }
        let target = match (&decision.limited, &decision.change, decision.verdict) {
            (limited, _, Verdict::Log) => {
                let target = log_target(decision.log.as_deref().unwrap_or_default());
                match limited {
                    Some(limited) => format!("{target} limit {}", limited.limit.pace()),
                    None => target,
                }
            }
            (Some(limited), ..) => limited.limit.target(),
            (_, Some(change), _) => self.change(change),
            (.., Verdict::Accept) => "accept".to_owned(),
            _ => "drop".to_owned(),
        };
        for (one, target) in &wrote.answered {
            self.decision(one, target, false);
        }
        for one in &wrote.rules {
            self.decision(one, &target, decision.stateful);
        }
        if wrote.passes {
            self.note("what is within the limits of rules before passes: no rule drops it");
        }
        if wrote.speaks && wrote.rules.is_empty() && !wrote.passes {
            self.note("never reached: what it accepts was dropped before");
        }
        if let Some(reason) = &wrote.not_answered {
            let (line, text) = (decision.line, &decision.text);
            findings.push(Finding::new(line, text, reason, Effect::NoAnswer));
        }
        if let Some(line) = wrote.not_logged {
            let reason = format!("what is above its rate is not logged as line {line} says");
            findings.push(Finding::new(
                decision.line,
                &decision.text,
                reason,
                Effect::NotLogged,
            ));
        }
    }

    fn change(&self, change: &Change) -> String {
        let name = self.names.dynamic.name(change.set);
        match (change.delete, change.timeout) {
            (true, _) => format!("delete @{name} {}", change.field),
            (_, Some(time)) => format!("add @{name} {} {}", change.field, written(time)),
            (_, None) => format!("add @{name} {}", change.field),
        }
    }

    /// Says which line the rules that follow come from.
    fn origin(&mut self, line: u32, text: &str) {
        if line != self.line {
            let _ = writeln!(self.body, "\n# line {line}: {}", one_line(text));
        }
        self.line = line;
    }

    fn note(&mut self, text: &str) {
        let _ = writeln!(self.body, "# {text}");
    }

    /// Writes down the findings of lines before this one that were not yet.
    fn tell(&mut self, findings: &mut [Finding], before: u32) {
        for finding in findings.iter_mut() {
            if !finding.told && finding.line <= before {
                finding.told = true;
                if finding.line != self.line {
                    let _ = writeln!(
                        self.body,
                        "\n# line {}: {}",
                        finding.line,
                        one_line(&finding.text)
                    );
                }
                self.line = finding.line;
                let _ = writeln!(self.body, "# {}", finding.words());
            }
        }
    }

    /// Writes down what was just found.
    fn refused(&mut self, findings: &[Finding]) {
        for finding in findings.iter().filter(|finding| !finding.told) {
            self.origin(finding.line, &finding.text);
            let _ = writeln!(self.body, "# {}", finding.words());
        }
    }

    /// Rules that keep connections known and change nothing else: each names the time-out that holds anyway.
    fn trackers(&mut self, tracked: &[Condition]) {
        self.body
            .push_str("\n# every packet may open a connection; rules ask for its state\n");
        let protocols = [
            (Part::of(&[TCP]), "4h"),
            (Part::of(&[UDP]), "300s"),
            (Part::of(&[ICMP, ICMP6]), "60s"),
            (
                Part::of(&[TCP, UDP, ICMP, ICMP6]).not_in(&Field::Proto.domain()),
                "600s",
            ),
        ];
        for one in tracked {
            for (protocols, timeout) in &protocols {
                let part = crate::condition::Part::Has(Field::Proto, protocols.clone());
                if let Some(condition) = one.with(&part) {
                    let condition = self.condition(&condition);
                    self.rule(&format!("add-stateful {condition} timeout {timeout}"));
                }
            }
        }
    }

    fn decision(&mut self, condition: &Condition, target: &str, stateful: bool) {
        let opens = if stateful { "add-stateful " } else { "" };
        let condition = self.condition(condition);
        self.rule(&format!("{opens}{condition} {target}"));
    }

    fn rule(&mut self, rule: &str) {
        self.body.push_str(rule);
        self.body.push('\n');
        self.rules += 1;
    }

    /// A condition in weir's words.
    fn condition(&mut self, condition: &Condition) -> String {
        let mut words: Vec<String> = Vec::new();
        let proto = condition.has.get(&Field::Proto);
        let single = proto.and_then(Numbers::single);
        let has = |field: Field| condition.has.contains_key(&field);
        let transport = match single {
            Some(TCP) => "tcp-",
            Some(UDP) => "udp-",
            _ => "",
        };
        // All addresses of a family: what the family says anyway.
        let idle = |field: Field| {
            let of_family = matches!(field.class(), Class::Ip4 | Class::Ip6);
            of_family && condition.has.get(&field) == Some(&field.domain())
        };
        let telling = || condition.has.keys().filter(|&&field| !idle(field));
        let classes = || telling().map(|field| field.class());
        let says_ports = classes().any(|class| class == Class::Ports);
        let says_tcp = has(Field::TcpFlags) || (says_ports && transport == "tcp-");
        let says_proto = says_tcp
            || (says_ports && transport == "udp-")
            || classes().any(|class| matches!(class, Class::Icmp | Class::Icmp6));
        let ports_imply = Condition::of(Field::Sport, Field::Sport.domain());
        let proto_of_ports = ports_imply.and_then(|one| one.has.get(&Field::Proto).cloned());
        let skip_proto = says_proto || (says_ports && proto == proto_of_ports.as_ref());
        for (&field, values) in &condition.has {
            match field {
                _ if idle(field) => continue,
                _ if field.membership().is_some() => {
                    words.extend(self.membership(field, values));
                    continue;
                }
                Field::Proto if skip_proto => continue,
                Field::EthType => {
                    let four = classes().any(|class| matches!(class, Class::Ip4 | Class::Icmp));
                    let six = classes().any(|class| matches!(class, Class::Ip6 | Class::Icmp6));
                    let said = has(Field::Proto) || has(Field::CtState);
                    if four || six || (said && *values == ip()) {
                        continue;
                    }
                    match values.single() {
                        Some(IP4) => words.push("net-proto ip4".to_owned()),
                        Some(IP6) => words.push("net-proto ip6".to_owned()),
                        _ => words.push(self.test("eth-type", field, values)),
                    }
                    continue;
                }
                // The other port, or the flags, say that there are ports.
                Field::Sport
                    if *values == field.domain() && (has(Field::Dport) || has(Field::TcpFlags)) =>
                {
                    continue;
                }
                Field::Sport | Field::Dport => {
                    let end = if field == Field::Sport {
                        "sport"
                    } else {
                        "dport"
                    };
                    words.push(self.test(&format!("{transport}{end}"), field, values));
                    continue;
                }
                _ => {}
            }
            words.push(self.test(name(field), field, values));
        }
        for class in &condition.lacks {
            let word = match class {
                Class::Vlan => "! vlan",
                Class::Ports => "! sport",
                Class::Tcp => "! tcp",
                Class::Icmp => "! icmp",
                Class::Icmp6 => "! icmp6",
                _ => continue,
            };
            words.push(word.to_owned());
        }
        match words.is_empty() {
            true => "all".to_owned(),
            false => words.join(" "),
        }
    }

    /// A test of a set that packets fill.
    fn membership(&self, field: Field, values: &Numbers) -> Option<String> {
        let (set, address) = self.names.dynamic.tested(field.membership()?)?;
        let not = match values.single()? {
            0 => "! ",
            _ => "",
        };
        let set = self.names.dynamic.name(set);
        Some(format!("{not}{} in @{set}", name(address)))
    }

    /// A field of a translation and what it becomes.
    fn pool(&mut self, when: &Condition, field: Field, pool: &Numbers) -> String {
        let transport = match when.has.get(&Field::Proto).and_then(Numbers::single) {
            Some(UDP) => "udp-",
            _ => "tcp-",
        };
        let name = match field {
            Field::Sport | Field::Dport => format!("{transport}{}", name(field)),
            _ => name(field).to_owned(),
        };
        match &self.values(field, pool)[..] {
            [one] => format!("{name} {one}"),
            words => format!("{name} {{ {} }}", words.join(", ")),
        }
    }

    /// A test of one field.
    fn test(&mut self, name: &str, field: Field, values: &Numbers) -> String {
        let domain = field.domain();
        if field == Field::FragLater {
            return match values.contains(1) {
                true => name.to_owned(),
                false => format!("! {name}"),
            };
        }
        if *values == domain {
            return name.to_owned();
        }
        if field == Field::TcpFlags
            && let Some(text) = flags(name, values)
        {
            return text;
        }
        let others = values.not_in(&domain);
        // Interfaces that no rule names have no name to list.
        let unnamed = field == Field::In && values.contains(u128::from(u32::MAX));
        let fewer = others.intervals().len() < values.intervals().len()
            || (others.intervals().len() == values.intervals().len()
                && (others.single().is_some()
                    || (field.bits() >= 32 && others.is_smaller(values))));
        let inverted = if field == Field::In { unnamed } else { fewer };
        let (not, set) = match inverted {
            true => ("! ", &others),
            false => ("", values),
        };
        let words = self.values(field, set);
        let operator = if field == Field::In { "" } else { "in " };
        // In braces a name cannot be taken for a field or a target.
        let is_plain = |word: &str| {
            let has_digit = word.bytes().any(|b| b.is_ascii_digit());
            field != Field::In || (has_digit && weir_policy::field::Field::find(word).is_none())
        };
        if let [word] = &words[..]
            && is_plain(word)
        {
            return format!("{not}{name} {word}");
        }
        if words.len() <= INLINE {
            return format!("{not}{name} {operator}{{ {} }}", words.join(", "));
        }
        let set = self.named(set, &words);
        format!("{not}{name} {operator}@{set}")
    }

    /// The name of a set, which is defined if it is not yet.
    fn named(&mut self, set: &Numbers, words: &[String]) -> String {
        if let Some((_, name)) = self.used.iter().find(|(known, _)| known == words) {
            return name.clone();
        }
        let taken = |name: &str, used: &[(Vec<String>, String)]| {
            used.iter().any(|(_, known)| known == name)
        };
        let given = self.names.sets.get(set).map(|name| identifier(name));
        let given = given.filter(|name| !taken(name, &self.used));
        let name = given.unwrap_or_else(|| {
            let free = (1..).map(|n| format!("set{n}"));
            let mut free = free.filter(|name| !taken(name, &self.used));
            free.next().unwrap_or_default()
        });
        let lines: Vec<String> = words.chunks(INLINE).map(|line| line.join(", ")).collect();
        self.sets.push(format!(
            "set {name} = {{ \\\n    {} }}\n",
            lines.join(", \\\n    ")
        ));
        self.used.push((words.to_vec(), name.clone()));
        name
    }

    /// The members of a set, as values are written.
    fn values(&self, field: Field, set: &Numbers) -> Vec<String> {
        let mut words = Vec::new();
        for &(low, high) in set.intervals() {
            match field {
                Field::In => {
                    let of = |number: u128| {
                        let at = usize::try_from(number).ok()?;
                        self.names.interfaces.get(at).cloned()
                    };
                    words.extend((low..=high).map_while(of));
                }
                Field::CtState => words.extend((low..=high).filter_map(state).map(str::to_owned)),
                Field::Proto | Field::Next6 if high - low < 8 => {
                    words.extend((low..=high).map(protocol));
                }
                _ => words.extend(blocks(field, low, high)),
            }
        }
        words
    }
}

/// Sets of protocols.
struct Part;

impl Part {
    fn of(values: &[u128]) -> Numbers {
        Numbers::new(values.iter().map(|&value| (value, value)).collect())
    }
}

/// Text in one line that cannot end a comment early.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.trim_end_matches('\\').trim_end();
    match line.char_indices().nth(400) {
        Some((at, _)) => format!("{} ...", line.get(..at).unwrap_or_default()),
        None => line.to_owned(),
    }
}

/// A name of the language made from another.
pub(crate) fn identifier(name: &str) -> String {
    let clean: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') {
                c
            } else {
                '_'
            }
        })
        .collect();
    match clean.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        true => clean,
        false => format!("_{clean}"),
    }
}

pub(crate) fn name(field: Field) -> &'static str {
    match field {
        Field::In => "in",
        Field::EthSaddr => "eth-saddr",
        Field::EthDaddr => "eth-daddr",
        Field::EthType => "eth-type",
        Field::VlanId => "vlan-id",
        Field::Proto => "l4-proto",
        Field::Saddr4 => "ip-saddr",
        Field::Daddr4 => "ip-daddr",
        Field::Saddr6 => "ip6-saddr",
        Field::Daddr6 => "ip6-daddr",
        Field::Dscp4 => "ip-dscp",
        Field::Dscp6 => "ip6-dscp",
        Field::Next6 => "ip6-next",
        Field::Ttl => "ip-ttl",
        Field::HopLimit => "ip6-hop-limit",
        Field::Length4 => "ip-len",
        Field::FragLater => "frag-later",
        Field::Sport => "sport",
        Field::Dport => "dport",
        Field::TcpFlags => "tcp-flags",
        Field::IcmpType => "icmp-type",
        Field::IcmpCode => "icmp-code",
        Field::Icmp6Type => "icmp6-type",
        Field::Icmp6Code => "icmp6-code",
        Field::Mark => "mark",
        Field::Priority => "priority",
        Field::CtState => "ct-state",
        Field::Hour => "hour",
        Field::Day => "day",
        // Said by the translations, or written with their set.
        Field::Translated | Field::Member4(_) | Field::Member6(_) | Field::MemberEth(_) => "",
    }
}

fn state(number: u128) -> Option<&'static str> {
    use crate::condition::{CT_ESTABLISHED, CT_INVALID, CT_NEW, CT_RELATED, CT_UNTRACKED};
    Some(match number {
        CT_INVALID => "invalid",
        CT_ESTABLISHED => "established",
        CT_RELATED => "related",
        CT_NEW => "new",
        CT_UNTRACKED => "untracked",
        _ => return None,
    })
}

/// The first name of a day.
fn day(number: u128) -> &'static str {
    let tables = weir_policy::names();
    let days = tables.iter().find(|(fields, _)| *fields == "`day`");
    let named = days.and_then(|(_, days)| days.iter().find(|&&(_, n)| u128::from(n) == number));
    named.map_or("", |(name, _)| name)
}

fn protocol(number: u128) -> String {
    let known = PROTOCOLS
        .iter()
        .find(|(_, known)| u128::from(*known) == number);
    let known = known.filter(|(name, _)| is_protocol_name(name));
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

/// Whether policies know a protocol by this name.
fn is_protocol_name(name: &str) -> bool {
    let tables = weir_policy::names();
    tables.iter().any(|(fields, names)| {
        fields.contains("l4-proto") && names.iter().any(|(known, _)| *known == name)
    })
}

/// An interval as values of the field.
fn blocks(field: Field, low: u128, high: u128) -> Vec<String> {
    let write = |value: u128| match field {
        Field::Saddr4 | Field::Daddr4 => Ipv4Addr::from(value as u32).to_string(),
        Field::Saddr6 | Field::Daddr6 => Ipv6Addr::from(value).to_string(),
        Field::EthSaddr | Field::EthDaddr => Mac::from_number(value as u64).to_string(),
        Field::EthType => match value {
            IP4 => "ip4".to_owned(),
            IP6 => "ip6".to_owned(),
            _ => format!("x{value:04x}"),
        },
        Field::Hour if value.is_multiple_of(60) => {
            format!("{:02}:{:02}", value / 3600, value / 60 % 60)
        }
        Field::Hour => {
            let (hours, minutes, seconds) = (value / 3600, value / 60 % 60, value % 60);
            format!("{hours:02}:{minutes:02}:{seconds:02}")
        }
        Field::Day => day(value).to_owned(),
        _ => value.to_string(),
    };
    if low == high {
        return vec![write(low)];
    }
    let span = high - low;
    let is_block = span.checked_add(1).is_none_or(u128::is_power_of_two) && low & span == 0;
    let has_prefixes = field.bits() >= 32 && !matches!(field, Field::Mark | Field::Priority);
    if is_block && has_prefixes {
        let length = field.bits() - (128 - span.leading_zeros());
        return vec![format!("{}/{length}", write(low))];
    }
    vec![format!("{}-{}", write(low), write(high))]
}

/// Flags as a value and a mask, if they are that or the opposite.
fn flags(name: &str, values: &Numbers) -> Option<String> {
    let masked = |set: &Numbers| {
        let members: Vec<u128> = (0..=255).filter(|&value| set.contains(value)).collect();
        let ones = members.iter().fold(255, |all, value| all & value);
        let zeros = members.iter().fold(255, |all, value| all & !value);
        let mask = ones | zeros;
        let expected = 1usize << (8 - mask.count_ones());
        (members.len() == expected).then_some((ones, mask))
    };
    let text = |(value, mask): (u128, u128)| match mask {
        255 => flag_words(value),
        _ => format!("{}/{}", flag_words(value), flag_words(mask)),
    };
    if let Some(found) = masked(values) {
        return Some(format!("{name} {}", text(found)));
    }
    let others = values.not_in(&Field::TcpFlags.domain());
    masked(&others).map(|found| format!("! {name} {}", text(found)))
}

fn flag_words(value: u128) -> String {
    const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    let set = FLAGS
        .iter()
        .enumerate()
        .filter(|(bit, _)| value >> bit & 1 == 1);
    let words: Vec<&str> = set.map(|(_, word)| *word).collect();
    match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(","),
    }
}
