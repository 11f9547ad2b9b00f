//! Prevention: what an inline sensor does with each packet (`--inline`), or would do (`--simulate-ips`).
//!
//! Decisions over flows (thresholds, bits of hosts) change what becomes of later packets, so that they are made here and not where logs are written: there is one worker.

use std::collections::BTreeMap;

use super::engine::Engine;
use crate::config::{Drops, Policy, SensorConfig};
use crate::detect::{Decision, Match, Ruling};
use crate::packet::Direction;
use crate::rules::{Action, Scope, Verdict as Effect};

/// What becomes of all later packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    /// Each is inspected.
    #[default]
    Inspected,
    /// They are dropped.
    Dropped,
    /// They pass, and rules are not asked.
    Passed,
    /// They pass, and nothing more is looked at.
    Bypassed,
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// A rule drops it.
    Rules,
    /// A rate filter makes a rule drop it.
    RateFilter,
    /// Its flow is dropped.
    FlowDrop,
    /// An exception policy has dropped its flow.
    ExceptionFlowDrop,
    /// The beginning of its session was not seen.
    Midstream,
    /// The parser of its application gave up.
    ApplicationError,
    /// A rule of the firewall drops it before its flow is looked up.
    PreFlow,
    /// The same before its stream takes it.
    PreStream,
    /// A rule of the firewall drops it.
    Firewall,
    /// No rule of the firewall accepts it.
    FirewallPacket,
    /// No rule of the firewall accepts what its transaction has come to.
    FirewallState,
    /// The firewall has dropped its flow.
    FirewallFlow,
}

impl Reason {
    /// As records have it.
    pub(super) fn text(self) -> &'static str {
        match self {
            Reason::Rules => "rules",
            Reason::RateFilter => "threshold detection_filter",
            Reason::FlowDrop => "flow drop",
            Reason::ExceptionFlowDrop => "exception policy flow drop",
            Reason::Midstream => "stream midstream",
            Reason::ApplicationError => "application layer error",
            Reason::PreFlow => "firewall pre_flow hook",
            Reason::PreStream => "firewall pre_stream hook",
            Reason::Firewall => "firewall rules",
            Reason::FirewallPacket => "firewall default packet policy",
            Reason::FirewallState => "firewall default app policy",
            Reason::FirewallFlow => "firewall flow drop",
        }
    }

    /// The name of its counter.
    fn counter(self) -> &'static str {
        match self {
            Reason::Rules => "ips.drop_reason.rules",
            Reason::RateFilter => "ips.drop_reason.threshold_detection_filter",
            Reason::FlowDrop => "ips.drop_reason.flow_drop",
            Reason::ExceptionFlowDrop => "ips.drop_reason.exception_policy_flow_drop",
            Reason::Midstream => "ips.drop_reason.stream_midstream",
            Reason::ApplicationError => "ips.drop_reason.applayer_error",
            Reason::PreFlow => "firewall.drop_reason.pre_flow_hook",
            Reason::PreStream => "firewall.drop_reason.pre_stream_hook",
            Reason::Firewall => "firewall.drop_reason.rules",
            Reason::FirewallPacket => "firewall.drop_reason.default_packet_policy",
            Reason::FirewallState => "firewall.drop_reason.default_app_policy",
            Reason::FirewallFlow => "firewall.drop_reason.flow_drop",
        }
    }

    /// Whether it is the firewall's: the inspection has not seen the packet.
    fn is_of_firewall(self) -> bool {
        FIREWALL.contains(&self)
    }
}

/// Reasons of the firewall.
const FIREWALL: [Reason; 6] = [
    Reason::PreFlow,
    Reason::PreStream,
    Reason::Firewall,
    Reason::FirewallPacket,
    Reason::FirewallState,
    Reason::FirewallFlow,
];

/// What was decided of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    /// What becomes of all later packets.
    pub(super) fate: Fate,
    /// The exception policy that was applied.
    pub(super) exception: Option<Policy>,
    /// And the one for errors of its application.
    pub(super) error: Option<Policy>,
    /// It was inspected as far as it was to be, and let go then.
    pub(super) let_go: bool,
    /// What the firewall decided of all its packets.
    pub(super) walled: Option<Walled>,
    /// Directions of which a dropped packet was logged.
    logged: [bool; 2],
}

