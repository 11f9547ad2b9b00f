//! The reference semantics: a policy executed over one packet, in plain Rust.
//!
//! This is docs/semantics.md as a program, the oracle of every engine and what `weir explain` runs. It is written to be
//! read next to that page, not to be fast. Time, randomness and ports are inputs; the only state is the word per rule
//! of its rate limit, or per address, and the connections of stateful rules. Nothing is shared with the planner or the data plane: both are tested against this.

mod answer;
mod connections;
mod counts;
mod draw;
mod dynamic_sets;
mod explain;
mod fields;
mod limits;
mod matching;
mod options;
mod rewrite;
mod tags;
#[cfg(test)]
mod tests;
mod translate;

use std::sync::Arc;

use weir_packet::parse::{Fragment, Layout, Version, parse};
use weir_packet::{Reason, Verdict};

pub(crate) use connections::is_sane as is_sent;
use draw::splitmix64;

use crate::dynamic::Element;
use connections::{Connections, Fit, Place};
use dynamic_sets::DynamicSets;
use translate::Translation;

use crate::model::{DropWhen, Policy, Rule, Target};

pub use explain::{Check, Checked, Decided, Found, RuleExplanation, explain};

/// What is the same for all packets of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How the L4 checksums of the port are.
    pub checksums: ChecksumMode,
    /// Longest L3 packet that a packet may grow to, in bytes; `u32::MAX` for no limit but the protocol's.
    pub mtu: u32,
    /// Seed of `drop RATE%`.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            checksums: ChecksumMode::Complete,
            mtu: u32::MAX,
            seed: 0,
        }
    }
}

/// Checksum mode of a port, docs/semantics.md section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumMode {
    /// Every L4 checksum is complete: hardware.
    Complete,
    /// A sender may have left the sum of the pseudo-header for its device to finish: veth, tap, virtio.
    Offloaded,
    /// As `Offloaded`, and headers in front of a payload never move: tc, section 6.
    Tc,
}

/// Where a packet came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortId<'a> {
    /// Interface name, if known.
    pub name: Option<&'a str>,
    /// Interface index.
    pub index: u32,
}

/// What the kernel keeps with a packet on tc, beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// `skb->mark`.
    pub mark: u32,
    /// `skb->priority`.
    pub priority: u32,
}

/// One packet and its circumstances.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// As received.
    pub frame: &'a [u8],
    /// When, in nanoseconds.
    pub now_ns: u64,
    /// Number of the frame in the capture, from 0.
    pub number: u64,
    /// Where it came in.
    pub port: PortId<'a>,
    /// Receive queue.
    pub queue: u16,
    /// Mark and priority.
    pub meta: Meta,
}

impl<'a> Input<'a> {
    /// A packet with nothing known about it but its bytes.
    pub fn new(frame: &'a [u8]) -> Self {
        Input {
            frame,
            now_ns: 0,
            number: 0,
            port: PortId::default(),
            queue: 0,
            meta: Meta::default(),
        }
    }
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Pass, drop, or tx of a packet that a rule answers.
    pub verdict: Verdict,
    /// The frame as rewritten; of a dropped packet as received; of one that is answered the answer.
    pub frame: Vec<u8>,
    /// Mark and priority; of a packet that does not pass as received.
    pub meta: Meta,
    /// Notes in the order they arose, and the drop reason; a note stands here as often as it is counted.
    pub reasons: Vec<Reason>,
    /// Ids of the matching rules, in order.
    pub matched: Vec<u32>,
    /// What `log` targets report, in rule order.
    pub logs: Vec<LogLine>,
    /// What the packet has to do with a connection.
    pub connection: Option<Part>,
    /// Its state, as rules see it; `None` of policies without stateful rules, and of frames without IP.
    pub state: Option<ConnectionState>,
}

/// `ct-state`, docs/semantics.md section 7. The numbers are those of `WEIR_CT_*` in `bpf/include/abi.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// It belongs to no connection, and such a packet opens none.
    Invalid = 1,
    /// It belongs to one that has seen both directions, with it.
    Established = 2,
    /// An error about one, or one that a helper expects.
    Related = 4,
    /// It may open one, or belongs to one that nobody answered.
    New = 8,
    /// No connection can have it.
    Untracked = 64,
}

/// What a packet has to do with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It opened one.
    Opened,
    /// It goes the way of the packet that opened it.
    Forward,
    /// It goes the other way.
    Reverse,
    /// It is an ICMP error about one of its packets.
    Error,
}

