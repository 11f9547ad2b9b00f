//! What could not be translated, and what that means for packets.

use std::fmt;

/// What becomes of packets because a line is not translated as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The rule accepts and is left out: its packets are decided by the rules behind it, which may drop them.
    Narrower,
    /// The rule drops and is left out: its packets are decided by the rules behind it, which may accept them.
    Wider,
    /// The rule is left out, and so is what it leads to: its packets are decided by the rules behind it.
    Either,
    /// Verdicts are the same; no report is made.
    NotLogged,
    /// Verdicts are the same; what else the rule does is not done.
    NoChange,
    /// The rule is about packets that the policy does not judge.
    Elsewhere,
    /// The rule is about the packets of another chain, which the policy judges as it judges all.
    AsOthers,
    /// Nothing is decided here; rules that need it are named by themselves.
    ByRules,
    /// Addresses and ports stay as they are; filters are translated as if nothing were.
    NotMapped,
    /// The packets are dropped as before, and the sender is not told.
    NoAnswer,
    /// A set does not have the addresses that it has there.
    NotAdded,
}

impl Effect {
    /// A word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Effect::Narrower => "narrower",
            Effect::Wider => "wider",
            Effect::Either => "either",
            Effect::NotLogged => "not-logged",
            Effect::NoChange => "same-verdicts",
            Effect::Elsewhere => "other-packets",
            Effect::AsOthers => "as-others",
            Effect::ByRules => "named-by-rules",
            Effect::NotMapped => "not-translated",
            Effect::NoAnswer => "no-answer",
            Effect::NotAdded => "not-added",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Effect::Narrower => {
                "left out: rules behind it decide about its packets, and may drop them"
            }
            Effect::Wider => {
                "left out: rules behind it decide about its packets, and may accept them"
            }
            Effect::Either => "left out: rules behind it decide about its packets",
            Effect::NotLogged => "left out: verdicts are the same, nothing is logged",
            Effect::NoChange => "left out: verdicts are the same",
            Effect::Elsewhere => "left out: the policy does not judge these packets",
            Effect::AsOthers => {
                "left out: where its packets come by, the chain that was chosen judges them"
            }
            Effect::ByRules => "rules that name it are left out",
            Effect::NotMapped => "left out: the addresses of its packets stay as they are",
            Effect::NoAnswer => "translated as `drop`: the sender gets no answer",
            Effect::NotAdded => {
                "left out: the set has no such addresses; `weir set add` puts them in"
            }
        }
    }
}

/// A line that is not translated as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Line of the input, from 1.
    pub line: u32,
    /// The rule as written.
    pub text: String,
    /// Why.
    pub reason: String,
    /// What that means.
    pub effect: Effect,
    /// Whether the policy has it as a comment already.
    pub(crate) told: bool,
}

impl Finding {
    pub(crate) fn new(line: u32, text: &str, reason: impl Into<String>, effect: Effect) -> Finding {
        Finding {
            line,
            text: text.to_owned(),
            reason: reason.into(),
            effect,
            told: false,
        }
    }

    /// Reason and effect.
    pub fn words(&self) -> String {
        format!("{}; {}", self.reason, self.effect.words())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.words())
    }
}
