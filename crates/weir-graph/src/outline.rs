//! What of a plan is remembered of what runs: names, numbers, sizes and digests instead of contents.
//!
//! An engine keeps the outline of what it carried out beside it; the next plan is compared with that ([`crate::diff`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_functions::plan::ChecksumMode;

use crate::digest::digest;
use crate::edge::{EdgePlan, Mode, PortPlan, SharedMap, Target};

/// A plan without its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// Name of the edge.
    pub edge: String,
    /// Ports, by number.
    pub ports: Vec<PortOutline>,
    /// Instances, by VID.
    pub instances: Vec<InstanceOutline>,
    /// Shared maps.
    pub maps: Vec<SharedMap>,
    /// Objects on other hooks.
    pub hooks: Vec<HookOutline>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortOutline {
    /// weir's number.
    pub number: u32,
    /// Name in the configuration.
    pub name: String,
    /// Name of the interface.
    pub device: String,
    /// Where on the interface.
    pub mode: Mode,
    /// `complete`, `offloaded`, or absent: by driver.
    pub checksums: Option<String>,
    /// Packets to the stack carry their mark there.
    pub metadata: bool,
    /// Where its packets begin.
    pub entry: String,
    /// Where packets that leave by it begin, if anything sees them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit: Option<String>,
}

/// One instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceOutline {
    /// Name in the configuration; implicit ones have blanks in theirs.
    pub name: String,
    /// Kind.
    pub kind: String,
    /// Name of the object, or the file it was made from.
    pub object: String,
    /// Of its bytes.
    pub digest: String,
    /// Name of the program.
    pub program: String,
    /// Digests of load-time constants.
    pub constants: BTreeMap<String, String>,
    /// Maps with sizes or contents of their own.
    pub maps: BTreeMap<String, MapOutline>,
    /// Maps of the object that are shared.
    pub shares: BTreeMap<String, String>,
    /// Where each output leads.
    pub links: BTreeMap<String, String>,
}

/// A map of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapOutline {
    /// Elements there is room for.
    pub entries: u32,
    /// Bytes of a key.
    pub key: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Elements with contents.
    pub filled: usize,
    /// Of the contents; absent: the map is state.
    pub digest: Option<String>,
}

/// An object on another hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookOutline {
    /// Name in the configuration.
    pub name: String,
    /// File of the object.
    pub file: String,
    /// Of its bytes.
    pub digest: String,
    /// Name of the program.
    pub program: String,
    /// Where it is attached, as configuration writes it.
    pub attach: String,
    /// Maps of the object that are shared.
    pub shares: BTreeMap<String, String>,
}

impl EdgePlan {
    /// The plan without its contents.
    pub fn outline(&self) -> Outline {
        let hook = |hook: &crate::edge::HookPlan| HookOutline {
            name: hook.name.clone(),
            file: hook.file.display().to_string(),
            digest: digest(&hook.object),
            program: hook.program.clone(),
            attach: hook.attach.to_string(),
            shares: hook.shares.clone(),
        };
        Outline {
            edge: self.edge.clone(),
            ports: self
                .ports
                .iter()
                .enumerate()
                .map(|(at, port)| self.port_outline(port, at))
                .collect(),
            instances: (0..self.instances.len())
                .map(|at| self.instance_outline(at))
                .collect(),
            maps: self.maps.clone(),
            hooks: self.hooks.iter().map(hook).collect(),
        }
    }

    fn port_outline(&self, port: &PortPlan, at: usize) -> PortOutline {
        let name = |target: Target| self.target_name(target).to_owned();
        PortOutline {
            number: port.number,
            name: port.name.clone(),
            device: port.device.clone(),
            mode: port.mode,
            checksums: port.checksums.map(|mode| checksums(mode).to_owned()),
            metadata: port.metadata,
            entry: name(self.entries[at]),
            transmit: self.transmits[at].map(name),
        }
    }

    fn instance_outline(&self, at: usize) -> InstanceOutline {
        let instance = &self.instances[at];
        let plan = &instance.planned.instance;
        let constants = plan.constants.iter();
        let maps = plan.maps.iter().map(|map| {
            let filled = map.keys.len() / map.key_size.max(1);
            let contents =
                (filled > 0).then(|| digest(&[map.keys.as_slice(), &map.values].concat()));
            let outline = MapOutline {
                entries: map.max_entries,
                key: map.key_size,
                value: map.value_size,
                filled,
                digest: contents,
            };
            (map.name.to_string(), outline)
        });
        InstanceOutline {
            name: instance.name.clone(),
            kind: instance.kind.clone(),
            object: plan.object.to_string(),
            digest: digest(plan.object.for_graph(false).unwrap_or_default()),
            program: plan.program.to_string(),
            constants: constants
                .map(|(name, value)| (name.to_string(), digest(value)))
                .collect(),
            maps: maps.collect(),
            shares: instance.shares.clone(),
            links: self
                .outs(at)
                .map(|(out, target)| (out.to_owned(), self.target_name(target).to_owned()))
                .collect(),
        }
    }
}

impl InstanceOutline {
    /// Whether both run the same program with the same configuration, wherever their links lead.
    pub fn runs_the_same(&self, other: &InstanceOutline) -> bool {
        let without_links = |one: &InstanceOutline| InstanceOutline {
            links: BTreeMap::new(),
            ..one.clone()
        };
        without_links(self) == without_links(other)
    }

    /// Whether weir inserted it: a guard or a recirculation.
    pub fn is_implicit(&self) -> bool {
        self.name.contains(' ')
    }
}

/// As configuration writes it.
pub(crate) fn checksums(mode: ChecksumMode) -> &'static str {
    match mode {
        ChecksumMode::Complete => "complete",
        ChecksumMode::Offloaded => "offloaded",
    }
}
