//! By which pattern, address or protocol each rule is found: the lists of a `Ruleset` while rules are added to them.

use std::sync::Arc;

use foldhash::HashMap;

use crate::buffer::{Buffer, Sides};
use crate::matcher::{Engine, Matcher, Pattern, byte_cost, rarest_window};
use crate::rules::{Condition, Content, Expressions, Group, Number, Rule, Transform};

use super::address::{AddressMap, share};
use super::compile::{Compiled, Kind, When, changes, is_of_packets};
use super::gate::{CLASSES, Class};
use super::ruleset::{ByAddress, Ruleset, Scan};

/// Patterns that are being collected for a scan.
#[derive(Default)]
struct Collected {
    known: HashMap<(Arc<[u8]>, bool), usize>,
    patterns: Vec<(Arc<[u8]>, bool, Vec<u32>)>,
}

impl Collected {
    fn add(&mut self, lead: &Lead, rule: u32) {
        self.add_pattern(&lead.bytes, lead.nocase, rule);
    }

    fn join(&mut self, other: &Collected) {
        for (bytes, nocase, rules) in &other.patterns {
            for rule in rules {
                self.add_pattern(bytes, *nocase, *rule);
            }
        }
    }

    fn add_pattern(&mut self, bytes: &Arc<[u8]>, nocase: bool, rule: u32) {
        let key = (Arc::clone(bytes), nocase);
        let at = *self.known.entry(key).or_insert_with(|| {
            self.patterns.push((Arc::clone(bytes), nocase, Vec::new()));
            self.patterns.len() - 1
        });
        let rules = &mut self.patterns[at].2;
        // Most patterns lead to one rule.
        rules.reserve_exact(1);
        rules.push(rule);
    }
}

/// The pattern that leads to a rule.
struct Lead {
    /// Index in `Rule::groups`.
    group: usize,
    /// In lower case if `nocase`.
    bytes: Arc<[u8]>,
    nocase: bool,
    /// It is not behind this byte of its buffer.
    reach: Option<usize>,
}

impl Lead {
    fn new(group: usize, bytes: &[u8], nocase: bool, reach: Option<usize>) -> Lead {
        Lead {
            group,
            bytes: match nocase {
                true => bytes.to_ascii_lowercase().into(),
                false => bytes.into(),
            },
            nocase,
            reach,
        }
    }

    fn is_near(&self) -> bool {
        self.reach.is_some_and(|reach| reach <= NEAR)
    }
}

/// What leads to a rule, found while its conditions are there.
#[derive(Default)]
pub(super) struct Start {
    /// In payloads of packets and in streams; `None`: no pattern.
    payload: Option<Lead>,
    /// In transactions.
    transaction: Option<Box<OfTransaction>>,
}

/// What leads from transactions to a rule.
enum OfTransaction {
    Pattern(Buffer, Vec<Transform>, Lead),
    /// The buffer is there.
    Bare(Buffer),
}

impl Start {
    /// Of a rule that is whole.
    pub(super) fn new(rule: &Rule, compiled: &Compiled) -> Start {
        let of_payload = |g: &Group| g.buffer == Buffer::Payload && g.transforms.is_empty();
        let usable = |g: &Group| !is_of_packets(g.buffer);
        let absent = |g: &Group| {
            g.conditions
                .iter()
                .any(|c| matches!(c, Condition::Absent(_)))
        };
        let mut start = Start::default();
        match compiled.kind {
            Kind::Addresses | Kind::App | Kind::Packet => return start,
            Kind::Payload | Kind::PayloadAndStream | Kind::Stream => {}
            Kind::Transaction(_) => {
                let found = if let Some(lead) = lead(rule, usable) {
                    let group = &rule.groups[lead.group];
                    let transforms = group.transforms.clone();
                    Some(OfTransaction::Pattern(group.buffer, transforms, lead))
                } else {
                    let group = rule.groups.iter().find(|g| usable(g) && !absent(g));
                    group.map(|g| OfTransaction::Bare(g.buffer))
                };
                start.transaction = found.map(Box::new);
                if compiled.payload.is_none() {
                    return start;
                }
            }
        }
        start.payload = lead(rule, of_payload);
        start
    }
}

