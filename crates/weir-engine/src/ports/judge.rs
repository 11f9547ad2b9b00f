//! What judges frames at ports: a policy in the user engine, or an XDP program of anybody.
//!
//! One frame at a time, by one caller. Invariant: a judge has no side effects but in its own maps; where a frame goes is the caller's matter.

use std::sync::Arc;

use weir_functions::middlebox;
use weir_functions::plan::Port as PlanPort;
use weir_functions::report::Report;
use weir_packet::Verdict;
use weir_policy::model::{Policy, Target as RuleTarget};
use weir_vm::{Env, Fault, Frame, Machine};

use super::redirect::{self, RedirectTarget};
use crate::{Engine, EngineError, EngineKind, LogLine, Packet, ReplayOptions};

/// A frame and its circumstances.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'a> {
    /// The whole frame, checksums finished.
    pub frame: &'a [u8],
    /// The monotonic clock, ns.
    pub now_ns: u64,
    /// Index of the interface that it came by.
    pub ifindex: u32,
    /// Number of that interface among the ports, from 1.
    pub port: u32,
    /// Receive queue.
    pub queue: u32,
}

/// Why a judge cannot go on: a defect of weir.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct JudgeError(#[from] EngineError);

/// What a judge says of a frame.
#[derive(Debug)]
pub enum Judged {
    /// The verdict; of a redirect the targets are told beside it.
    Verdict(Verdict),
    /// The program did what it may not; the frame is dropped.
    Fault(Box<Fault>),
}

/// Something that judges frames.
pub trait Judge {
    /// For reports: `user`, `user-jit`, `interpreter`, `jit`.
    fn name(&self) -> &'static str;

    /// Judges a frame. `out` becomes the frame as it goes on, and where a redirect goes is added to `targets`.
    ///
    /// # Errors
    /// It cannot go on.
    fn judge(
        &mut self,
        arriving: &Arriving<'_>,
        out: &mut Vec<u8>,
        targets: &mut Vec<RedirectTarget>,
    ) -> Result<Judged, JudgeError>;
}

/// A policy, planned as for XDP in front of complete checksums.
pub struct PolicyJudge {
    engine: Box<dyn Engine>,
    policy: Arc<Policy>,
    /// Log lines are fetched after each frame only if some rule writes any.
    logs: bool,
    lines: Vec<(LogLine, String)>,
    seen: u64,
    /// Rules test the time: the host's clock is read for each frame, because it may be stepped.
    tests_time: bool,
}

impl PolicyJudge {
    /// Plans and loads a policy. `ports` are the interfaces in the order of their numbers, `mtu` the least of theirs; `seed` is that of random drops.
    ///
    /// # Errors
    /// The policy cannot be planned.
    pub fn new(
        kind: EngineKind,
        policy: &Arc<Policy>,
        ports: Vec<PlanPort>,
        mtu: Option<u32>,
        seed: u64,
    ) -> Result<PolicyJudge, EngineError> {
        let options = ReplayOptions {
            mtu,
            seed,
            ports,
            ..ReplayOptions::default()
        };
        let logs = policy
            .rules
            .iter()
            .flat_map(|rule| &rule.targets)
            .any(|target| matches!(target, RuleTarget::Log { .. }));
        middlebox::refuse_meta(&policy.rules, || "the user engine's ports".to_owned())?;
        Ok(PolicyJudge {
            engine: crate::open(kind, policy, &options)?,
            policy: Arc::clone(policy),
            logs,
            lines: Vec::new(),
            seen: 0,
            tests_time: middlebox::tests_time(&policy.rules),
        })
    }

    /// What the policy counted.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn report(&mut self) -> Result<Report, EngineError> {
        let (stats, counters) = self.engine.totals()?;
        let name = self.engine.name();
        Ok(Report::new(name, &self.policy, &stats, &counters))
    }

    /// Log lines since the last call, each with its packet in words.
    pub fn take_lines(&mut self) -> Vec<(LogLine, String)> {
        std::mem::take(&mut self.lines)
    }

    /// Whether the policy tells packets by their VLAN tags.
    pub fn names_vlan(policy: &Policy) -> bool {
        middlebox::names_vlan(&policy.rules)
    }
}

impl Judge for PolicyJudge {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn judge(
        &mut self,
        arriving: &Arriving<'_>,
        out: &mut Vec<u8>,
        targets: &mut Vec<RedirectTarget>,
    ) -> Result<Judged, JudgeError> {
        let packet = Packet {
            frame: arriving.frame,
            now_ns: arriving.now_ns,
            number: self.seen,
            port: arriving.port,
            queue: arriving.queue as u16,
        };
        self.seen += 1;
        if self.tests_time {
            self.engine.set_wall_offset(crate::wall_offset_ns());
        }
        let verdict = self.engine.packet(&packet, out)?;
        if verdict == Verdict::Redirect {
            // No rule redirects; whoever adds one finds the packet counted as going nowhere.
            targets.push(RedirectTarget::Nothing);
        }
        if self.logs {
            for line in self.engine.logs()? {
                let text = weir_packet::summary(arriving.frame);
                self.lines.push((line, text));
            }
        }
        Ok(Judged::Verdict(verdict))
    }
}

/// An XDP program.
pub struct ObjectJudge<'m> {
    machine: &'m mut Machine,
    name: &'static str,
    frame: Frame,
    instruction_budget: u64,
    seen: u64,
}

impl<'m> ObjectJudge<'m> {
    /// A program that is ready to run; `name` is that of what runs it.
    pub fn new(machine: &'m mut Machine, name: &'static str, instruction_budget: u64) -> Self {
        ObjectJudge {
            machine,
            name,
            frame: Frame::new(&[]),
            instruction_budget,
            seen: 0,
        }
    }
}

impl Judge for ObjectJudge<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn judge(
        &mut self,
        arriving: &Arriving<'_>,
        out: &mut Vec<u8>,
        targets: &mut Vec<RedirectTarget>,
    ) -> Result<Judged, JudgeError> {
        self.frame.reset(arriving.frame);
        self.seen += 1;
        let env = Env {
            now_ns: arriving.now_ns,
            ingress_ifindex: arriving.ifindex,
            rx_queue: arriving.queue,
            random_seed: self.seen << 16,
            instruction_budget: self.instruction_budget,
            ..Env::default()
        };
        let verdict = match self.machine.run_xdp(&mut self.frame, &env) {
            Ok(action) => crate::verdict(action),
            Err(fault) => return Ok(Judged::Fault(Box::new(fault))),
        };
        out.clear();
        out.extend_from_slice(self.frame.data());
        if verdict == Verdict::Redirect {
            targets.extend(redirect::targets(self.machine, arriving.ifindex));
            if targets.is_empty() {
                targets.push(RedirectTarget::Nothing);
            }
        }
        Ok(Judged::Verdict(verdict))
    }
}
