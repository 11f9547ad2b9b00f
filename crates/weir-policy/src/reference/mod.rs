//! The reference semantics: a policy executed over one packet, in plain Rust.
//!
//! This is docs/semantics.md as a program, the oracle of every engine and what `weir explain` runs. It is written to be
//! read next to that page, not to be fast. Time, randomness and ports are inputs; the only state is the word per rule
//! of its rate limit. Nothing is shared with the planner or the data plane: both are tested against this.

mod explain;
mod fields;
mod matching;
mod options;
mod rewrite;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use weir_packet::parse::parse;
use weir_packet::{Reason, Verdict};

use crate::model::{DropWhen, Policy, Rule, Target};

pub use explain::{Check, Checked, Found, RuleExplanation, explain};

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
        }
    }
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Pass or drop.
    pub verdict: Verdict,
    /// The frame as rewritten; of a dropped packet as received.
    pub frame: Vec<u8>,
    /// Notes in the order they arose, and the drop reason; a note stands here as often as it is counted.
    pub reasons: Vec<Reason>,
    /// Ids of the matching rules, in order.
    pub matched: Vec<u32>,
    /// What `log` targets report, in rule order.
    pub logs: Vec<LogLine>,
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
    /// TAT of each rule's rate limit, ns.
    rates: Vec<u64>,
}

impl Reference {
    /// A policy before its first packet.
    pub fn new(policy: impl Into<Arc<Policy>>, options: Options) -> Self {
        let policy = policy.into();
        let rates = vec![0; policy.rules.len()];
        Reference {
            policy,
            options,
            rates,
        }
    }

    /// Runs the policy over the next packet.
    pub fn run(&mut self, input: Input<'_>) -> Outcome {
        let layout = match parse(input.frame) {
            Ok(layout) => layout,
            Err(malformed) => {
                let mut reasons = malformed.notes;
                reasons.push(malformed.reason);
                return Outcome {
                    verdict: Verdict::Drop,
                    frame: input.frame.to_vec(),
                    reasons,
                    matched: Vec::new(),
                    logs: Vec::new(),
                };
            }
        };
        let packet = fields::View {
            input: &input,
            layout: &layout,
        };
        let matching: Vec<usize> = (0..self.policy.rules.len())
            .filter(|&i| matching::matches(&self.policy.rules[i], &packet))
            .collect();

        let mut accepted = false;
        let mut dropped = false;
        for &i in &matching {
            for target in &self.policy.rules[i].targets {
                match target {
                    Target::Accept => accepted = true,
                    Target::Drop(when) => {
                        let seed = self.options.seed;
                        dropped |= drops(
                            *when,
                            &self.policy.rules[i],
                            &mut self.rates[i],
                            seed,
                            &input,
                        );
                    }
                    _ => {}
                }
            }
        }
        let verdict = if dropped && !accepted {
            Verdict::Drop
        } else {
            Verdict::Pass
        };

        let rules = || matching.iter().map(|&i| &self.policy.rules[i]);
        let mut reasons = layout.notes.clone();
        let frame = if verdict == Verdict::Drop {
            reasons.push(Reason::RuleDrop);
            input.frame.to_vec()
        } else {
            let targets = rules().flat_map(|rule| &rule.targets);
            rewrite::rewrite(input.frame, &layout, targets, &self.options, &mut reasons)
        };
        let logs = rules()
            .flat_map(|rule| rule.targets.iter().map(move |target| (rule, target)))
            .filter_map(|(rule, target)| match target {
                Target::Log { prefix } => Some(LogLine {
                    rule: rule.id,
                    prefix: prefix.clone(),
                    verdict,
                }),
                _ => None,
            })
            .collect();
        Outcome {
            verdict,
            frame,
            reasons,
            matched: rules().map(|rule| rule.id).collect(),
            logs,
        }
    }
}

/// The pseudo-random 32 bits of a rule for the n-th frame of a capture.
pub fn random(seed: u64, number: u64, rule: u32) -> u32 {
    let mut z = seed
        .wrapping_add(number << 32)
        .wrapping_add(u64::from(rule))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (z >> 32) as u32
}

fn drops(when: DropWhen, rule: &Rule, tat: &mut u64, seed: u64, input: &Input<'_>) -> bool {
    match when {
        DropWhen::Always => true,
        DropWhen::Random { below } => u64::from(random(seed, input.number, rule.id)) < below,
        DropWhen::Over { period_ns, burst } => {
            let limit = period_ns.saturating_mul(u64::from(burst.saturating_sub(1)));
            let base = input.now_ns.max(*tat);
            if base - input.now_ns > limit {
                return true;
            }
            *tat = base.wrapping_add(period_ns);
            false
        }
    }
}
