//! A filter as docs/filter.md words it: every packet is held against every rule and every entry, one after the other.
//!
//! Shares nothing with the tables, nor with the parser, of the data plane.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use weir_functions::filter::list::{Entry, Only};
use weir_functions::filter::rule::{Action, Addresses, Kind, Per, Rule, Test};
use weir_functions::filter::{Filter, Otherwise};
use weir_packet::Reason;

/// What is known of a packet that is not malformed.
#[derive(Clone, Debug)]
struct Facts {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    is_fragment: bool,
    is_syn: bool,
    ports: Option<(u16, u16)>,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    Drop(Reason),
}

/// The filter and all it remembers.
pub(crate) struct Oracle<'f> {
    filter: &'f Filter,
    /// Value that `shed` rules look at.
    pub(crate) load: u64,
    words: HashMap<(usize, String), u64>,
    blocks: HashMap<IpAddr, u64>,
    /// Packets, bytes, drops and blocks by rule.
    pub(crate) counts: Vec<(u64, u64, u64, u64)>,
    /// By set and place.
    pub(crate) hits: BTreeMap<(usize, usize), u64>,
    pub(crate) reasons: BTreeMap<&'static str, u64>,
}

impl<'f> Oracle<'f> {
    pub(crate) fn new(filter: &'f Filter) -> Oracle<'f> {
        Oracle {
            filter,
            load: 0,
            words: HashMap::new(),
            blocks: HashMap::new(),
            counts: vec![(0, 0, 0, 0); filter.rules.len()],
            hits: BTreeMap::new(),
            reasons: BTreeMap::new(),
        }
    }

    pub(crate) fn packet(&mut self, frame: &[u8], now_ns: u64) -> Fate {
        let fate = self.judge(frame, now_ns);
        if let Fate::Drop(reason) = fate {
            *self.reasons.entry(reason.name()).or_default() += 1;
        }
        fate
    }

    fn judge(&mut self, frame: &[u8], now_ns: u64) -> Fate {
        let facts = match facts(frame, self.filter) {
            Ok(Some(facts)) => facts,
            Ok(None) if self.filter.other == Otherwise::Drop => {
                return Fate::Drop(Reason::NotAllowed);
            }
            Ok(None) => {
                *self.reasons.entry(Reason::NotIp.name()).or_default() += 1;
                return Fate::Pass;
            }
            Err(reason) => return Fate::Drop(reason),
        };
        let filter = self.filter;
        let matching = |number: fn(&Action) -> bool| -> Vec<usize> {
            (0..filter.rules.len())
                .filter(|r| {
                    number(&filter.rules[*r].action)
                        && matches(filter, &filter.rules[*r], &facts, now_ns)
                })
                .collect()
        };
        if let Some(rule) = matching(|a| matches!(a, Action::Allow { .. })).first() {
            self.count(*rule, &facts, frame, now_ns);
            return Fate::Pass;
        }
        if self
            .blocks
            .get(&facts.src)
            .is_some_and(|until| *until > now_ns)
        {
            return Fate::Drop(Reason::Blocked);
        }
        if let Some(rule) = matching(|a| matches!(a, Action::Deny)).first() {
            self.count(*rule, &facts, frame, now_ns);
            self.counts[*rule].2 += 1;
            return Fate::Drop(Reason::Denied);
        }
        for rule in matching(|a| matches!(a, Action::Shed { .. })) {
            self.count(rule, &facts, frame, now_ns);
            if matches!(filter.rules[rule].action, Action::Shed { above, .. } if self.load > above)
            {
                self.counts[rule].2 += 1;
                return Fate::Drop(Reason::Shed);
            }
        }
        for rule in matching(|a| matches!(a, Action::Limit(_))) {
            let Action::Limit(limit) = filter.rules[rule].action else {
                continue;
            };
            // Entries about different protocols or ports are counted as if they stood in rules of their own.
            for (key, entries) in self.keys(rule, limit.per, &facts, now_ns) {
                self.count_with(rule, frame, &entries);
                let word = self.words.entry((rule, key)).or_default();
                let base = (*word).max(now_ns);
                if base - now_ns > limit.interval_ns * (limit.burst - 1) {
                    self.counts[rule].2 += 1;
                    if limit.block_ns > 0 {
                        self.counts[rule].3 += 1;
                        self.blocks.insert(facts.src, now_ns + limit.block_ns);
                    }
                    return Fate::Drop(Reason::Limited);
                }
                *word = base + limit.interval_ns;
            }
        }
        match self.filter.default {
            Otherwise::Pass => Fate::Pass,
            Otherwise::Drop => Fate::Drop(Reason::NotAllowed),
        }
    }

    /// What a limit is counted for: once for each combination of what the entries that match are about.
    fn keys(
        &self,
        rule: usize,
        per: Per,
        facts: &Facts,
        now_ns: u64,
    ) -> Vec<(String, Vec<(usize, usize)>)> {
        let combinations = combinations(self.filter, &self.filter.rules[rule], facts, now_ns);
        let model = &self.filter.rules[rule];
        combinations
            .into_iter()
            .map(|(source, destination)| {
                let key = match per {
                    Per::Rule => format!(
                        "{:?}",
                        [&source, &destination].map(|e| e.map(|e| self.only(e)))
                    ),
                    Per::Source { len4, len6 } => {
                        let len = if facts.src.is_ipv4() { len4 } else { len6 };
                        weir_value::Prefix::around(facts.src, len).to_string()
                    }
                    Per::Entry => {
                        let entry = if model.from.as_ref().is_some_and(|t| !t.is_negated) {
                            source
                        } else {
                            destination
                        };
                        format!("{:?}", entry.map(|e| self.prefix(e, rule, facts, now_ns)))
                    }
                };
                let entries = [source, destination]
                    .into_iter()
                    .flatten()
                    .filter(|e| e.0 != usize::MAX);
                (key, entries.collect())
            })
            .collect()
    }

    /// What an entry is about besides addresses; a prefix in a rule: nothing.
    fn only(&self, (set, place): (usize, usize)) -> Only {
        match set {
            usize::MAX => Only::default(),
            _ => self.filter.sets[set].entries[place].only,
        }
    }

    fn prefix(
        &self,
        (set, place): (usize, usize),
        rule: usize,
        facts: &Facts,
        _now_ns: u64,
    ) -> String {
        match set {
            usize::MAX => {
                let rule = &self.filter.rules[rule];
                let (test, address) = match rule.from.as_ref().filter(|t| !t.is_negated) {
                    Some(test) => (test, facts.src),
                    None => (rule.to.as_ref().expect("counted by entry"), facts.dst),
                };
                let named = test.any.iter().filter_map(|one| match one {
                    Addresses::Prefix(prefix) if prefix.contains(address) => Some(*prefix),
                    _ => None,
                });
                let _ = place;
                named
                    .max_by_key(|prefix| prefix.len)
                    .expect("it matched")
                    .to_string()
            }
            _ => {
                let set = &self.filter.sets[set];
                let entry = &set.entries[place];
                format!("{} {} {:?}", set.name, entry.prefix, entry.only)
            }
        }
    }

    /// Counts a rule that decides by itself: the first combination stands for the packet.
    fn count(&mut self, rule: usize, facts: &Facts, frame: &[u8], now_ns: u64) {
        let model = &self.filter.rules[rule];
        let combinations = combinations(self.filter, model, facts, now_ns);
        let taken = match model.action {
            Action::Shed { .. } => combinations,
            _ => combinations.into_iter().take(1).collect(),
        };
        for (source, destination) in taken {
            let entries: Vec<_> = [source, destination]
                .into_iter()
                .flatten()
                .filter(|e| e.0 != usize::MAX)
                .collect();
            self.count_with(rule, frame, &entries);
            if matches!(model.action, Action::Shed { above, .. } if self.load > above) {
                break;
            }
        }
    }

    fn count_with(&mut self, rule: usize, frame: &[u8], entries: &[(usize, usize)]) {
        self.counts[rule].0 += 1;
        self.counts[rule].1 += frame.len() as u64;
        if self.filter.hits {
            for entry in entries {
                *self.hits.entry(*entry).or_default() += 1;
            }
        }
    }
}

fn matches(filter: &Filter, rule: &Rule, facts: &Facts, now_ns: u64) -> bool {
    !combinations(filter, rule, facts, now_ns).is_empty()
}

type Found = Option<(usize, usize)>;

/// For every combination of what entries are about that holds of the packet: the entries that decide. Empty: the rule does not match.
fn combinations(filter: &Filter, rule: &Rule, facts: &Facts, now_ns: u64) -> Vec<(Found, Found)> {
    let kinds = rule.kinds.iter().all(|test| {
        let one = |kind: &Kind| match kind {
            Kind::Protocol(number) => facts.protocol == *number,
            Kind::TcpSyn => facts.is_syn,
            Kind::Fragment => facts.is_fragment,
            Kind::Family { is_ip6 } => facts.src.is_ipv6() == *is_ip6,
        };
        test.any.iter().any(one) != test.is_negated
    });
    let port = |test: &Option<Test<(u16, u16)>>, port: Option<u16>| match (test, port) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(test), Some(port)) => {
            test.any
                .iter()
                .any(|(low, high)| (*low..=*high).contains(&port))
                != test.is_negated
        }
    };
    if !kinds
        || !port(&rule.from_port, facts.ports.map(|p| p.0))
        || !port(&rule.to_port, facts.ports.map(|p| p.1))
    {
        return Vec::new();
    }
    let sources = side(
        filter,
        &rule.from,
        facts,
        facts.src,
        facts.ports.map(|p| p.0),
        now_ns,
    );
    let destinations = side(
        filter,
        &rule.to,
        facts,
        facts.dst,
        facts.ports.map(|p| p.1),
        now_ns,
    );
    let mut out = Vec::new();
    for source in &sources {
        for destination in &destinations {
            out.push((*source, *destination));
        }
    }
    out
}