/// One report of a `log` target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Rule id.
    pub rule: u32,
    /// Its text.
    pub prefix: String,
    /// What became of the packet.
    pub verdict: Verdict,
}

/// A policy at work.
#[derive(Clone, Debug)]
pub struct Reference {
    policy: Arc<Policy>,
    options: Options,
    /// The word of each rule: TAT of its rate limit, ns, or bytes of its quota.
    rates: Vec<u64>,
    limits: limits::Tables,
    counts: counts::Tables<connections::FlowId>,
    connections: Connections,
    sets: DynamicSets,
    /// Whether the policy keeps connections at all.
    stateful: bool,
    /// Nanoseconds since 1970 minus those of the clock of packets.
    wall_offset: u64,
}

impl Reference {
    /// A policy before its first packet.
    pub fn new(policy: impl Into<Arc<Policy>>, options: Options) -> Self {
        let policy = policy.into();
        let rates = vec![0; policy.rules.len()];
        let stateful = policy.rules.iter().any(|rule| rule.stateful);
        Reference {
            policy,
            options,
            rates,
            limits: limits::Tables::default(),
            counts: counts::Tables::default(),
            connections: Connections::default(),
            sets: DynamicSets::default(),
            stateful,
            wall_offset: 0,
        }
    }

    /// From the next packet on: nanoseconds since 1970 minus those of the clock of [`Input::now_ns`]. 0 until then: captures count from 1970.
    pub fn set_wall_offset(&mut self, ns: u64) {
        self.wall_offset = ns;
    }

    /// Gives a security group these members, and no others; none has any before.
    pub fn set_group(&mut self, name: &str, members: impl IntoIterator<Item = Element>) {
        self.sets.set_group(name, members.into_iter().collect());
    }

    /// Runs the policy over the next packet.
    pub fn run(&mut self, input: Input<'_>) -> Outcome {
        let layout = match parse(input.frame) {
            Ok(layout) => layout,
            Err(malformed) => {
                let mut reasons = malformed.notes;
                reasons.push(malformed.reason);
                return unseen(&input, reasons);
            }
        };
        let place = if self.stateful {
            self.connections
                .place(&self.policy, &input, &layout, self.options.checksums)
        } else {
            Place::Outside
        };
        let mut reasons = layout.notes.clone();
        if let Place::Refused(reason) = place {
            reasons.push(reason);
            return unseen(&input, reasons);
        }
        let state = self
            .stateful
            .then(|| self.connections.state(&place, &input, &layout))
            .flatten();
        let packet = fields::View {
            input: &input,
            layout: &layout,
            state,
            sets: Some(&self.sets),
            clock: fields::Clock {
                offset_ns: self.wall_offset,
                timezone: self.policy.connections.timezone,
            },
        };
        let mut matching: Vec<usize> = (0..self.policy.rules.len())
            .filter(|&i| self.matches(i, &packet, &place))
            .collect();
        let own_rules = matching.iter().any(|&i| self.policy.rules[i].stateful);
        if let Place::MayOpen(_, Some(inbound)) = &place
            && inbound.may_enter
            && !own_rules
        {
            matching.extend(&inbound.rules);
            matching.sort_unstable();
        }
        if let Place::Expected(_, expected) = &place {
            matching.extend(&expected.rules);
            matching.sort_unstable();
        }
        let said = self.verdict(&matching, &input, &layout);
        reasons.extend(std::iter::repeat_n(Reason::LimitDisplaced, said.displaced));
        if self.expires(&matching, &place, &input, &layout) {
            reasons.push(Reason::TtlExpired);
            let matched = matching.iter().map(|&i| self.policy.rules[i].id).collect();
            return Outcome {
                matched,
                connection: place.part(),
                state,
                ..unseen(&input, reasons)
            };
        }
        for &i in &matching {
            for target in &self.policy.rules[i].targets {
                if let Target::ChangeSet(change) = target {
                    let now = input.now_ns;
                    (self.sets).change(change, input.frame, &layout, now, &mut reasons);
                }
            }
        }

        let mut drop = said.drops().then_some(Reason::RuleDrop);
        if self.stateful
            && drop.is_none()
            && !said.accepted_icmp
            && connections::needs_acceptance(input.frame, &layout)
        {
            drop = Some(Reason::IcmpNotAccepted);
        }
        let place = match place {
            Place::MayOpen(tuple, inbound) => {
                let rules: Vec<usize> = matching
                    .iter()
                    .copied()
                    .filter(|&i| self.policy.rules[i].stateful)
                    .collect();
                if rules.is_empty() || said.stateless_drop && !said.accepted {
                    Place::Outside
                } else if let Some(reason) = self.refusal(&said, &matching, &input, &layout) {
                    drop = Some(reason);
                    Place::Outside
                } else {
                    let seed = self.options.seed;
                    let policy = &self.policy;
                    let inbound = inbound.as_ref();
                    let connections = &mut self.connections;
                    match connections.open(
                        policy, &rules, tuple, inbound, own_rules, &input, &layout, seed,
                    ) {
                        Ok(id) => Place::Opened(id),
                        Err(reason) => {
                            drop = Some(reason);
                            Place::Outside
                        }
                    }
                }
            }
            Place::Expected(tuple, expected) => {
                if said.stateless_drop && !said.accepted {
                    Place::Outside
                } else if let Some(reason) = self.refusal(&said, &matching, &input, &layout) {
                    drop = Some(reason);
                    Place::Outside
                } else {
                    match self.connections.open_expected(
                        &self.policy,
                        &expected.rules,
                        tuple,
                        &expected,
                        &input,
                        &layout,
                    ) {
                        Ok(id) => Place::Opened(id),
                        Err(reason) => {
                            drop = Some(reason);
                            Place::Outside
                        }
                    }
                }
            }
            place => place,
        };
        let (frame, meta) = match drop {
            Some(reason) => {
                reasons.push(reason);
                (input.frame.to_vec(), input.meta)
            }
            None => self.send_on(&matching, &place, &input, &layout, &mut reasons),
        };
        if let (None, Place::Opened(id)) = (drop, &place) {
            self.count(*id, &matching, &input, &layout);
        }
        let verdict = if drop.is_some() {
            Verdict::Drop
        } else {
            Verdict::Pass
        };
        let answer = (drop == Some(Reason::RuleDrop))
            .then(|| self.answer(&matching, &input, &layout, &mut reasons))
            .flatten();
        let logs = self.logs(&matching, verdict, input.now_ns, &mut reasons);
        let rules = || matching.iter().map(|&i| &self.policy.rules[i]);
        let (verdict, frame) = match answer {
            Some(answer) => (Verdict::Tx, answer),
            None => (verdict, frame),
        };
        Outcome {
            verdict,
            frame,
            meta,
            reasons,
            matched: rules().map(|rule| rule.id).collect(),
            logs,
            connection: place.part(),
            state,
        }
    }

