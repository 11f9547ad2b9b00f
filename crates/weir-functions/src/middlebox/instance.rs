//! `kind = "middlebox"`: a policy as one instance of a graph.
//!
//! Ports go by their names in the configuration and by the names of their interfaces; numbers of interfaces are not known when a graph is
//! planned, so that `in 3` is refused here.

use std::io;
use std::path::{Path, PathBuf};

use weir_packet::Reason;
use weir_policy::model::{Policy, PortName, Rule, Target, Test};
use weir_policy::reference::{Input, explain};
use weir_policy::{Diagnostics, Parsed, SetLoader, Source, describe};

use crate::middlebox::{self, connections, dynamic, translations};
use crate::plan::Port;
use crate::request::{Asks, Files, FunctionError, Judge, Key, Kind, Planned, Request};

const KEYS: &[Key] = &[
    Key::new(
        "policy",
        "this or `rules`",
        "policy file; a relative path starts at the folder of the configuration",
    ),
    Key::new("rules", "this or `policy`", "the policy itself, as a text"),
];

/// The kind's row in `kind`.
pub const KIND: Kind = Kind {
    judge: Some(|request| Ok(Box::new(Judgement::of(request)?))),
    ..Kind::new("middlebox", plan, &[("", KEYS)])
};

/// Plans an instance. Keys: `policy`, a file, or `rules`, the text itself.
///
/// # Errors
/// The policy cannot be read, has mistakes, or is more than the data plane can hold.
pub fn plan(request: &Request<'_>) -> Result<Planned, FunctionError> {
    let (key, _, parsed) = read(request)?;
    by_name_only(key, &parsed.policy)?;
    let (instance, _) = middlebox::plan_for(&parsed.policy, &ports(request), request.transmits)
        .map_err(|error| FunctionError::key(key, error.to_string()))?;
    let mut planned = Planned::new(instance);
    planned.asks = Asks {
        vlan_in_frame: middlebox::names_vlan(&parsed.policy.rules),
        finished_checksums: false,
        secret: remembers(&parsed.policy).then_some("weir_flow_seed"),
        linear_frames: false,
        least_mtu: 0,
        syn_cookies: false,
    };
    planned.tc_only = middlebox::names_meta(&parsed.policy.rules).map(|(at, name)| {
        format!("{at}: `{name}` belongs to the socket buffer, which tc has only")
    });
    let sets = dynamic::of_policy(&parsed.policy)
        .map_err(|error| FunctionError::key(key, error.to_string()))?;
    planned.groups = sets.groups();
    planned.translations = translations::of(&parsed.policy.rules);
    planned.notes = parsed
        .warnings
        .iter()
        .map(|w| {
            let cure = w.help.as_ref().map(|help| format!(": {help}"));
            let cure = cure.unwrap_or_default();
            format!("{}:{}:{}: {}{cure}", w.file, w.line, w.column, w.message)
        })
        .collect();
    Ok(planned)
}

/// The policy of an instance with these keys.
///
/// # Errors
/// As of [`plan`].
pub fn policy(request: &Request<'_>) -> Result<Policy, FunctionError> {
    Ok(read(request)?.2.policy)
}

/// What a policy says about a packet that an instance dropped.
#[derive(Debug)]
pub struct Judgement {
    policy: Policy,
}

impl Judgement {
    /// Of an instance with these keys.
    ///
    /// # Errors
    /// As of [`plan`].
    pub fn of(request: &Request<'_>) -> Result<Judgement, FunctionError> {
        Ok(Judgement {
            policy: policy(request)?,
        })
    }
}

