//! Where `weir top` reads: this host itself, or an agent by its API. Both answer with the same JSON.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_agent::api::{AgentClient, Host as _, Method, Problem, Target};

use super::super::edge_name;
use crate::args::watch::EdgeArgs;
use crate::commands::agent::host::Here;
use crate::commands::reach;
use crate::failure::Failure;

/// Connections that are read of each table.
const CONNECTIONS: usize = 1000;

/// Where it is read.
pub(super) enum Source {
    Host,
    Agent(AgentClient),
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Ports and functions with their ledgers.
    Ledgers,
    /// The same with hits of rules.
    Rules,
    /// Nodes and links.
    Graph,
    Connections,
    /// Commands beside edges.
    Children,
    /// Why packets are dropped, for so many seconds.
    Drops(u64),
}

impl Source {
    /// The agent that is named. Without one this host, where the process may read it, and else the agent of this host, which may.
    pub(super) fn choose(target: Option<Target>) -> Result<Source, Failure> {
        let target = match target {
            Some(target) => target,
            None if rustix::process::geteuid().is_root() => return Ok(Source::Host),
            None => reach::here_or(None)?,
        };
        Ok(Source::Agent(AgentClient::new(target)?))
    }

    /// As it is named on the screen.
    pub(super) fn place(&self) -> String {
        match self {
            Source::Host => "this host".to_owned(),
            Source::Agent(agent) => agent.place(),
        }
    }

    /// The edge that is meant: the one that is named, or the only one there.
    pub(super) fn edge(&mut self, args: &EdgeArgs) -> Result<String, Failure> {
        match self {
            Source::Agent(agent) if args.config.is_none() => {
                reach::edge_of(agent, args.edge.as_deref())
            }
            _ => edge_name(args),
        }
    }

    /// Reads something of an edge.
    pub(super) fn read(&mut self, edge: &str, what: What) -> Result<Value, Failure> {
        let agent = match self {
            Source::Host => return here(edge, what),
            Source::Agent(agent) => agent,
        };
        let path = format!("/v1/edges/{}", reach::quoted(edge));
        let value = match what {
            What::Ledgers => agent.get(&path),
            What::Rules => agent.get(&format!("{path}?hits=true")),
            What::Graph => agent.get(&format!("{path}/graph")),
            What::Connections => agent.get(&format!("{path}/connections?limit={CONNECTIONS}")),
            What::Children => agent.get("/v1/agent"),
            What::Drops(seconds) => {
                let body = json!({ "seconds": seconds });
                agent.ask(Method::POST, &format!("{path}/drops"), Some(&body))
            }
        };
        Ok(value?)
    }
}

fn here(edge: &str, what: What) -> Result<Value, Failure> {
    let value = match what {
        What::Ledgers => Here.status(Some(edge), false),
        What::Rules => Here.status(Some(edge), true),
        What::Graph => Here.graph(edge),
        What::Connections => Here.connections(edge, None, CONNECTIONS),
        What::Drops(seconds) => Here.drops(edge, Duration::from_secs(seconds)),
        // The agent alone knows them.
        What::Children => {
            let mut agent = AgentClient::new(reach::here_or(None)?)?;
            return Ok(agent.get("/v1/agent")?);
        }
    };
    value.map_err(|Problem { detail, next, .. }| Failure::Failed(format!("{detail}: {next}")))
}

/// What was read, and when.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) what: What,
    pub(super) at: Instant,
    pub(super) value: Result<Value, String>,
}

/// Reads in a thread of its own, so that keys are answered while an agent is far away.
pub(super) struct Reader {
    wishes: Sender<What>,
    readings: Receiver<Reading>,
}

impl Reader {
    pub(super) fn begin(mut source: Source, edge: String) -> Reader {
        let (wishes, wished) = channel::<What>();
        let (sender, readings) = channel();
        thread::spawn(move || {
            while let Ok(what) = wished.recv() {
                let value = source.read(&edge, what).map_err(|error| error.to_string());
                let at = Instant::now();
                if sender.send(Reading { what, at, value }).is_err() {
                    return;
                }
            }
        });
        Reader { wishes, readings }
    }

    /// Asks for something; the answer comes by [`Reader::take`].
    pub(super) fn wish(&self, what: What) {
        // The thread ends after this end only.
        let _ = self.wishes.send(what);
    }

    /// What was read since the last call.
    pub(super) fn take(&self) -> Option<Reading> {
        self.readings.try_recv().ok()
    }
}