    /// Whether a rule counts as matching. Those of a packet's connection do; others that keep state only if it may open one.
    fn matches(&self, i: usize, packet: &fields::View<'_>, place: &Place) -> bool {
        let rule = &self.policy.rules[i];
        match place {
            _ if !rule.stateful => matching::matches(rule, packet),
            Place::Of(id, _) | Place::Quotes(id, ..) | Place::Opened(id) => {
                self.connections.flow(*id).rules.contains(&i)
            }
            Place::MayOpen(..) => matching::matches(rule, packet),
            Place::Expected(..) | Place::Outside | Place::Refused(_) => false,
        }
    }

    /// Whether a matching rule decrements a TTL or hop limit that would reach 0.
    fn expires(
        &self,
        matching: &[usize],
        place: &Place,
        input: &Input<'_>,
        layout: &Layout,
    ) -> bool {
        let left = layout.ip.as_ref().and_then(|ip| {
            let at = match ip.version {
                Version::V4 => ip.at + 8,
                Version::V6 => ip.at + 7,
            };
            input.frame.get(at)
        });
        if left.is_none_or(|&left| left > 1) {
            return false;
        }
        let (state, sets) = (None, None);
        let classes = fields::View {
            input,
            layout,
            state,
            sets,
            clock: fields::Clock::default(),
        }
        .classes();
        let rewrites = |rule: &Rule| {
            !rule.stateful
                || !matches!(place, Place::Quotes(..) | Place::Outside)
                    && classes.contains(rule.requires)
        };
        (matching.iter().map(|&i| &self.policy.rules[i]))
            .any(|rule| rule.targets.contains(&Target::DecrementTtl) && rewrites(rule))
    }

    /// Limits of connections among the matching rules.
    fn counting<'a>(&'a self, matching: &'a [usize]) -> impl Iterator<Item = counts::Limit> + 'a {
        let room = self.policy.connections.limits;
        matching.iter().filter_map(move |&i| {
            let rule = &self.policy.rules[i];
            let (most, per) = rule.connections_at_a_time()?;
            Some(counts::Limit {
                rule: rule.id,
                most,
                per,
                room,
            })
        })
    }

