//! Tables beside the rules: classes, kinds of references, thresholds and suppressions, reputation of addresses. A broken line is told with file, line and column; the rest is read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::addresses::{any_address, parse_addresses};
use super::model::{Action, AddressSet, SourceLocation, Threshold, ThresholdKind, Track};
use super::problem::{Kind, Parsed, Problem, Refused};
use super::scan::commas;
use super::text::Text;
use super::variables::Variables;

/// A class of `classification.config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its description, the category of alerts.
    pub description: String,
    /// 1 is the highest.
    pub priority: u8,
}

/// Classes by their short name.
pub type Classes = BTreeMap<String, Class>;

/// The lines that say something, in order, with their number.
fn lines(text: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    text.split(|b| *b == b'\n')
        .zip(1u32..)
        .map(|(line, number)| (number, line.trim_ascii()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
}

fn refused(file: &Arc<str>, line: u32, text: &[u8], problem: Problem) -> Refused {
    let count = |part: &[u8]| String::from_utf8_lossy(part).chars().count() as u32;
    let start = problem.start.min(text.len());
    let end = problem.end.clamp(start, text.len());
    Refused {
        place: SourceLocation {
            file: file.clone(),
            line,
        },
        column: count(&text[..start]) + 1,
        width: count(&text[start..end]).max(1),
        sid: None,
        kind: problem.kind,
        keyword: problem.keyword,
        reason: problem.reason,
        phrase: problem.phrase,
        text: String::from_utf8_lossy(text).into_owned(),
    }
}

/// Each line by a function; lines that it refuses are listed.
fn each<T>(
    name: &str,
    text: &[u8],
    mut read: impl FnMut(Text<'_>) -> Parsed<T>,
) -> (Vec<T>, Vec<Refused>) {
    let file: Arc<str> = name.into();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (number, line) in lines(text) {
        match read(Text::new(line)) {
            Ok(entry) => good.push(entry),
            Err(problem) => bad.push(refused(&file, number, line, problem)),
        }
    }
    (good, bad)
}

/// `config WHAT: a, b, ...`
fn config<'a>(line: Text<'a>, what: &str) -> Parsed<Text<'a>> {
    let head = format!("a line is `config {what}: ...`");
    let fail = || line.fail(Kind::Syntax, head.clone());
    let (left, right) = line.cut(b':').ok_or_else(fail)?;
    match left.words()[..] {
        [first, second] if first.is("config") && second.is(what) => Ok(right.trim()),
        _ => Err(fail()),
    }
}

/// Reads `classification.config`: `config classification: name,description,priority`. A name given twice keeps its first meaning, as is the custom.
pub fn read_classes(name: &str, text: &[u8]) -> (Classes, Vec<Refused>) {
    let (entries, bad) = each(name, text, |line| {
        let value = config(line, "classification")?;
        let [short, description, priority] = value.split(b',')[..] else {
            let reason = "a class has a name, a description and a priority";
            return Err(value.fail(Kind::Syntax, reason));
        };
        if short.is_empty() {
            return Err(value.fail(Kind::Syntax, "a class without a name"));
        }
        let class = Class {
            description: description.lossy(),
            priority: priority.number(1, 255)? as u8,
        };
        Ok((short.lossy(), class))
    });
    let mut classes = Classes::new();
    for (short, class) in entries {
        classes.entry(short).or_insert(class);
    }
    (classes, bad)
}

/// Reads `reference.config`: `config reference: kind prefix`; kinds in lower case.
pub fn read_references(name: &str, text: &[u8]) -> (BTreeMap<String, String>, Vec<Refused>) {
    let (entries, bad) = each(name, text, |line| {
        let value = config(line, "reference")?;
        let [kind, prefix] = value.words()[..] else {
            return Err(value.fail(Kind::Syntax, "a reference has a kind and a prefix"));
        };
        Ok((kind.lossy().to_ascii_lowercase(), prefix.lossy()))
    });
    (entries.into_iter().collect(), bad)
}

/// A line of `threshold.config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFilter {
    /// Generator; 0 with `sid` 0: every rule.
    pub gid: u32,
    /// Rule; 0: every rule of the generator.
    pub sid: u32,
    /// What it does.
    pub kind: FilterKind,
    /// Where it was written.
    pub place: SourceLocation,
}

/// What a filter does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// No alert, if the address is one of these.
    Suppress {
        /// Which address: `Source`, `Destination`, or `Pair` for either; `None`: always.
        track: Option<Track>,
        /// The addresses.
        addresses: AddressSet,
    },
    /// In place of the rule's own `threshold`.
    Threshold(Threshold),
    /// Another action once the count is reached, for a time.
    Rate {
        /// Counting.
        threshold: Threshold,
        /// The action from then on.
        action: Action,
        /// Seconds it stays; 0: for good.
        timeout: u32,
    },
}