impl Judge for Judgement {
    fn why(&self, input: &Input<'_>, reason: Option<Reason>) -> Vec<String> {
        if reason != Some(Reason::RuleDrop) {
            return Vec::new();
        }
        let Ok(explained) = explain(&self.policy, input) else {
            return Vec::new();
        };
        let rules = self.policy.rules.iter().zip(explained);
        let counts = rules.filter(|(rule, explained)| {
            let drops = |target: &Target| matches!(target, Target::Drop(_));
            explained.matched && rule.targets.iter().any(drops)
        });
        counts
            .map(|(rule, _)| format!("{}: {}", rule.line_text(), describe(rule)))
            .collect()
    }
}

/// Whether packets are remembered in places that a secret chooses.
fn remembers(policy: &Policy) -> bool {
    connections::is_stateful(policy)
        || dynamic::has_sets(policy)
        || policy.rules.iter().any(Rule::counts_apart)
}

/// The policy that the keys name: the key, the name of its text, and what it says.
fn read(request: &Request<'_>) -> Result<(&'static str, String, Parsed), FunctionError> {
    request.only(KEYS)?;
    let (key, source, folder) = match (request.text("policy")?, request.text("rules")?) {
        (Some(path), None) => {
            let bytes = request.file("policy", Path::new(path))?;
            let text = String::from_utf8(bytes).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                FunctionError::key(
                    "policy",
                    format!("`{path}` is not text: byte {at} is not UTF-8"),
                )
            })?;
            let folder = Path::new(path).parent().unwrap_or(Path::new(""));
            ("policy", Source::new(path, text), folder)
        }
        (None, Some(rules)) => ("rules", Source::new("rules", rules), Path::new("")),
        (None, None) => {
            return Err(FunctionError::new("a middlebox needs a policy").advice(
                "add `policy = \"FILE.weir\"`, or `rules = \"...\"` with the rules themselves",
            ));
        }
        (Some(_), Some(_)) => {
            return Err(FunctionError::key(
                "rules",
                "a middlebox has `policy` or `rules`, not both",
            )
            .advice("move these rules into the policy file"));
        }
    };
    let sets = Sets {
        files: request.files,
        folder,
    };
    let parsed = weir_policy::parse(&source, &sets).map_err(|found| mistakes(key, &found))?;
    Ok((key, source.name, parsed))
}

/// Each port under both of its names.
fn ports(request: &Request<'_>) -> Vec<Port> {
    let one = |number, name: &str| Port {
        number,
        name: Some(name.to_owned()),
        index: u32::MAX,
    };
    let both = request.ports.iter().flat_map(|port| {
        let device = (port.device != port.name).then(|| one(port.number, &port.device));
        std::iter::once(one(port.number, &port.name)).chain(device)
    });
    both.collect()
}

fn by_name_only(key: &str, policy: &Policy) -> Result<(), FunctionError> {
    for rule in &policy.rules {
        for one in &rule.matches {
            let Test::Port(names) = &one.test else {
                continue;
            };
            for name in names {
                if let PortName::Index(index) = name {
                    let message = format!("interfaces go by name in a graph, not by index {index}");
                    return Err(FunctionError::key(key, message)
                        .at(PathBuf::from(&*rule.file), rule.line as usize)
                        .advice("write the name of a port"));
                }
            }
        }
    }
    Ok(())
}

fn mistakes(key: &str, found: &Diagnostics) -> FunctionError {
    let errors = found.iter().map(|one| FunctionError {
        advice: one.help.clone(),
        ..FunctionError::key(key, one.message.clone())
            .at(PathBuf::from(&one.file), one.line as usize)
    });
    FunctionError::join(errors.collect()).unwrap_or_default()
}

/// Set files of a policy, relative to its folder.
struct Sets<'a> {
    files: &'a dyn Files,
    folder: &'a Path,
}

impl SetLoader for Sets<'_> {
    fn load(&self, path: &str) -> io::Result<Source> {
        let full = self.folder.join(path);
        let bytes = self.files.read(&full)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("byte {at} is not UTF-8 text"),
            )
        })?;
        Ok(Source::new(full.display().to_string(), text))
    }

    fn groups(&self) -> Vec<String> {
        self.files.groups()
    }
}