    /// Why limits keep the packet from opening a connection; one that is accepted is not asked about.
    fn refusal(
        &self,
        said: &Said,
        matching: &[usize],
        input: &Input<'_>,
        layout: &Layout,
    ) -> Option<Reason> {
        let ip = layout.ip.as_ref().filter(|_| !said.accepted)?;
        let is_open = |id| (self.connections).is_open(&self.policy, id, input.now_ns);
        let refusals = self
            .counting(matching)
            .filter_map(|limit| (self.counts).refusal(&limit, input.frame, ip, is_open));
        // No room is said before a limit that is reached.
        refusals.max_by_key(|reason| *reason == Reason::LimitFull)
    }

    /// Counts a connection under the limits that its first packet matched.
    fn count(
        &mut self,
        opened: connections::FlowId,
        matching: &[usize],
        input: &Input<'_>,
        layout: &Layout,
    ) {
        let Some(ip) = &layout.ip else {
            return;
        };
        let limits: Vec<counts::Limit> = self.counting(matching).collect();
        let (policy, connections) = (&self.policy, &self.connections);
        let is_open = |id| connections.is_open(policy, id, input.now_ns);
        for limit in limits {
            (self.counts).count(&limit, input.frame, ip, opened, is_open);
        }
    }

    fn verdict(&mut self, matching: &[usize], input: &Input<'_>, layout: &Layout) -> Said {
        let mut said = Said::default();
        for &i in matching {
            let rule = &self.policy.rules[i];
            said.accepted_icmp |= rule.accepts_icmp_type();
            for target in &rule.targets {
                match target {
                    Target::Accept => said.accepted = true,
                    Target::Drop(when) => {
                        let dropped = match *when {
                            // Judged where a connection would open.
                            DropWhen::OverConnections { .. } => false,
                            DropWhen::Always | DropWhen::Answered(_) => true,
                            DropWhen::Random { below } => {
                                u64::from(random(self.options.seed, input.number, rule.id)) < below
                            }
                            DropWhen::Over { period_ns, burst } => {
                                let tat = &mut self.rates[i];
                                !limits::within(period_ns, burst, tat, input.now_ns)
                            }
                            DropWhen::Quota { bytes } => {
                                let used = &mut self.rates[i];
                                *used = used.wrapping_add(input.frame.len() as u64);
                                *used > bytes
                            }
                            DropWhen::OverEach {
                                period_ns,
                                burst,
                                per,
                            } => {
                                let limit = limits::Limit {
                                    rule: rule.id,
                                    per,
                                    period_ns,
                                    burst,
                                    room: self.policy.connections.limits,
                                };
                                let ip = layout.ip.as_ref();
                                let judged =
                                    self.limits.judge(&limit, input.frame, ip, input.now_ns);
                                said.displaced += usize::from(judged.displaces);
                                judged.above
                            }
                        };
                        said.dropped |= dropped;
                        said.stateless_drop |= dropped && !rule.stateful;
                    }
                    _ => {}
                }
            }
        }
        said
    }

    /// What `log` targets report of a packet.
    fn logs(
        &mut self,
        matching: &[usize],
        verdict: Verdict,
        now_ns: u64,
        notes: &mut Vec<Reason>,
    ) -> Vec<LogLine> {
        let mut lines = Vec::new();
        for &i in matching {
            let rule = &self.policy.rules[i];
            for target in &rule.targets {
                let Target::Log { prefix, limit } = target else {
                    continue;
                };
                if let Some(limit) = limit
                    && !limits::within(limit.period_ns, limit.burst, &mut self.rates[i], now_ns)
                {
                    notes.push(Reason::LogLimited);
                    continue;
                }
                lines.push(LogLine {
                    rule: rule.id,
                    prefix: prefix.clone(),
                    verdict,
                });
            }
        }
        lines
    }