/// A shorter pattern leads to a rule only if it has no longer one: it has no window, so that it costs a search of its own.
const GOOD_LEAD: usize = 4;
/// A shorter pattern leads nowhere: it is in most buffers. Its rule is asked wherever its cheap conditions hold.
const SHORTEST_LEAD: usize = 2;

/// How good a pattern is for finding a rule: rarity of its best window, or of its bytes if it has none, and its length.
fn worth(bytes: &[u8]) -> i32 {
    let rarity = match bytes.len() < GOOD_LEAD {
        true => bytes.iter().map(|b| i32::from(byte_cost(*b))).sum(),
        false => rarest_window(bytes, |_| 0).1,
    };
    rarity + bytes.len().min(24) as i32 * 12
}

/// The end of the part of a buffer that a content can be in, if the rule bounds it from the buffer's start: then it need not be searched for behind it. What is relative to
/// something without a bound has none, and what is relative to the start neither, as a piece of a stream begins anywhere.
fn reach(conditions: &[Condition], content: usize) -> Option<usize> {
    let number = |n: &Option<Number>| match n {
        None => Some(None),
        Some(Number::Is(n)) => Some(Some(*n)),
        Some(Number::Variable(_)) => None,
    };
    let end = |c: &Content, cursor: Option<i64>| -> Option<i64> {
        let (offset, depth) = (number(&c.offset)?, number(&c.depth)?);
        let (distance, within) = (number(&c.distance)?, number(&c.within)?);
        let begin = offset.unwrap_or(0);
        let starts = c.starts.then_some(c.bytes.len() as i64);
        let placed = [depth, starts].into_iter().flatten().min();
        let placed = placed.map(|n| begin.saturating_add(n));
        let behind = cursor.zip(within).map(|(cursor, within)| {
            cursor
                .saturating_add(distance.unwrap_or(0))
                .saturating_add(within)
        });
        [placed, behind].into_iter().flatten().min()
    };
    let mut cursor = None;
    for (at, condition) in conditions.iter().enumerate().take(content + 1) {
        match condition {
            Condition::Content(c) if at == content => {
                return usize::try_from(end(c, cursor)?.max(0)).ok();
            }
            Condition::Content(c) if c.negated => {}
            Condition::Content(c) => cursor = end(c, cursor),
            Condition::Pcre(p) if p.negated => {}
            Condition::IsDataAt { .. }
            | Condition::ByteTest(_)
            | Condition::Size(_)
            | Condition::Asn1(_)
            | Condition::Entropy(_) => {}
            _ => cursor = None,
        }
    }
    None
}

/// The pattern that leads to a rule: the one it names, else the rarest of its contents, those of transactions' buffers before those of payloads.
fn lead(rule: &Rule, usable: impl Fn(&Group) -> bool) -> Option<Lead> {
    lead_of(rule, GOOD_LEAD, &usable).or_else(|| lead_of(rule, SHORTEST_LEAD, &usable))
}

/// One of at least so many bytes.
fn lead_of(rule: &Rule, shortest: usize, usable: &impl Fn(&Group) -> bool) -> Option<Lead> {
    if let Some(named) = rule.fast_pattern
        && let Some(group) = rule.groups.get(named.group).filter(|g| usable(g))
        && let Some(Condition::Content(content)) = group.conditions.get(named.condition)
        && !content.negated
    {
        let bytes = match named.part {
            Some((from, length)) => content
                .bytes
                .get(usize::from(from)..usize::from(from) + usize::from(length))
                .unwrap_or(&content.bytes),
            None => &content.bytes,
        };
        if bytes.len() >= shortest {
            let reach = reach(&group.conditions, named.condition);
            return Some(Lead::new(named.group, bytes, content.nocase, reach));
        }
    }
    let mut best: Option<(i32, Lead)> = None;
    for (at, group) in rule.groups.iter().enumerate().filter(|(_, g)| usable(g)) {
        for (index, condition) in group.conditions.iter().enumerate() {
            match condition {
                // What follows is about other bytes.
                Condition::Base64Data => break,
                // The conditions need not hold.
                Condition::Absent(_) => break,
                Condition::Content(c) if !c.negated && c.bytes.len() >= shortest => {
                    let of_packets = is_of_packets(group.buffer);
                    let worth = worth(&c.bytes) - if of_packets { 100 } else { 0 };
                    if best.as_ref().is_none_or(|(w, _)| worth > *w) {
                        let reach = reach(&group.conditions, index);
                        best = Some((worth, Lead::new(at, &c.bytes, c.nocase, reach)));
                    }
                }
                _ => {}
            }
        }
    }
    best.map(|(_, lead)| lead).filter(|l| {
        !rule.groups[l.group]
            .conditions
            .iter()
            .any(|c| matches!(c, Condition::Absent(_)))
    })
}

