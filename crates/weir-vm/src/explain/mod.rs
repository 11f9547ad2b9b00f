//! A rejection made readable: the rule in plain words, source lines, where the value came from, the missing check, and the path.
//!
//! Owns the step from [`Rejection`] to [`Explanation`]; the look of it on a screen belongs to the command line. Works without type information
//! too, with less to show. Invariant: what is said of the source is read from the object's line information, never guessed from names alone.

mod advice;
mod expression;
mod rules;
mod source;

use serde::Serialize;

use crate::machine::Machine;
use crate::verify::{Birth, Rejection, Rule};

pub use source::{Source, Spot};

/// Why a program is refused, for people.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Program.
    pub program: String,
    /// The rule's name, such as `packet-bounds`.
    pub rule: String,
    /// The rule in plain words.
    pub summary: &'static str,
    /// What is wrong at this place.
    pub message: String,
    /// Where.
    pub at: Spot,
    /// The register the rule is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register: Option<RegisterStory>,
    /// What is missing.
    pub missing: Advice,
    /// Calls that were open, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Spot>,
    /// Branches from the start of the program to the place, oldest first.
    pub path: Vec<Branch>,
    /// Registers and stack slots of the running function that hold something.
    pub state: Vec<Holding>,
    /// Instructions the verifier walked until then.
    pub processed: u64,
}

/// What is known of a register, and since when.
#[derive(Clone, Debug, Serialize)]
pub struct RegisterStory {
    /// `r0` to `r10`.
    pub name: String,
    /// What it holds, in words and as the verifier writes it.
    pub holds: String,
    /// How it came to hold that, in words.
    pub birth: String,
    /// Where; nothing for what was there from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub born: Option<Spot>,
    /// The last branch that told something about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrowed: Option<Spot>,
}

/// What would make the program acceptable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// In words.
    pub text: String,
    /// As source, where the source line tells what to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What there is already, and why it is not enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A branch on the path.
#[derive(Clone, Debug, Serialize)]
pub struct Branch {
    /// The conditional jump.
    pub at: Spot,
    /// Whether it was taken.
    pub taken: bool,
    /// Source line the path went on with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_line: Option<u32>,
    /// How often in a row the path took it so.
    pub times: u64,
}

/// A register or stack slot.
#[derive(Clone, Debug, Serialize)]
pub struct Holding {
    /// `r1`, `fp-8`.
    pub name: String,
    /// What it holds, as the verifier writes it.
    pub value: String,
}

/// Explains why `machine`'s program was rejected.
pub fn explain(machine: &Machine, rejection: &Rejection) -> Explanation {
    let spot = |op| Spot::of(machine, op);
    Explanation {
        program: rejection.program.clone(),
        rule: rules::name(&rejection.rule),
        summary: rules::summary(&rejection.rule),
        message: rejection.rule.to_string().replace(" 1 bytes", " 1 byte"),
        at: spot(rejection.place.op),
        register: story(machine, rejection),
        missing: advice::advise(machine, rejection),
        calls: rejection.calls.iter().map(|op| spot(*op)).collect(),
        path: path(machine, rejection),
        state: rejection
            .state
            .iter()
            .map(|seen| Holding {
                name: seen.name.clone(),
                value: seen.text.clone(),
            })
            .collect(),
        processed: rejection.processed,
    }
}

fn story(machine: &Machine, rejection: &Rejection) -> Option<RegisterStory> {
    let register = rejection.register?;
    let name = format!("r{register}");
    let seen = rejection.state.iter().find(|s| s.name == name);
    let holds = match seen {
        Some(seen) => format!("{}: {}", seen.kind, seen.text),
        None => "nothing".to_owned(),
    };
    let history = rejection.history.or(seen.map(|s| s.history));
    let birth = history.map_or(Birth::Nothing, |h| h.birth);
    let made = !matches!(birth, Birth::Entry | Birth::Nothing);
    let spot = |op| Spot::of(machine, op);
    Some(RegisterStory {
        birth: rules::birth(birth, rejection.rule == Rule::UninitRegister { register }),
        born: history.filter(|_| made).map(|h| spot(h.born_at)),
        narrowed: history.and_then(|h| h.narrowed_at).map(spot),
        name,
        holds,
    })
}

/// The branches; rounds of a loop that repeat one branch are one entry.
fn path(machine: &Machine, rejection: &Rejection) -> Vec<Branch> {
    let mut path: Vec<Branch> = Vec::new();
    for step in &rejection.path {
        if let Some(last) = path.last_mut()
            && last.at.op == step.op
            && last.taken == step.taken
        {
            last.times += 1;
            continue;
        }
        let next = match (step.taken, machine.code().ops.get(step.op)) {
            (true, Some(op)) => op.target(),
            _ => step.op + 1,
        };
        path.push(Branch {
            at: Spot::of(machine, step.op),
            taken: step.taken,
            next_line: machine.source_line(next).map(|l| l.line).filter(|l| *l > 0),
            times: 1,
        });
    }
    path
}