    /// What answers a packet that the rules drop, if one of them rejects it.
    fn answer(
        &mut self,
        matching: &[usize],
        input: &Input<'_>,
        layout: &Layout,
        reasons: &mut Vec<Reason>,
    ) -> Option<Vec<u8>> {
        let (i, with) = matching.iter().find_map(|&i| {
            let targets = &self.policy.rules[i].targets;
            targets.iter().find_map(|target| match target {
                Target::Drop(DropWhen::Answered(with)) => Some((i, *with)),
                _ => None,
            })
        })?;
        let checksums = self.options.checksums;
        let most_tags = usize::from(checksums != ChecksumMode::Tc);
        let is_damaged = || connections::tcp_checksum_wrong(input.frame, layout, checksums);
        let Some(answer) = answer::answer(with, input.frame, layout, most_tags, is_damaged) else {
            reasons.push(Reason::NoAnswer);
            return None;
        };
        if !answer::may_answer(&mut self.rates[i], input.now_ns) {
            reasons.push(Reason::AnswerLimited);
            return None;
        }
        // It is not dropped: it leaves as its answer.
        reasons.retain(|&reason| reason != Reason::RuleDrop);
        reasons.push(Reason::Answered);
        Some(answer)
    }

    /// Translates and rewrites a packet that passes, and keeps in mind that it did.
    fn send_on(
        &mut self,
        matching: &[usize],
        place: &Place,
        input: &Input<'_>,
        layout: &Layout,
        notes: &mut Vec<Reason>,
    ) -> (Vec<u8>, Meta) {
        let flow = match *place {
            Place::Of(id, fit) => Some((id, fit)),
            Place::Opened(id) => Some((id, Fit::OrigDirect)),
            _ => None,
        };
        let translation = match (place, flow) {
            (Place::Quotes(id, fit, quote), _) => {
                let flow = self.connections.flow(*id);
                Some(Translation::of_error(flow, *fit, *quote))
            }
            (_, Some((id, fit))) => Some(Translation::of_packet(self.connections.flow(id), fit)),
            _ => None,
        };
        let packet = fields::View {
            input,
            layout,
            state: None,
            sets: None,
            clock: fields::Clock::default(),
        };
        let classes = packet.classes();
        let targets = matching
            .iter()
            .map(|&i| &self.policy.rules[i])
            .filter(|rule| !rule.stateful || flow.is_some() && classes.contains(rule.requires))
            .flat_map(|rule| &rule.targets);
        let mut meta = input.meta;
        let frame = rewrite::rewrite(
            input.frame,
            layout,
            translation.as_ref(),
            targets.inspect(|target| meta.set(target)),
            &self.options,
            notes,
        );
        if let Some((id, fit)) = flow {
            let opens = matches!(place, Place::Opened(_));
            (self.connections).mark(&self.policy, id, fit, opens, input, layout);
            self.connections.expect(id, fit, input, layout);
        }
        if self.stateful && is_first_fragment(layout) {
            self.connections.remember(flow, input, layout);
        }
        (frame, meta)
    }
}

impl Meta {
    /// What a target makes of it.
    fn set(&mut self, target: &Target) {
        let Target::SetMeta { field, value, mask } = target else {
            return;
        };
        let word = match field.info().offset {
            0 => &mut self.mark,
            _ => &mut self.priority,
        };
        *word = *word & !mask | value;
    }
}

/// What the matching rules say of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    accepted: bool,
    /// By a rule that names the type of the ICMP packet.
    accepted_icmp: bool,
    dropped: bool,
    /// A rule without connections drops.
    stateless_drop: bool,
    /// Addresses that limits forgot for it.
    displaced: usize,
}

impl Said {
    fn drops(self) -> bool {
        self.dropped && !self.accepted
    }
}

/// A packet that is dropped before any rule sees it.
fn unseen(input: &Input<'_>, reasons: Vec<Reason>) -> Outcome {
    Outcome {
        verdict: Verdict::Drop,
        frame: input.frame.to_vec(),
        meta: input.meta,
        reasons,
        matched: Vec::new(),
        logs: Vec::new(),
        connection: None,
        state: None,
    }
}

fn is_first_fragment(layout: &Layout) -> bool {
    layout
        .ip
        .as_ref()
        .is_some_and(|ip| ip.fragment == Fragment::First)
}

/// Whether the matches of one rule hold for a single packet, its time in UTC. A single packet has no state of a connection.
pub fn matches(rule: &Rule, input: &Input<'_>) -> bool {
    parse(input.frame).is_ok_and(|layout| {
        let layout = &layout;
        let (state, sets) = (None, None);
        matching::matches(
            rule,
            &fields::View {
                input,
                layout,
                state,
                sets,
                clock: fields::Clock::default(),
            },
        )
    })
}

/// The pseudo-random 32 bits of a rule for the n-th frame of a capture.
pub fn random(seed: u64, number: u64, rule: u32) -> u32 {
    let drawn = seed
        .wrapping_add(number << 32)
        .wrapping_add(u64::from(rule));
    (splitmix64(drawn) >> 32) as u32
}