/// The lists, while rules are added to them.
pub(super) struct Lists {
    engine: Engine,
    addresses: Vec<u32>,
    apps: Vec<u32>,
    packets: [Vec<u32>; CLASSES],
    syn: Vec<u32>,
    payloads: [[CollectedPayload; 2]; CLASSES],
    streams: [CollectedPayload; 2],
    bare_streams: [Vec<u32>; 2],
    leads: [CollectedLeads; 4],
}

#[derive(Default)]
struct CollectedLeads {
    scans: Vec<CollectedScan>,
    bare: Vec<(Buffer, u32)>,
    always: Vec<u32>,
}

/// Patterns of one buffer behind a chain of transforms.
struct CollectedScan {
    buffer: Buffer,
    transforms: Vec<Transform>,
    /// They stand at the beginning.
    near: bool,
    patterns: Collected,
    /// The scan of `file.data` has them, too.
    joined: bool,
}

/// Patterns of payloads and streams: those that must stand at the beginning are searched for there only. Of 721 patterns of payloads in a published rule set 450 reach no farther.
#[derive(Default)]
struct CollectedPayload {
    near: Collected,
    far: Collected,
}

/// How far the patterns of the beginning reach. Between this and 1,024 bytes there are hardly any.
const NEAR: usize = 64;

impl CollectedPayload {
    fn add(&mut self, lead: &Lead, rule: u32) {
        let to = match lead.is_near() {
            true => &mut self.near,
            false => &mut self.far,
        };
        to.add(lead, rule);
    }
}

/// Index in `Ruleset::leads` of the rules that look at both directions, for buffers of one.
pub(super) const TOGETHER: usize = 2;

impl Lists {
    pub(super) fn new(engine: Engine) -> Lists {
        Lists {
            engine,
            addresses: Vec::new(),
            apps: Vec::new(),
            packets: Default::default(),
            syn: Vec::new(),
            payloads: Default::default(),
            streams: Default::default(),
            bare_streams: Default::default(),
            leads: Default::default(),
        }
    }

    /// Adds a rule, of which the conditions need not be there any more.
    pub(super) fn add(&mut self, index: u32, rule: &Rule, compiled: &Compiled, start: &Start) {
        let directions: &[usize] = match compiled.gate.to_server {
            Some(true) => &[0],
            Some(false) => &[1],
            None => &[0, 1],
        };
        let classes = compiled.gate.classes;
        let has = |class: usize| classes >> class & 1 != 0;
        match compiled.kind {
            Kind::Addresses => self.addresses.push(index),
            Kind::App => self.apps.push(index),
            Kind::Packet => self.on_packets(index, compiled),
            Kind::Payload | Kind::PayloadAndStream | Kind::Stream => {
                let lead = &start.payload;
                // TCP packets lead to rules of streams only where they are part of none; those are asked separately.
                let in_packets =
                    |class: usize| class != Class::Tcp as usize || compiled.kind != Kind::Stream;
                match lead {
                    // SYNs with data are few: what asks for one is asked of each.
                    Some(lead) if !compiled.gate.needs_syn => {
                        for class in (0..CLASSES).filter(|c| has(*c) && in_packets(*c)) {
                            for d in directions {
                                self.payloads[class][*d].add(lead, index);
                            }
                        }
                    }
                    _ => self.on_packets(index, compiled),
                }
                if compiled.kind != Kind::Payload && has(Class::Tcp as usize) {
                    for d in directions {
                        match lead {
                            Some(lead) => self.streams[*d].add(lead, index),
                            None => self.bare_streams[*d].push(index),
                        }
                    }
                }
            }
            Kind::Transaction(when) => {
                let lists: &[usize] = match when {
                    // An event of the answer is one of the whole, whichever way the rule looks.
                    When::One(_) if compiled.of_events => &[0, 1],
                    When::One(d) => &[d.index()][..],
                    When::Each => &[0, 1],
                    When::Together => &[TOGETHER, TOGETHER + 1],
                };
                self.of_transactions(index, rule, lists, when, start.transaction.as_deref());
                if compiled.payload.is_some() {
                    // Its part in the payload or the stream is noted when it is seen.
                    match &start.payload {
                        Some(lead) => {
                            for d in directions {
                                self.streams[*d].add(lead, index);
                                self.payloads[Class::Udp as usize][*d].add(lead, index);
                            }
                        }
                        None => {
                            for d in directions {
                                self.bare_streams[*d].push(index);
                            }
                            self.packets[Class::Udp as usize].push(index);
                        }
                    }
                }
            }
        }
    }