impl EventFilter {
    /// Whether it is about a rule.
    pub fn is_about(&self, gid: u32, sid: u32) -> bool {
        match (self.gid, self.sid) {
            (0, 0) => true,
            (g, 0) => g == gid,
            (g, s) => g == gid && s == sid,
        }
    }
}

/// Reads `threshold.config`.
pub fn read_filters(name: &str, text: &[u8], vars: &Variables) -> (Vec<EventFilter>, Vec<Refused>) {
    // A line may go on after a backslash.
    let mut joined = text.to_vec();
    for i in 1..joined.len() {
        let end = joined[i] == b'\n' || joined[i..].starts_with(b"\r\n");
        if end && joined[i - 1] == b'\\' {
            joined[i - 1] = b' ';
            joined[i] = b' ';
            if let Some(after @ b'\n') = joined.get_mut(i + 1)
                && text[i] == b'\r'
            {
                *after = b' ';
            }
        }
    }
    let file: Arc<str> = name.into();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    // Numbers of lines count the lines of the file, joined or not.
    let mut offset = 0;
    for raw in joined.split(|b| *b == b'\n') {
        let number = 1 + text[..offset].iter().filter(|b| **b == b'\n').count() as u32;
        offset += raw.len() + 1;
        let line = raw.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let place = SourceLocation {
            file: file.clone(),
            line: number,
        };
        match filter(Text::new(line), vars, place) {
            Ok(filter) => good.push(filter),
            Err(problem) => bad.push(refused(&file, number, line, problem)),
        }
    }
    (good, bad)
}

fn filter(line: Text<'_>, vars: &Variables, place: SourceLocation) -> Parsed<EventFilter> {
    let Some(word) = line.words().first().copied() else {
        return Err(line.fail(Kind::Syntax, "an empty line"));
    };
    let rest = line.from(word.len());
    let fields = fields(rest)?;
    let find = |name: &str| fields.iter().find(|(n, _)| n.is(name)).map(|(_, v)| *v);
    let need = |name: &str| {
        find(name).ok_or_else(|| line.fail(Kind::Syntax, format!("`{name}` is missing")))
    };
    let number = |name: &str, low: i64| Ok(need(name)?.number(low, u32::MAX.into())? as u32);
    let known: &[&str] = match word.bytes {
        b"suppress" => &["gen_id", "sig_id", "track", "ip"],
        b"threshold" | b"event_filter" => {
            &["gen_id", "sig_id", "type", "track", "count", "seconds"]
        }
        b"rate_filter" => &[
            "gen_id",
            "sig_id",
            "track",
            "count",
            "seconds",
            "new_action",
            "timeout",
        ],
        _ => {
            let reason = "a line begins with suppress, threshold, event_filter or rate_filter";
            return Err(word.fail(Kind::Syntax, reason));
        }
    };
    for (i, (name, _)) in fields.iter().enumerate() {
        if !known.iter().any(|k| name.is(k)) {
            let reason = format!("`{}` has no `{}`", word.lossy(), name.lossy());
            return Err(name.fail(Kind::Syntax, reason));
        }
        if fields[..i].iter().any(|(n, _)| n.bytes == name.bytes) {
            return Err(name.fail(Kind::Conflict, "given twice"));
        }
    }
    let kind = match word.bytes {
        b"suppress" => suppress(find("track"), find("ip"), line, vars)?,
        b"rate_filter" => FilterKind::Rate {
            threshold: Threshold {
                kind: ThresholdKind::Filter,
                track: track(need("track")?)?,
                count: number("count", 1)?,
                seconds: number("seconds", 1)?,
            },
            action: new_action(need("new_action")?)?,
            timeout: number("timeout", 0)?,
        },
        _ => FilterKind::Threshold(Threshold {
            kind: match threshold_kind(need("type")?)? {
                ThresholdKind::Backoff { .. } => {
                    let reason = "backoff is possible in rules only";
                    return Err(need("type")?.fail(Kind::Unsupported, reason));
                }
                kind => kind,
            },
            track: track(need("track")?)?,
            count: number("count", 1)?,
            seconds: number("seconds", 1)?,
        }),
    };
    let (gid, sid) = (number("gen_id", 0)?, number("sig_id", 0)?);
    if gid == 0 && sid != 0 {
        let reason = "gen_id 0 means every rule: sig_id must be 0 as well";
        return Err(need("sig_id")?.fail(Kind::Conflict, reason));
    }
    Ok(EventFilter {
        gid,
        sid,
        kind,
        place,
    })
}