/// The most specific entry that holds, for each combination of protocol and port that entries are about, in the order of the lists.
fn side(
    filter: &Filter,
    test: &Option<Test<Addresses>>,
    facts: &Facts,
    address: IpAddr,
    port: Option<u16>,
    now_ns: u64,
) -> Vec<Found> {
    let Some(test) = test else {
        return vec![None];
    };
    /// How specific an entry is, and its list and place there.
    type Best = ((u8, u32, std::cmp::Reverse<usize>), (usize, usize));
    let mut groups: Vec<(weir_functions::filter::Only, Option<Best>)> =
        vec![(Default::default(), None)];
    let mut order = 0;
    let mut found = |only, key: (u8, u32), place: (usize, usize), holds: bool| {
        let group = match groups.iter().position(|g| g.0 == only) {
            Some(group) => group,
            None => {
                groups.push((only, None));
                groups.len() - 1
            }
        };
        // Of equal prefixes the one that holds longest counts, and of those the last.
        let key = (key.0, key.1, std::cmp::Reverse(usize::MAX - order));
        order += 1;
        if holds
            && groups[group]
                .1
                .as_ref()
                .is_none_or(|best| best.0 <= key || (best.0.0, best.0.1) < (key.0, key.1))
        {
            groups[group].1 = Some((key, place));
        }
    };
    for one in &test.any {
        match one {
            Addresses::Prefix(prefix) => found(
                Default::default(),
                (prefix.len, u32::MAX),
                (usize::MAX, 0),
                prefix.contains(address),
            ),
            Addresses::Set(name) => {
                let (number, set) = filter
                    .sets
                    .iter()
                    .enumerate()
                    .find(|(_, s)| s.name == *name)
                    .expect("checked");
                for (place, entry) in set.entries.iter().enumerate() {
                    let lives = if entry.until == 0 {
                        u32::MAX
                    } else {
                        entry.until
                    };
                    found(
                        entry.only,
                        (entry.prefix.len, lives),
                        (number, place),
                        holds(entry, facts, address, port, now_ns),
                    );
                }
            }
        }
    }
    if test.is_negated {
        let any = groups.iter().any(|(_, best)| best.is_some());
        return if any { Vec::new() } else { vec![None] };
    }
    groups
        .into_iter()
        .filter_map(|(_, best)| best.map(|(_, place)| Some(place)))
        .collect()
}