    fn on_packets(&mut self, index: u32, compiled: &Compiled) {
        let classes = compiled.gate.classes;
        if compiled.gate.needs_syn && classes >> (Class::Tcp as u8) & 1 != 0 {
            self.syn.push(index);
            return;
        }
        for class in (0..CLASSES).filter(|c| classes >> c & 1 != 0) {
            let of_streams = class == Class::Tcp as usize && compiled.kind == Kind::Stream;
            if !of_streams {
                self.packets[class].push(index);
            }
        }
    }

    fn of_transactions(
        &mut self,
        index: u32,
        rule: &Rule,
        lists: &[usize],
        when: When,
        start: Option<&OfTransaction>,
    ) {
        // A rule of both directions is led to from the one that its buffer is in; of a buffer that is in both, from its flow's.
        let of = |buffer: Buffer| -> Vec<usize> {
            if when != When::Together {
                return lists.to_vec();
            }
            match (buffer.sides(), rule.flow.to_server) {
                (Sides::Request, _) => vec![TOGETHER],
                (Sides::Response, _) => vec![TOGETHER + 1],
                (Sides::Both, Some(true)) => vec![TOGETHER],
                (Sides::Both, Some(false)) => vec![TOGETHER + 1],
                (Sides::Both, None) => lists.to_vec(),
            }
        };
        match start {
            Some(OfTransaction::Pattern(buffer, transforms, lead)) => {
                for list in of(*buffer) {
                    let scan = self.leads[list].scan(*buffer, transforms, lead.is_near());
                    scan.add(lead, index);
                }
            }
            Some(OfTransaction::Bare(buffer)) => {
                for list in of(*buffer) {
                    self.leads[list].bare.push((*buffer, index));
                }
            }
            None => {
                for list in lists {
                    self.leads[*list].always.push(index);
                }
            }
        }
    }

