//! Scripts of rules while they are decided: one state of each for a worker, made when the script is first called.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::app::Transaction;
use crate::buffer::Buffer;
use crate::packet::{Direction, Packet};
use crate::rules::{Action, Rule, RuleScript};
use crate::script::{
    Failure, FlowFacts, PacketView, RuleView, Script, ScriptCounts, State, Variables, View,
};

/// What a flow keeps for scripts: variables by name, and counters by place.
pub(super) type Kept = (Vec<(Arc<str>, Vec<u8>)>, Vec<(u16, u32)>);

/// One worker's states, by the script that each is of. A script that could not be loaded again has none.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    states: HashMap<usize, Option<State>>,
    pub(super) counts: ScriptCounts,
    /// The first failure of each script, until it is told.
    told: Vec<String>,
    /// Scripts of which one was.
    failed: HashSet<Arc<str>>,
}

/// What a rule is decided on, for its scripts.
pub(super) struct Shown<'a> {
    pub(super) packet: Option<&'a Packet<'a>>,
    pub(super) time: u64,
    pub(super) number: u64,
    pub(super) flow: Option<FlowFacts>,
    pub(super) transaction: Option<&'a Transaction>,
    pub(super) direction: Option<Direction>,
    /// Bytes of a stream, or the payload.
    pub(super) bytes: &'a [u8],
    /// They are a stream's.
    pub(super) streamed: bool,
    /// Names of flows' counters.
    pub(super) counters: &'a [String],
    /// Numbers that the rule has extracted.
    pub(super) numbers: &'a [(Arc<str>, i64)],
}

impl Scripts {
    fn state(&mut self, script: &Arc<Script>, counters: &[String]) -> Option<&mut State> {
        let key = Arc::as_ptr(script) as usize;
        if !self.states.contains_key(&key) {
            let made = State::new(script, counters, None);
            let made = made.map_err(|failure| self.fail(script, &failure)).ok();
            self.states.insert(key, made);
        }
        self.states.get_mut(&key)?.as_mut()
    }

    fn fail(&mut self, script: &Script, failure: &Failure) {
        self.counts.add(failure);
        if self.failed.insert(Arc::clone(&script.name)) {
            self.told.push(failure.of(script));
        }
    }

    /// What there is to tell of failures.
    pub(super) fn take_told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    /// What a transform makes of bytes; `None`: they stay as they are.
    pub(super) fn transform(
        &mut self,
        script: &Arc<Script>,
        words: &[String],
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        let changed = self.state(script, &[])?.transform(bytes, words);
        changed.map_err(|f| self.fail(script, &f)).ok().flatten()
    }

    /// Whether all scripts of a rule hold. One that fails does not, negated or not.
    pub(super) fn hold(
        &mut self,
        rule: &Rule,
        scripts: &[RuleScript],
        shown: &Shown<'_>,
        mut kept: Option<&mut Kept>,
    ) -> bool {
        scripts.iter().all(|one| {
            let found = self.found(rule, one, shown, kept.as_deref_mut());
            found.is_some_and(|found| found != one.negated)
        })
    }

    /// What a script says; `None`: it fails, or what it asks for is not there.
    fn found(
        &mut self,
        rule: &Rule,
        one: &RuleScript,
        shown: &Shown<'_>,
        kept: Option<&mut Kept>,
    ) -> Option<bool> {
        let needs = &one.script.needs;
        let mut arguments: Vec<(&str, Cow<'_, [u8]>)> = Vec::new();
        if needs.has("packet") {
            arguments.push(("packet", Cow::Borrowed(shown.packet?.data)));
        }
        if needs.has("payload") {
            let payload = match shown.streamed {
                true => shown.packet?.payload(),
                false => shown.bytes,
            };
            if payload.is_empty() {
                return None;
            }
            arguments.push(("payload", Cow::Borrowed(payload)));
        }
        if needs.has("stream") {
            arguments.push(("stream", Cow::Borrowed(shown.bytes)));
        }
        if let Some(buffer) = one.buffer {
            arguments.push(("buffer", Cow::Borrowed(shown.buffer(buffer)?)));
        }
        let flow = shown.flow.clone();
        let packet = match (shown.packet, &flow) {
            (Some(packet), _) => Some(PacketView::of(packet)),
            (None, Some(flow)) => Some(PacketView::bare(shown.time, shown.number, flow)),
            (None, None) => None,
        };
        let mut view = View {
            packet,
            flow,
            transaction: shown.transaction.map(Cow::Borrowed),
            rule: Some(RuleView {
                sid: rule.sid,
                gid: rule.gid,
                rev: rule.rev,
                action: action(rule.action),
                message: Cow::Borrowed(&rule.message),
                class: Cow::Borrowed(&rule.category),
                priority: rule.priority,
            }),
            arguments,
            variables: kept.map(|(strings, counters)| Variables {
                strings,
                counters,
                names: shown.counters,
            }),
            numbers: shown.numbers,
            ..View::default()
        };
        let found = match self.state(&one.script, shown.counters) {
            Some(script) => script.matches(&mut view),
            None => Ok(false),
        };
        let failed = found.is_err() || !self.has(&one.script);
        match found {
            Ok(found) => (!failed).then_some(found),
            Err(failure) => {
                self.fail(&one.script, &failure);
                None
            }
        }
    }

    /// Whether there is a state of a script.
    fn has(&self, script: &Arc<Script>) -> bool {
        let key = Arc::as_ptr(script) as usize;
        self.states.get(&key).is_some_and(Option::is_some)
    }
}

impl<'a> Shown<'a> {
    fn buffer(&self, buffer: Buffer) -> Option<&'a [u8]> {
        let either = [Direction::ToServer, Direction::ToClient];
        let ways = self.direction.as_slice();
        let ways = if ways.is_empty() { &either[..] } else { ways };
        let t = self.transaction?;
        ways.iter().find_map(|way| t.get(buffer, *way).next())
    }
}

/// As rules write it.
pub(crate) fn action(action: Action) -> &'static str {
    match action {
        Action::Alert => "alert",
        Action::Pass => "pass",
        Action::Drop => "drop",
        Action::Reject => "reject",
    }
}