impl Standing {
    /// Whether nothing more of it is looked at.
    pub(super) fn is_left(&self) -> bool {
        matches!(self.fate, Fate::Dropped | Fate::Bypassed)
    }

    /// As records of flows have it.
    pub(super) fn action(&self) -> Option<&'static str> {
        match self.fate {
            Fate::Dropped => Some("drop"),
            _ if self.walled == Some(Walled::Accepted) => Some("accept"),
            Fate::Passed | Fate::Bypassed => Some("pass"),
            Fate::Inspected => None,
        }
    }
}

/// Packets and bytes of flows that were let go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LetGo {
    /// Read, of flows that the source does not keep away.
    pub(super) local: [u64; 2],
    /// Read, of flows that it does: they were on their way, or begin or end their session.
    pub(super) capture: [u64; 2],
    /// Kept away by it, of flows that are over.
    pub(super) kept_away: [u64; 2],
    /// Flows that were let go and are over.
    pub(super) closed: u64,
}

/// What the source was asked about a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing.
    #[default]
    Not,
    /// It keeps its packets away, under this number.
    KeepsAway(u32),
    /// It does not, or no longer.
    Reads,
}

/// What the firewall decided of all later packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walled {
    /// They are accepted: it is not asked any more.
    Accepted,
    /// They are dropped.
    Dropped,
}

/// What a flow is when a packet of it comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// It is a TCP session of which nothing was seen before, and that is not followed.
    pub(super) unseen: bool,
    /// It is a TCP session that was taken up without its beginning.
    pub(super) taken_up: bool,
    /// A rule has passed all of it.
    pub(super) passed: bool,
    /// The parser of its application gave up since the packet before.
    pub(super) failed: bool,
}

/// What becomes of the packet that is looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Verdict {
    dropped: Option<Reason>,
    /// A table before the filter has accepted it.
    accepted: bool,
    rejected: bool,
    /// The rule that dropped it.
    rule: Option<u32>,
    /// A rule had passed its flow before it came: of a rule that passes and one that drops, the first one wins.
    passed: bool,
}

/// A dropped packet that is to be logged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropped {
    pub(super) reason: Reason,
    /// The rule that dropped it.
    pub(super) rule: Option<u32>,
}

/// What becomes of packets.
#[derive(Debug)]
pub(super) struct Prevention {
    inline: bool,
    midstream: Policy,
    /// Somebody asked for that policy, even if it is to do nothing.
    told: bool,
    errors: Policy,
    /// Packets that the firewall accepted and blocked, if there is one.
    firewall: Option<[u64; 2]>,
    /// Alerts of the firewall beyond those that one packet may give.
    pub(super) discarded: u64,
    verdict: Verdict,
    /// A packet of the frame that is looked at was dropped: the frame is.
    frame: bool,
    accepted: u64,
    blocked: u64,
    rejected: u64,
    reasons: BTreeMap<Reason, u64>,
    /// How often each exception policy was applied.
    exceptions: BTreeMap<(&'static str, &'static str), u64>,
}

impl Prevention {
    pub(super) fn new(config: &SensorConfig) -> Prevention {
        let firewall = config.firewall.is_some();
        Prevention {
            inline: config.ips,
            midstream: config.midstream,
            told: config.midstream_told,
            errors: config.app_errors,
            firewall: firewall.then_some([0; 2]),
            discarded: 0,
            verdict: Verdict::default(),
            frame: false,
            accepted: 0,
            blocked: 0,
            rejected: 0,
            reasons: BTreeMap::new(),
            exceptions: BTreeMap::new(),
        }
    }

    /// Whether a firewall decides what is inspected.
    pub(super) fn has_firewall(&self) -> bool {
        self.firewall.is_some()
    }

