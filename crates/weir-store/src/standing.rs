//! How the edges stand: who is there, who runs what the store says, and why others do not.
//!
//! An edge whose agent is silent is *suspect* once its registration has ended, and *removed* once its presence has, too. Both are keys under leases of
//! its own, so etcd alone decides when, and no clock of a host matters. Nothing that forwards depends on it: programs run on without their agent.

use crate::catalogue::Catalogue;
use crate::entry::{Alive, Presence, ResultEntry, ResultState};
use crate::http::StoreError;
use crate::layout;
use crate::local::digest;

/// Whether the agent of an edge is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is registered.
    Registered,
    /// It was stopped, and said so.
    Stopped,
    /// It is silent for longer than its lease.
    Suspect,
    /// It is silent or stopped for so long that nobody waits for it.
    Removed,
    /// It was never there.
    Missing,
}

impl Stage {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::Registered => "registered",
            Stage::Stopped => "stopped",
            Stage::Suspect => "suspect",
            Stage::Removed => "removed",
            Stage::Missing => "missing",
        }
    }
}

/// How an edge stands.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Standing {
    /// The edge.
    pub edge: String,
    /// Networks that concern it.
    pub networks: usize,
    /// It runs what the store says.
    pub converged: bool,
    /// Why not, or what else is to be known.
    pub why: Option<String>,
    /// Whether its agent is registered.
    pub alive: bool,
    /// The same, in more detail.
    pub stage: Stage,
    /// Entries that it keeps although the store does not have them.
    pub held: usize,
    /// Revision up to which it has read.
    pub revision: Option<i64>,
}

impl Standing {
    /// Nobody has to wait for it: it runs what the store says, or it is removed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.converged || self.stage == Stage::Removed
    }
}

/// What to do about an agent that is not there.
const LOOK: &str = "`systemctl status weir-agent` on that host";

impl Catalogue {
    /// How the edges stand that networks concern, or that were registered.
    ///
    /// # Errors
    /// An entry cannot be read.
    pub fn standing(&self) -> Result<Vec<Standing>, StoreError> {
        let mut edges = self.edges();
        for prefix in [layout::ALIVE, layout::PRESENT] {
            edges.extend(self.below(prefix).map(|(name, _, _)| name.to_owned()));
        }
        let mut all = Vec::new();
        for edge in edges {
            let networks = self.indexed(&edge).len();
            let alive: Option<Alive> = self.get(&layout::alive(&edge))?;
            let presence: Option<Presence> = self.get(&layout::present(&edge))?;
            let result: Option<ResultEntry> = self.get(&layout::result(&edge))?;
            let stage = match (&alive, &presence, &result) {
                (Some(_), _, _) => Stage::Registered,
                (None, Some(one), _) if one.stopped => Stage::Stopped,
                (None, Some(_), _) => Stage::Suspect,
                (None, None, Some(_)) => Stage::Removed,
                (None, None, None) => Stage::Missing,
            };
            if networks == 0 && matches!(stage, Stage::Missing | Stage::Removed) {
                continue;
            }
            // An agent registers, reads, and then writes what it found: a result from before its registration says nothing of now.
            let is_fresh =
                self.revision(&layout::result(&edge)) > self.revision(&layout::alive(&edge));
            let is_current = is_fresh
                && (result.as_ref()).is_some_and(|one| one.digest == digest(&self.entries, &edge));
            let converged = is_current
                && result
                    .as_ref()
                    .is_some_and(|one| one.state == ResultState::Applied);
            let held = result.as_ref().map_or(0, |one| one.held);
            let why = match &result {
                None if stage == Stage::Missing => {
                    Some("its agent was never there: check `[store]` of its agent.toml".to_owned())
                }
                None if stage == Stage::Registered => Some("its agent has reported nothing yet".to_owned()),
                Some(one) if is_current && one.state == ResultState::Failed => one.error.clone(),
                Some(one) if is_current && one.state == ResultState::Edited => {
                    Some("its networks were edited on the host: `weir history` there shows by whom, SIGHUP applies the store's".to_owned())
                }
                _ => absent(stage, converged),
            };
            let why = why.or_else(|| match (converged, held) {
                (false, _) => Some("it has not applied the newest revision yet".to_owned()),
                (true, 0) => None,
                (true, held) => Some(format!("keeps {held} entries that this store lost: push their documents again, or `weir net store accept`")),
            });
            all.push(Standing {
                networks,
                converged,
                why,
                alive: alive.is_some(),
                stage,
                held,
                revision: result.map(|one| one.revision),
                edge,
            });
        }
        Ok(all)
    }
}

/// What is to be known of an edge whose agent is not there.
fn absent(stage: Stage, converged: bool) -> Option<String> {
    let runs = match converged {
        true => "forwards as the store says",
        false => "forwards as before the last changes",
    };
    let what = match stage {
        Stage::Registered | Stage::Missing => return None,
        Stage::Stopped => "its agent was stopped",
        Stage::Suspect => "suspect: its agent is silent for longer than its lease",
        Stage::Removed => {
            "removed: its agent is away for longer than `remove-after`, and nobody waits for it"
        }
    };
    Some(format!("{what}; if the host is up, it {runs}: {LOOK}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::written;

    fn with(entries: &[(String, Vec<u8>)]) -> Stage {
        let mut catalogue = Catalogue::default();
        let own = [
            (layout::edge("e1"), b"{}".to_vec()),
            (layout::index("e1", "n"), b"{}".to_vec()),
        ];
        for (key, value) in own.iter().chain(entries) {
            catalogue.entries.insert(key.clone(), (value.clone(), 1));
        }
        let standing = catalogue.standing().expect("readable");
        assert_eq!(standing.len(), 1);
        assert_eq!(
            standing[0].is_settled(),
            standing[0].stage == Stage::Removed
        );
        standing[0].stage
    }

    #[test]
    fn stages_follow_from_the_keys_that_leases_left() {
        let alive = Alive {
            host: "h".to_owned(),
            boot: "b".to_owned(),
            weir: "w".to_owned(),
            since: 1,
        };
        let alive = (layout::alive("e1"), written(&alive));
        let present = |stopped| {
            let one = Presence {
                host: "h".to_owned(),
                stopped,
                time: 1,
            };
            (layout::present("e1"), written(&one))
        };
        let result = ResultEntry {
            serial: 1,
            revision: 1,
            digest: "other".to_owned(),
            version: 1,
            state: ResultState::Applied,
            error: None,
            held: 0,
            time: 1,
        };
        let result = (layout::result("e1"), written(&result));
        let stage = |all: &[&(String, Vec<u8>)]| {
            with(&all.iter().map(|one| (*one).clone()).collect::<Vec<_>>())
        };
        assert_eq!(stage(&[]), Stage::Missing);
        assert_eq!(
            stage(&[&alive, &present(false), &result]),
            Stage::Registered
        );
        // Of an agent that knows no presence yet.
        assert_eq!(stage(&[&alive, &result]), Stage::Registered);
        assert_eq!(stage(&[&present(false), &result]), Stage::Suspect);
        assert_eq!(stage(&[&present(false)]), Stage::Suspect);
        assert_eq!(stage(&[&present(true), &result]), Stage::Stopped);
        assert_eq!(stage(&[&result]), Stage::Removed);
    }
}
