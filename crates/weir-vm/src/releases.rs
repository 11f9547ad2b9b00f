//! Which Linux releases take a program.
//!
//! Owns the rules of releases that differ from the verifier here, which is that of the newest one: pieces that came later, reads of
//! stack that was never written, limits of length and of the walk. It does not repeat how an old verifier tracked values: an old release
//! that has all pieces may still lose a bound that a newer one keeps, so "nothing found" is no promise, while an objection is.

use std::fmt;

use crate::catalogue::{Kernel, Need};
use crate::machine::Machine;
use crate::object::LoadError;
use crate::verify::{self, Rejection, VerifyOptions};

/// First release that lets root's programs read stack that was never written (commit 6715df8d5d24).
const UNWRITTEN_STACK: Kernel = Kernel(6, 3);
/// First release that takes programs of up to a million instructions from root, and walks as many (commit c04c0d2b968a).
const LARGE_PROGRAMS: Kernel = Kernel(5, 2);
/// `BPF_MAXINSNS`, for all programs before that release.
const SLOTS_BEFORE: usize = 4096;
/// `BPF_COMPLEXITY_LIMIT_INSNS` before that release, since 4.14.
const WALK_BEFORE: u64 = 131_072;

/// What a release has against a program.
#[derive(Clone, Debug)]
pub enum Objection {
    /// It is too old for something that the program uses, or nobody knows since when that exists.
    Needs(Need),
    /// Its verifier rejects the program.
    Rejected(Box<Rejection>),
    /// The program is longer than it takes.
    Length {
        /// Instructions, in slots of eight bytes.
        slots: usize,
        /// The limit.
        limit: usize,
    },
    /// Its verifier gives up before the end of the walk.
    Walk {
        /// Instructions that the verifier here walked.
        processed: u64,
        /// The limit.
        limit: u64,
    },
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objection::Needs(need) => match need.since {
                Some(since) => write!(f, "{}: since {since}", need.what),
                None => write!(f, "{}: in no release that is known here", need.what),
            },
            Objection::Rejected(rejection) => write!(f, "{}", rejection.rule),
            Objection::Length { slots, limit } => {
                write!(f, "{slots} instructions; it takes {limit} at most")
            }
            Objection::Walk { processed, limit } => write!(
                f,
                "{processed} instructions to verify; it gives up after {limit}"
            ),
        }
    }
}

/// What releases have against a program: a list for each, empty where nothing was found.
///
/// # Errors
/// [`LoadError::NoProgram`].
pub fn judge(
    machine: &Machine,
    program: &str,
    options: &VerifyOptions,
    releases: &[Kernel],
) -> Result<Vec<(Kernel, Vec<Objection>)>, LoadError> {
    let verdict = verify::verify(machine, program, options);
    let strict = releases.iter().any(|r| *r < UNWRITTEN_STACK).then(|| {
        let options = VerifyOptions {
            unwritten_stack: false,
            ..options.clone()
        };
        verify::verify(machine, program, &options)
    });
    let needs = match &verdict {
        Ok(verified) => machine.needs_verified(program, verified)?,
        Err(_) => machine.needs(program)?,
    };
    let slots = machine.reachable_slots(program)?;
    let against = |release: Kernel| {
        let mut found = Vec::new();
        for need in &needs {
            if need.since.is_none_or(|since| since > release) {
                found.push(Objection::Needs(need.clone()));
            }
        }
        if release < LARGE_PROGRAMS && slots > SLOTS_BEFORE {
            let limit = SLOTS_BEFORE;
            found.push(Objection::Length { slots, limit });
        }
        let verdict = strict
            .as_ref()
            .filter(|_| release < UNWRITTEN_STACK)
            .unwrap_or(&verdict);
        match verdict {
            Err(rejection) => found.push(Objection::Rejected(rejection.clone())),
            Ok(verified) if release < LARGE_PROGRAMS && verified.processed > WALK_BEFORE => {
                found.push(Objection::Walk {
                    processed: verified.processed,
                    limit: WALK_BEFORE,
                });
            }
            Ok(_) => {}
        }
        (release, found)
    };
    Ok(releases.iter().map(|r| against(*r)).collect())
}