    /// Takes what the firewall decided of a packet; `table`: the reason if that is no rule's decision. Returns whether the packet goes on.
    pub(super) fn rule(
        &mut self,
        ruling: &Ruling,
        table: Reason,
        flow: Option<&mut Standing>,
    ) -> bool {
        let accepted = ruling.verdict == Effect::Accept;
        if !accepted {
            let early = matches!(table, Reason::PreFlow | Reason::PreStream);
            let reason = match ruling.rule {
                Some(_) if !early => Reason::Firewall,
                _ => table,
            };
            self.block(reason, ruling.rule);
            self.verdict.rejected |= ruling.verdict == Effect::Reject;
        }
        if let Some(flow) = flow
            && ruling.scope == Scope::Flow
        {
            flow.walled = Some(match accepted {
                true => Walled::Accepted,
                false => Walled::Dropped,
            });
            if !accepted {
                flow.fate = Fate::Dropped;
            }
        }
        accepted
    }

    /// A table before the filter has accepted the packet, and the tables behind it are not asked.
    pub(super) fn accept(&mut self) {
        self.verdict.accepted = true;
    }

    /// Whether one has.
    pub(super) fn is_accepted(&self) -> bool {
        self.verdict.accepted
    }

    /// Whether the packet that is looked at is dropped.
    pub(super) fn is_dropped(&self) -> bool {
        self.verdict.dropped.is_some()
    }

    /// Whether packets are dropped.
    pub(super) fn is_inline(&self) -> bool {
        self.inline
    }

    /// Whether the packet that is looked at is rejected: its ends are told.
    pub(super) fn is_rejected(&self) -> bool {
        self.verdict.rejected
    }

    /// A frame is over, and all packets in it: whether it is dropped.
    pub(super) fn end_frame(&mut self) -> bool {
        std::mem::take(&mut self.frame)
    }