fn holds(entry: &Entry, facts: &Facts, address: IpAddr, port: Option<u16>, now_ns: u64) -> bool {
    entry.prefix.contains(address)
        && entry.only.protocol.is_none_or(|p| p == facts.protocol)
        && entry.only.port.is_none_or(|p| port == Some(p))
        && (entry.until == 0 || now_ns < u64::from(entry.until) * 1_000_000_000)
}

/// Whether rules ask about L4 headers at all: if not, nobody looks at them.
fn looks_at_l4(filter: &Filter) -> bool {
    let names = |test: &Option<Test<Addresses>>| -> bool {
        let mut sets = test
            .iter()
            .flat_map(|t| &t.any)
            .filter_map(|one| match one {
                Addresses::Set(name) => filter.sets.iter().find(|s| s.name == *name),
                Addresses::Prefix(_) => None,
            });
        sets.any(|set| set.entries.iter().any(|e| e.only.port.is_some()))
    };
    filter.rules.iter().any(|r| {
        r.from_port.is_some()
            || r.to_port.is_some()
            || r.action == Action::Cookie
            || r.kinds.iter().any(|t| t.any.contains(&Kind::TcpSyn))
            || names(&r.from)
            || names(&r.to)
    })
}

/// Whether rules ask about protocols or fragments: if not, IPv6 extension headers are not walked.
fn looks_at_kinds(filter: &Filter) -> bool {
    let names = |test: &Option<Test<Addresses>>| -> bool {
        let mut sets = test
            .iter()
            .flat_map(|t| &t.any)
            .filter_map(|one| match one {
                Addresses::Set(name) => filter.sets.iter().find(|s| s.name == *name),
                Addresses::Prefix(_) => None,
            });
        sets.any(|set| set.entries.iter().any(|e| e.only.protocol.is_some()))
    };
    looks_at_l4(filter)
        || filter
            .rules
            .iter()
            .any(|r| !r.kinds.is_empty() || names(&r.from) || names(&r.to))
}