    pub(super) fn finish(self, ruleset: &mut Ruleset, expressions: &mut Expressions) {
        let engine = self.engine;
        let mut scans = Vec::new();
        let mut most = 0;
        let mut others = 0;
        let mut scan = |collected: Collected,
                        transforms: &[Transform],
                        reach: usize,
                        joined: bool|
         -> Option<u32> {
            if collected.patterns.is_empty() {
                return None;
            }
            let patterns: Vec<Pattern<'_>> = collected
                .patterns
                .iter()
                .enumerate()
                .map(|(id, (bytes, nocase, _))| Pattern {
                    bytes,
                    nocase: *nocase,
                    id: id as u32,
                })
                .collect();
            // A set too large for the automaton is searched by the other engine, which takes any.
            let matcher = match Matcher::new(engine, &patterns) {
                Ok(matcher) => matcher,
                Err(_) => {
                    others += 1;
                    Matcher::new(Engine::Prefilter, &patterns).ok()?
                }
            };
            let mut heads = vec![0];
            let mut rules = Vec::new();
            for (_, _, of_pattern) in &collected.patterns {
                rules.extend_from_slice(of_pattern);
                heads.push(rules.len() as u32);
            }
            most = most.max(patterns.len());
            scans.push(Scan {
                matcher,
                changes: changes(transforms, expressions).unwrap_or_default(),
                heads: heads.into(),
                rules: rules.into(),
                longest: patterns.iter().map(|p| p.bytes.len()).max().unwrap_or(0),
                reach,
                joined,
            });
            Some(scans.len() as u32 - 1)
        };
        let mut both = |collected: CollectedPayload| -> Vec<u32> {
            let near = scan(collected.near, &[], NEAR, false);
            let far = scan(collected.far, &[], usize::MAX, false);
            near.into_iter().chain(far).collect()
        };
        for (class, of_class) in self.payloads.into_iter().enumerate() {
            for (d, collected) in of_class.into_iter().enumerate() {
                ruleset.payloads[class][d] = both(collected);
            }
        }
        for (d, collected) in self.streams.into_iter().enumerate() {
            ruleset.streams[d] = both(collected);
        }
        for (list, mut collected) in self.leads.into_iter().enumerate() {
            // The automaton, the oracle, searches each buffer for its own.
            if engine == Engine::Prefilter {
                collected.join_bodies();
            }
            let leads = &mut ruleset.leads[list];
            leads.scans.resize(Buffer::ALL.len(), Vec::new());
            leads.bare.resize(Buffer::ALL.len(), Vec::new());
            for one in collected.scans {
                let reach = if one.near { NEAR } else { usize::MAX };
                let made = scan(one.patterns, &one.transforms, reach, one.joined);
                leads.scans[one.buffer as usize].extend(made);
            }
            for (buffer, rule) in collected.bare {
                leads.bare[buffer as usize].push(rule);
            }
            leads.always = collected.always;
        }
        ruleset.bare_streams = self.bare_streams;
        ruleset.apps = self.apps;
        ruleset.scans = scans;
        ruleset.most_patterns = most;
        ruleset.others = others;
        let by_address = |list: &[u32]| by_address(list, &ruleset.rules);
        ruleset.addresses = by_address(&self.addresses);
        ruleset.syn = by_address(&self.syn);
        ruleset.packets = self.packets;
    }
}

impl CollectedLeads {
    fn scan(&mut self, buffer: Buffer, transforms: &[Transform], near: bool) -> &mut Collected {
        let known = self
            .scans
            .iter()
            .position(|s| s.buffer == buffer && s.transforms == transforms && s.near == near);
        let at = known.unwrap_or_else(|| {
            self.scans.push(CollectedScan {
                buffer,
                transforms: transforms.to_vec(),
                near,
                patterns: Collected::default(),
                joined: false,
            });
            self.scans.len() - 1
        });
        &mut self.scans[at].patterns
    }

    /// A body is mostly a file as well: the patterns of both are searched for at once.
    fn join_bodies(&mut self) {
        let plain =
            |s: &CollectedScan, buffer| s.buffer == buffer && s.transforms.is_empty() && !s.near;
        let file = self.scans.iter().position(|s| plain(s, Buffer::FileData));
        let Some(file) = file else {
            return;
        };
        let mut patterns = std::mem::take(&mut self.scans[file].patterns);
        for body in &mut self.scans {
            if plain(body, Buffer::HttpResponseBody) || plain(body, Buffer::HttpRequestBody) {
                patterns.join(&body.patterns);
                body.joined = true;
            }
        }
        self.scans[file].patterns = patterns;
    }
}

fn by_address(list: &[u32], rules: &[Arc<Rule>]) -> ByAddress {
    /// A set of more of the address space than this does not help to find its rule.
    const LARGE: f64 = 1.0 / 64.0;
    let mut source = Vec::new();
    let mut destination = Vec::new();
    let mut rest = Vec::new();
    for index in list {
        let header = &rules[*index as usize].header;
        let (s, d) = (share(&header.source), share(&header.destination));
        if s.min(d) > LARGE {
            rest.push(*index);
            continue;
        }
        let (set, mine, other) = if s <= d {
            (&header.source, &mut source, &mut destination)
        } else {
            (&header.destination, &mut destination, &mut source)
        };
        mine.push((set.clone(), *index));
        if header.both_ways {
            other.push((set.clone(), *index));
        }
    }
    ByAddress {
        source: AddressMap::new(&source),
        destination: AddressMap::new(&destination),
        rest: rest.into(),
    }
}