/// `name value, name value`; commas inside brackets belong to the value.
fn fields<'a>(text: Text<'a>) -> Parsed<Vec<(Text<'a>, Text<'a>)>> {
    let mut parts = Vec::new();
    let (mut from, mut depth) = (0, 0i32);
    for (i, b) in text.bytes.iter().enumerate() {
        match b {
            b'[' => depth += 1,
            b']' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text.part(from..i).trim());
                from = i + 1;
            }
            _ => {}
        }
    }
    parts.push(text.from(from).trim());
    let pair = |part: Text<'a>| match part.words().first() {
        Some(name) if name.len() < part.len() => Ok((*name, part.from(name.len()).trim())),
        _ => Err(part.fail(Kind::Syntax, "a name and a value are expected")),
    };
    parts.into_iter().map(pair).collect()
}

fn suppress(
    by: Option<Text<'_>>,
    ip: Option<Text<'_>>,
    line: Text<'_>,
    vars: &Variables,
) -> Parsed<FilterKind> {
    let (track, addresses) = match (by, ip) {
        (None, None) => (None, any_address()),
        (Some(by), Some(ip)) => {
            let track = match by.bytes {
                b"by_src" => Track::Source,
                b"by_dst" => Track::Destination,
                b"by_either" => Track::Pair,
                _ => {
                    let reason = "addresses are by_src, by_dst or by_either";
                    return Err(by.fail(Kind::Value, reason));
                }
            };
            let addresses = parse_addresses(ip.str()?, vars);
            (Some(track), addresses.map_err(|e| ip.fail(Kind::Value, e))?)
        }
        _ => {
            let reason = "`track` and `ip` belong together";
            return Err(line.fail(Kind::Syntax, reason));
        }
    };
    Ok(FilterKind::Suppress { track, addresses })
}

pub(super) fn track(text: Text<'_>) -> Parsed<Track> {
    Ok(match text.bytes {
        b"by_src" => Track::Source,
        b"by_dst" => Track::Destination,
        b"by_both" => Track::Pair,
        b"by_rule" => Track::Rule,
        b"by_flow" => Track::Flow,
        _ => {
            let reason = "counting is by_src, by_dst, by_both, by_rule or by_flow";
            return Err(text.fail(Kind::Value, reason));
        }
    })
}

pub(super) fn threshold_kind(text: Text<'_>) -> Parsed<ThresholdKind> {
    Ok(match text.bytes {
        b"limit" => ThresholdKind::Limit,
        b"threshold" => ThresholdKind::Threshold,
        b"both" => ThresholdKind::Both,
        b"backoff" => ThresholdKind::Backoff { multiplier: 1 },
        _ => return Err(text.fail(Kind::Value, "a type is limit, threshold or both")),
    })
}

fn new_action(text: Text<'_>) -> Parsed<Action> {
    Ok(match text.bytes {
        b"alert" => Action::Alert,
        b"pass" => Action::Pass,
        b"drop" => Action::Drop,
        b"reject" => Action::Reject,
        _ => {
            let reason = "an action is alert, pass, drop or reject";
            return Err(text.fail(Kind::Value, reason));
        }
    })
}

/// Scores of addresses by category.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reputation {
    /// Numbers of categories, by name.
    pub categories: BTreeMap<String, u8>,
    scores: HashMap<Network, u8>,
    /// Lengths of prefixes that occur, so that a look-up asks for no others.
    lengths: BTreeSet<(bool, u8)>,
}

/// A network in a category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Network {
    v6: bool,
    bits: u8,
    base: u128,
    category: u8,
}