    /// Counters, by their names; those of packets only where they are dropped.
    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        let exceptions = self.exceptions.iter();
        let mut all: BTreeMap<String, u64> = exceptions
            .map(|((of, policy), n)| (format!("exception_policy.{of}.{policy}"), *n))
            .collect();
        if self.inline {
            let packets = [
                ("ips.accepted", self.accepted),
                ("ips.blocked", self.blocked),
                ("ips.rejected", self.rejected),
                ("ips.replaced", 0),
            ];
            let reasons = self.reasons.iter().map(|(r, n)| (r.counter(), *n));
            let packets = packets.into_iter().chain(reasons);
            all.extend(packets.map(|(name, n)| (name.to_owned(), n)));
        }
        if let Some([accepted, blocked]) = self.firewall {
            let mut add = |name: &str, n| *all.entry(name.to_owned()).or_default() += n;
            add("firewall.discarded_alerts", self.discarded);
            add("firewall.accepted", accepted);
            add("firewall.blocked", blocked);
            // What was not dropped for a reason stands there as well: nothing.
            let others = [Reason::Rules, Reason::FlowDrop];
            for reason in FIREWALL.into_iter().chain(others) {
                add(reason.counter(), 0);
            }
        }
        all
    }

    /// Decides a match, once for all: the action of its alert, if it has one. What it does beside that is done.
    pub(super) fn decide(
        &mut self,
        engine: &Engine,
        one: &Match,
        flow: Option<&mut Standing>,
    ) -> Option<Action> {
        let rule = engine.ruleset.rule(one.rule);
        let (action, alerts) = match engine.decide(one)? {
            Decision::Alert(action) => (action, true),
            Decision::Limited(action) | Decision::Suppressed(action) => (action, false),
            Decision::Silent => (rule.action, false),
            Decision::Void | Decision::Below => return None,
        };
        if matches!(action, Action::Drop | Action::Reject) {
            let reason = match rule.action == action {
                true => Reason::Rules,
                false => Reason::RateFilter,
            };
            self.block(reason, Some(one.rule));
            self.verdict.rejected |= action == Action::Reject;
            if let Some(flow) = flow
                && one.whole_flow
                && flow.fate == Fate::Inspected
                && !self.verdict.passed
            {
                flow.fate = Fate::Dropped;
            }
        }
        alerts.then_some(action)
    }

    /// A packet of a flow comes: what is decided before rules are asked. Returns whether it is inspected.
    pub(super) fn arrive(&mut self, flow: &mut Standing, arrival: Arrival) -> bool {
        if arrival.failed && !self.fail(flow) {
            return false;
        }
        let policy = self.midstream;
        // Of what is neither dropped nor let go each packet is one without a beginning.
        let again = arrival.unseen || arrival.taken_up && flow.exception.is_none();
        if policy != Policy::Ignore && again && !flow.is_left() {
            flow.exception = Some(policy);
            if !self.except(flow, policy, "tcp.midstream", Reason::Midstream) {
                return false;
            }
        }
        if policy == Policy::Ignore && self.told && arrival.taken_up {
            flow.exception = Some(policy);
        }
        self.verdict.passed = arrival.passed;
        if flow.fate == Fate::Dropped {
            let reason = match flow.walled {
                Some(Walled::Dropped) => Reason::FirewallFlow,
                _ if [flow.exception, flow.error]
                    .into_iter()
                    .flatten()
                    .any(Policy::drops) =>
                {
                    Reason::ExceptionFlowDrop
                }
                _ => Reason::FlowDrop,
            };
            self.block(reason, None);
        }
        !flow.is_left() && self.verdict.dropped.is_none()
    }

    /// The parser of the flow's application gave up at a packet. Returns whether the packet is inspected.
    pub(super) fn fail(&mut self, flow: &mut Standing) -> bool {
        let policy = self.errors;
        if policy == Policy::Ignore || flow.is_left() {
            return true;
        }
        flow.error = Some(policy);
        self.except(flow, policy, "app_layer.error", Reason::ApplicationError)
    }

    /// Applies an exception policy. Returns whether the packet is inspected.
    fn except(
        &mut self,
        flow: &mut Standing,
        policy: Policy,
        of: &'static str,
        reason: Reason,
    ) -> bool {
        *self.exceptions.entry((of, policy.name())).or_default() += 1;
        flow.fate = match policy {
            Policy::DropFlow | Policy::Reject => Fate::Dropped,
            Policy::PassFlow => Fate::Passed,
            Policy::Bypass => Fate::Bypassed,
            Policy::Ignore | Policy::DropPacket | Policy::PassPacket => flow.fate,
        };
        if policy.drops() {
            self.block(reason, None);
            self.verdict.rejected |= policy == Policy::Reject;
        }
        policy != Policy::PassPacket
    }

    /// The packet is decided: it is counted, and returned if it is dropped and to be logged.
    pub(super) fn depart(
        &mut self,
        flow: Option<(&mut Standing, Direction)>,
        logged: Option<&Drops>,
    ) -> Option<Dropped> {
        if !self.inline {
            return None;
        }
        let verdict = std::mem::take(&mut self.verdict);
        self.rejected += u64::from(verdict.rejected);
        let walled = verdict.dropped.is_some_and(Reason::is_of_firewall);
        if let Some([accepted, blocked]) = &mut self.firewall {
            *if walled { blocked } else { accepted } += 1;
        }
        let Some(reason) = verdict.dropped else {
            self.accepted += 1;
            return None;
        };
        self.blocked += u64::from(!walled);
        self.frame = true;
        *self.reasons.entry(reason).or_default() += 1;
        let logged = logged?;
        // Of a flow that is dropped as a whole, `start` has the first packet of each direction, and those that a rule dropped.
        if !logged.all
            && let Some((flow, direction)) = flow
        {
            let whole = flow.fate == Fate::Dropped;
            let done = &mut flow.logged[direction.index()];
            let again = std::mem::replace(done, *done || whole);
            if verdict.rule.is_none() && (again || !whole) {
                return None;
            }
        }
        Some(Dropped {
            reason,
            rule: verdict.rule.filter(|_| logged.alerts),
        })
    }

    fn block(&mut self, reason: Reason, rule: Option<u32>) {
        if self.verdict.dropped.is_none() {
            (self.verdict.dropped, self.verdict.rule) = (Some(reason), rule);
        }
    }
}
