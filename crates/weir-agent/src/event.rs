//! What the agent did or found, as lines for people and as JSON.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use weir_packet::Reason;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// An edge was made what its file says.
    Applied {
        /// The edge.
        edge: String,
        /// Its file.
        file: PathBuf,
        /// Why now.
        why: &'static str,
    },
    /// What ran already is what the file says.
    Adopted {
        /// The edge.
        edge: String,
        /// Its file.
        file: PathBuf,
    },
    /// The running edge differs from its file; the agent does not change it.
    Edited {
        /// The edge.
        edge: String,
        /// How it differs.
        how: &'static str,
    },
    /// A file could not be applied. What ran runs on.
    Failed {
        /// The file.
        file: PathBuf,
        /// Why.
        error: String,
        /// Seconds until it is tried again, if no file changes before.
        again: u64,
    },
    /// An edge whose file is gone was taken down.
    Removed {
        /// The edge.
        edge: String,
    },
    /// A child was started.
    Started {
        /// The edge that it serves, if it does.
        edge: Option<String>,
        /// Its command.
        command: String,
        /// Its process.
        process: u32,
    },
    /// A child ended.
    Ended {
        /// The edge that it served, if it did.
        edge: Option<String>,
        /// Its command.
        command: String,
        /// How it ended.
        status: String,
        /// Seconds until it is started again; `None`: it is wanted no more.
        again: Option<u64>,
    },
    /// Files that a child reads changed, and it was told.
    Reloaded {
        /// Its command.
        command: String,
        /// Its process.
        process: u32,
        /// What it does.
        how: &'static str,
    },
    /// A server of a service failed its checks, or answers again.
    Health {
        /// The edge.
        edge: String,
        /// The balancer.
        function: String,
        /// The service: protocol, address and port.
        service: String,
        /// The server's address.
        server: String,
        /// `down` or `up`.
        state: &'static str,
    },
    /// Packets were dropped. An event of the API only.
    Drops {
        /// The edge.
        edge: String,
        /// The port or function.
        stage: String,
        /// The reason, as it is counted.
        reason: &'static str,
        /// How many since the last event of the same kind.
        packets: u64,
        /// The seconds since then.
        seconds: u64,
    },
    /// A sensor reported an alert. An event of the API only.
    Alert {
        /// The folder of its log.
        sensor: String,
        /// The rule, as generator, number and revision.
        rule: String,
        /// Its message.
        signature: String,
        /// From 1, the worst.
        severity: u64,
        /// The flow: protocol, and both ends.
        flow: String,
        /// The sensor's number of it.
        flow_id: u64,
        /// Alerts beside this one that no event says.
        more: u64,
    },
    /// A client of the API had something changed.
    Requested {
        /// The edge; `None`: all.
        edge: Option<String>,
        /// What.
        what: String,
        /// The user.
        user: String,
    },
    /// The API serves.
    Serving {
        /// The path of its socket, or the address of its metrics.
        at: String,
    },
    /// Certificate and key for other hosts were replaced.
    Renewed {
        /// The file of the certificate.
        file: PathBuf,
    },
    /// The store was reached or lost, or says something else.
    Store {
        /// The edge.
        edge: String,
        /// `connected`, `lost`, `changed`, `held` or `undeclared`.
        state: &'static str,
        /// What happened.
        text: String,
    },
    /// Something that the agent does beside could not be done.
    Warning {
        /// What and why.
        text: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Applied { edge, file, why } => {
                write!(f, "edge {edge}: applied {} ({why})", file.display())
            }
            Event::Adopted { edge, file } => {
                write!(f, "edge {edge}: already runs what {} says", file.display())
            }
            Event::Edited { edge, how } => write!(
                f,
                "edge {edge}: {how}; it is left alone. `weir history --edge {edge}` shows by whom, SIGHUP applies the file again"
            ),
            Event::Failed { file, error, again } => write!(
                f,
                "{}: {error}; what runs is unchanged, the next try is in {again} s",
                file.display()
            ),
            Event::Removed { edge } => write!(f, "edge {edge}: its file is gone, taken down"),
            Event::Started {
                edge,
                command,
                process,
            } => {
                of_edge(f, edge.as_deref())?;
                write!(f, "started weir {command} (process {process})")
            }
            Event::Ended {
                edge,
                command,
                status,
                again,
            } => {
                of_edge(f, edge.as_deref())?;
                write!(f, "weir {command} ended: {status}")?;
                match again {
                    Some(again) => write!(f, "; it starts again in {again} s"),
                    None => Ok(()),
                }
            }
            Event::Reloaded {
                command,
                process,
                how,
            } => write!(f, "weir {command} (process {process}) {how}"),
            Event::Health {
                edge,
                function,
                service,
                server,
                state,
            } => write!(
                f,
                "edge {edge}: server {server} of {service} ({function}) is {state}"
            ),
            Event::Drops {
                edge,
                stage,
                reason,
                packets,
                seconds,
            } => {
                let text = Reason::from_name(reason).map_or("", Reason::text);
                let text = text.trim_end_matches('.');
                write!(
                    f,
                    "edge {edge}: {stage} dropped {packets} packets in {seconds} s ({reason}: {text}). `weir drops --edge {edge}` shows which"
                )
            }
            Event::Alert {
                sensor,
                rule,
                signature,
                severity,
                flow,
                more,
                ..
            } => {
                write!(
                    f,
                    "sensor {sensor}: alert {rule} \"{signature}\", severity {severity}: {flow}"
                )?;
                match more {
                    0 => Ok(()),
                    more => write!(f, ", and {more} more alerts"),
                }
            }
            Event::Requested { edge, what, user } => match edge {
                Some(edge) => write!(f, "edge {edge}: {what}, requested by {user}"),
                None => write!(f, "{what}, requested by {user}"),
            },
            Event::Serving { at } => write!(f, "the API serves at {at}"),
            Event::Renewed { file } => write!(
                f,
                "other hosts get the renewed certificate {}",
                file.display()
            ),
            Event::Store { edge, text, .. } => write!(f, "edge {edge}: {text}"),
            Event::Warning { text } => f.write_str(text),
        }
    }
}

fn of_edge(f: &mut fmt::Formatter<'_>, edge: Option<&str>) -> fmt::Result {
    edge.map_or(Ok(()), |edge| write!(f, "edge {edge}: "))
}