/// A table of reputation that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReputationError {
    /// The file.
    #[error("cannot read reputation from {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Reputation {
    /// Reads the table of categories and the lists.
    pub fn load(
        categories: &Path,
        lists: &[PathBuf],
    ) -> Result<(Reputation, Vec<Refused>), ReputationError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| ReputationError::Read {
                path: path.to_owned(),
                source,
            })
        };
        let mut reputation = Reputation::default();
        let mut bad = Vec::new();
        let text = read(categories)?;
        bad.extend(reputation.add_categories(&categories.display().to_string(), &text));
        for list in lists {
            let text = read(list)?;
            bad.extend(reputation.add_list(&list.display().to_string(), &text));
        }
        Ok((reputation, bad))
    }

    /// Adds categories: `number,name,description`.
    pub fn add_categories(&mut self, file: &str, text: &[u8]) -> Vec<Refused> {
        let (entries, bad) = each(file, text, |line| {
            let [number, name, ..] = line.split(b',')[..] else {
                let reason = "a category is `number,name,description`";
                return Err(line.fail(Kind::Syntax, reason));
            };
            Ok((name.lossy(), number.number(0, 59)? as u8))
        });
        self.categories.extend(entries);
        bad
    }

    /// Adds scores: `address[/bits],category,score`.
    pub fn add_list(&mut self, file: &str, text: &[u8]) -> Vec<Refused> {
        let none = Variables::default();
        let (entries, bad) = each(file, text, |line| {
            let [address, category, score] = line.split(b',')[..] else {
                let reason = "an entry is `address,category,score`";
                return Err(line.fail(Kind::Syntax, reason));
            };
            let set = parse_addresses(address.str()?, &none);
            let set = set.map_err(|e| address.fail(Kind::Value, e))?;
            let (v6, base, size) = match (&set.v4[..], &set.v6[..]) {
                ([(a, b)], []) => (false, u128::from(*a), u128::from(b ^ a)),
                ([], [(a, b)]) => (true, *a, b ^ a),
                _ => return Err(address.fail(Kind::Value, "one address or network is expected")),
            };
            if base & size != 0 || size & size.wrapping_add(1) != 0 {
                return Err(address.fail(Kind::Value, "a range is not a network"));
            }
            let width = if v6 { 128 } else { 32 };
            let network = Network {
                v6,
                bits: width - size.count_ones() as u8,
                base,
                category: category.number(0, 59)? as u8,
            };
            Ok((network, score.number(0, 127)? as u8))
        });
        for (network, score) in entries {
            self.lengths.insert((network.v6, network.bits));
            self.scores.insert(network, score);
        }
        bad
    }

    /// The score of an address in a category: of the smallest network that holds it and has one. `None`: it has none.
    pub fn score(&self, address: IpAddr, category: u8) -> Option<u8> {
        let (v6, value, width) = match address {
            IpAddr::V4(a) => (false, u128::from(u32::from(a)), 32),
            IpAddr::V6(a) => (true, u128::from(a), 128),
        };
        let lengths = self.lengths.range((v6, 0)..=(v6, width)).rev();
        lengths
            .filter_map(|(_, bits)| {
                let host = u32::from(width - bits);
                let kept = u128::MAX.checked_shl(host).unwrap_or(0);
                let base = value & kept;
                let network = Network {
                    v6,
                    bits: *bits,
                    base,
                    category,
                };
                self.scores.get(&network).copied()
            })
            .next()
    }

    /// How many entries the lists have.
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    /// Whether the lists are empty.
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }
}

/// Comma separated options of thresholds in rules: `type limit, track by_src, count 1, seconds 60`.
pub(super) fn threshold(text: Text<'_>, kind: Option<ThresholdKind>) -> Parsed<Threshold> {
    let (mut typ, mut by, mut count, mut seconds) = (kind, None, None, None);
    let mut multiplier = None;
    for part in commas(text) {
        let [name, value] = part.words()[..] else {
            return Err(part.fail(Kind::Syntax, "a name and a value are expected"));
        };
        let twice = match name.bytes {
            b"type" if kind.is_none() => typ.replace(threshold_kind(value)?).is_some(),
            b"track" => by.replace(track(value)?).is_some(),
            b"count" => count.replace(value.number(1, u32::MAX.into())?).is_some(),
            b"seconds" => seconds.replace(value.number(1, u32::MAX.into())?).is_some(),
            b"multiplier" => {
                let number = value.number(1, u32::MAX.into())? as u32;
                multiplier.replace((name, number)).is_some()
            }
            _ => {
                let reason = format!("`{}` is not known here", name.lossy());
                return Err(name.fail(Kind::Syntax, reason));
            }
        };
        if twice {
            return Err(name.fail(Kind::Conflict, "given twice"));
        }
    }
    let missing = |what: &str| text.fail(Kind::Syntax, format!("`{what}` is missing"));
    let mut kind = typ.ok_or_else(|| missing("type"))?;
    if let ThresholdKind::Backoff { multiplier: by } = &mut kind {
        *by = multiplier.ok_or_else(|| missing("multiplier"))?.1;
        // It has no period.
        if let Some(seconds) = seconds {
            let reason = format!("backoff has no seconds ({seconds})");
            return Err(text.fail(Kind::Conflict, reason));
        }
        seconds = Some(i64::from(u32::MAX));
    } else if let Some((at, _)) = multiplier {
        return Err(at.fail(Kind::Conflict, "only backoff has a multiplier"));
    }
    Ok(Threshold {
        kind,
        track: by.ok_or_else(|| missing("track"))?,
        count: count.ok_or_else(|| missing("count"))? as u32,
        seconds: seconds.ok_or_else(|| missing("seconds"))? as u32,
    })
}