fn be16(frame: &[u8], at: usize) -> usize {
    usize::from(frame[at]) << 8 | usize::from(frame[at + 1])
}

fn facts(frame: &[u8], filter: &Filter) -> Result<Option<Facts>, Reason> {
    if frame.len() < 14 {
        return Err(Reason::FrameShort);
    }
    let (mut at, mut tags) = (12, 0);
    while matches!(be16(frame, at), 0x8100 | 0x88a8 | 0x9100) {
        if tags == 4 {
            return Err(Reason::VlanDeep);
        }
        tags += 1;
        at += 4;
        if frame.len() < at + 2 {
            return Err(Reason::VlanTruncated);
        }
    }
    let l3 = at + 2;
    match be16(frame, at) {
        0x0800 => ip4(frame, l3, filter).map(Some),
        0x86dd => ip6(frame, l3, filter).map(Some),
        _ => Ok(None),
    }
}

fn ip4(frame: &[u8], l3: usize, filter: &Filter) -> Result<Facts, Reason> {
    let ip = &frame[l3..];
    if ip.len() < 20 {
        return Err(Reason::Ip4Truncated);
    }
    if ip[0] >> 4 != 4 {
        return Err(Reason::Ip4BadVersion);
    }
    let header = usize::from(ip[0] & 15) * 4;
    if header < 20 || header > ip.len() {
        return Err(Reason::Ip4BadIhl);
    }
    let total = be16(ip, 2);
    if total < header {
        return Err(Reason::Ip4BadLen);
    }
    if total > ip.len() {
        return Err(Reason::Ip4LenOver);
    }
    let fragment = be16(ip, 6) & 0x3fff;
    let address = |at: usize| IpAddr::from([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
    let mut facts = Facts {
        src: address(12),
        dst: address(16),
        protocol: ip[9],
        is_fragment: fragment != 0,
        is_syn: false,
        ports: None,
    };
    if fragment & 0x1fff == 0 && looks_at_l4(filter) {
        l4(&ip[header..total], &mut facts)?;
    }
    Ok(facts)
}

fn ip6(frame: &[u8], l3: usize, filter: &Filter) -> Result<Facts, Reason> {
    let ip = &frame[l3..];
    if ip.len() < 40 {
        return Err(Reason::Ip6Truncated);
    }
    if ip[0] >> 4 != 6 {
        return Err(Reason::Ip6BadVersion);
    }
    let end = 40 + be16(ip, 4);
    if end > ip.len() {
        return Err(Reason::Ip6LenOver);
    }
    let address =
        |at: usize| IpAddr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).expect("16 bytes"));
    let mut facts = Facts {
        src: address(8),
        dst: address(24),
        protocol: ip[6],
        is_fragment: false,
        is_syn: false,
        ports: None,
    };
    if !looks_at_kinds(filter) {
        return Ok(facts);
    }
    let (mut at, mut headers) = (40, 0);
    while matches!(facts.protocol, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) {
        if headers == 8 {
            return Err(Reason::Ip6EhDeep);
        }
        headers += 1;
        if at + 8 > end {
            return Err(Reason::Ip6EhTruncated);
        }
        let len = match facts.protocol {
            44 => 8,
            51 => (usize::from(ip[at + 1]) + 2) * 4,
            _ => (usize::from(ip[at + 1]) + 1) * 8,
        };
        if at + len > end {
            return Err(Reason::Ip6EhTruncated);
        }
        if at + len > 40 + 256 {
            return Err(Reason::Ip6EhLong);
        }
        let is_fragment_header = facts.protocol == 44;
        facts.protocol = ip[at];
        if is_fragment_header {
            let field = be16(ip, at + 2);
            facts.is_fragment = field & 0xfff9 != 0;
            if field & 0xfff8 != 0 {
                return Ok(facts);
            }
        }
        at += len;
    }
    if looks_at_l4(filter) {
        l4(&ip[at..end], &mut facts)?;
    }
    Ok(facts)
}

fn l4(bytes: &[u8], facts: &mut Facts) -> Result<(), Reason> {
    match facts.protocol {
        6 if bytes.len() < 20 => return Err(Reason::TcpTruncated),
        17 if bytes.len() < 8 => return Err(Reason::UdpTruncated),
        6 | 17 => {}
        33 | 132 | 136 if bytes.len() >= 4 => {}
        _ => return Ok(()),
    }
    facts.ports = Some((be16(bytes, 0) as u16, be16(bytes, 2) as u16));
    facts.is_syn = facts.protocol == 6 && bytes[13] & 0x12 == 2;
    Ok(())
}
