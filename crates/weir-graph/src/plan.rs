//! Configuration -> [`Model`] -> [`EdgePlan`]: kinds turn their keys into instances, ports get numbers, links get ends.
//!
//! Deterministic: the same configuration, files and numbers of ports give the same plan on every machine. All errors of a configuration are
//! found in one go, as far as one does not hide another.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use weir_functions::balancer::Balancer;
use weir_functions::filter::Filter;
use weir_functions::kind::{self, EdgePort, Files, FunctionError, Judge, Planned, Request};
use weir_functions::middlebox;
use weir_functions::router::interface::{self, Interface};
use weir_policy::model::Policy;
use weir_policy::{Diagnostics, Report};

use crate::config::{self, Config, Map};
use crate::edge::{EdgePlan, HookPlan, Instance, PortPlan};
use crate::model::Model;
use crate::parts::names_of;
use crate::planning::Planning;

/// Numbers of ports that run, by the names of their interfaces.
pub type Numbers = BTreeMap<String, u32>;

/// Files below a folder; absolute paths are what they are.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Relative paths start at `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Folder {
        Folder(folder.into())
    }

    /// Relative paths start at the folder of `configuration`.
    pub fn of(configuration: &Path) -> Folder {
        Folder::new(configuration.parent().unwrap_or(Path::new("")))
    }
}

impl Files for Folder {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(self.0.join(path))
    }

    fn modified(&self, path: &Path) -> Option<u64> {
        let changed = std::fs::metadata(self.0.join(path)).and_then(|m| m.modified());
        let since = changed.ok()?.duration_since(std::time::UNIX_EPOCH);
        since.ok().map(|since| since.as_secs())
    }
}

/// Plans an edge. Ports on interfaces in `numbers` have those numbers, so that a change of the configuration does not renumber what runs;
/// others get the smallest free ones, in the order of the configuration. Also what is allowed and probably not meant.
///
/// # Errors
/// All that keeps the configuration from being carried out, with places in it or in the files it names.
pub fn plan(
    config: &Config,
    files: &dyn Files,
    numbers: &Numbers,
) -> Result<(EdgePlan, Diagnostics), Diagnostics> {
    let mut planning = Planning {
        config,
        files,
        report: Report::default(),
        texts: Vec::new(),
    };
    let plan = planning.run(numbers);
    let Planning { report, texts, .. } = planning;
    let failed = report.has_errors();
    let (errors, warnings) = config.source.finish(report, &texts);
    match plan {
        Some(plan) if !failed => Ok((plan, warnings)),
        _ => Err(errors),
    }
}

/// Who explains the drops of a configuration's functions, by name; functions whose reasons say all are not there. `ports` are those of its plan.
pub fn judges(
    config: &Config,
    files: &dyn Files,
    ports: &[PortPlan],
) -> BTreeMap<String, Box<dyn Judge>> {
    let ports: Vec<EdgePort> = ports
        .iter()
        .map(|port| EdgePort {
            number: port.number,
            name: port.name.clone(),
            device: port.device.clone(),
        })
        .collect();
    let transmitted = config.transmitted();
    let functions = config.functions.iter().filter_map(|function| {
        let request = Request {
            name: &function.name.value,
            keys: &function.keys,
            files,
            ports: &ports,
            transmits: transmitted.contains(function.name.value.as_str()),
        };
        // What was planned can be read.
        let judge = kind::judge(&function.kind.value, &request).ok()??;
        Some((function.name.value.clone(), judge))
    });
    functions.collect()
}

/// The filters of a configuration that was planned, by name; why one cannot be read any more.
pub fn filters(
    config: &Config,
    files: &dyn Files,
) -> BTreeMap<String, Result<Filter, FunctionError>> {
    let all = config.functions.iter();
    let filters = all.filter(|function| function.kind.value == "filter");
    let read = filters.map(|function| {
        let request = Request {
            name: &function.name.value,
            keys: &function.keys,
            files,
            ports: &[],
            transmits: false,
        };
        (function.name.value.clone(), Filter::read(&request))
    });
    read.collect()
}

/// The interfaces of a router of a configuration that was planned with these numbers of ports, in the order of their own numbers; `None`: it has no such router.
pub fn interfaces(config: &Config, numbers: &Numbers, function: &str) -> Option<Vec<Interface>> {
    let ports: Vec<EdgePort> = config
        .ports
        .iter()
        .map(|port| EdgePort {
            number: numbers.get(&port.device.value).copied().unwrap_or(0),
            name: port.name.value.clone(),
            device: port.device.value.clone(),
        })
        .collect();
    let mut all = config.functions.iter();
    let function = all.find(|one| one.kind.value == "router" && one.name.value == function)?;
    let request = Request {
        name: &function.name.value,
        keys: &function.keys,
        files: &NoFiles,
        ports: &ports,
        transmits: false,
    };
    interface::read(&request).ok()
}

/// Interfaces name no files.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// The policies of the middleboxes of a configuration that was planned, by name; why one cannot be read any more.
pub fn policies(
    config: &Config,
    files: &dyn Files,
) -> BTreeMap<String, Result<Policy, FunctionError>> {
    let all = config.functions.iter();
    let middleboxes = all.filter(|function| function.kind.value == "middlebox");
    let read = middleboxes.map(|function| {
        let request = Request {
            name: &function.name.value,
            keys: &function.keys,
            files,
            ports: &[],
            transmits: false,
        };
        (
            function.name.value.clone(),
            middlebox::instance::policy(&request),
        )
    });
    read.collect()
}

/// The balancers of a configuration, by name; why one cannot be read. `ports` are those of its plan: name, device and number.
pub fn balancers(
    config: &Config,
    files: &dyn Files,
    ports: &[EdgePort],
) -> BTreeMap<String, Result<Balancer, FunctionError>> {
    let all = config.functions.iter();
    let balancers = all.filter(|function| function.kind.value == "balancer");
    let read = balancers.map(|function| {
        let request = Request {
            name: &function.name.value,
            keys: &function.keys,
            files,
            ports,
            transmits: false,
        };
        (function.name.value.clone(), Balancer::read(&request))
    });
    read.collect()
}

impl Planning<'_> {
    fn run(&mut self, numbers: &Numbers) -> Option<EdgePlan> {
        let config = self.config;
        let ports = self.ports(numbers);
        let transmitted = config.transmitted();
        let functions = config.functions.iter();
        let planned: Vec<Option<Planned>> = functions
            .map(|one| self.function(one, &ports, transmitted.contains(one.name.value.as_str())))
            .collect();
        let hooks = config.hooks.iter();
        let hooks: Vec<Option<HookPlan>> = hooks.map(|hook| self.hook(hook)).collect();
        self.unused_maps();
        let (links, written) = self.links(&planned, &ports);
        let graph = self.graph(&links, &written)?;
        self.unreachable(&graph);
        let walks = self.walks(&graph, &written)?;
        let all = planned.into_iter().collect::<Option<Vec<_>>>();
        let mut model = Model {
            edge: config.edge.clone(),
            ports: config.ports.iter().zip(&ports).map(port).collect(),
            instances: Vec::new(),
            links,
            maps: config.maps.iter().map(Map::shared).collect(),
            hooks: hooks.into_iter().flatten().collect(),
        };
        for port in model.ports_that_cannot_recirculate(&graph, &walks) {
            self.cannot_recirculate(port);
        }
        if self.report.has_errors() {
            return None;
        }
        model.instances = config.functions.iter().zip(all?).map(instance).collect();
        let misplaced = model.misplaced(&graph);
        for found in &misplaced {
            self.misplaced(found, &ports, &written);
        }
        if !misplaced.is_empty() {
            return None;
        }
        match model.wired(&graph, &walks) {
            Ok(plan) => {
                self.half_seen(&plan);
                Some(plan)
            }
            Err(error) => {
                self.refused_as_a_whole(&error);
                None
            }
        }
    }

    fn ports(&self, numbers: &Numbers) -> Vec<EdgePort> {
        let ports = &self.config.ports;
        let kept = |device: &str| numbers.get(device).copied();
        let mut used: BTreeSet<u32> = ports
            .iter()
            .filter_map(|port| kept(&port.device.value))
            .collect();
        let mut numbered = Vec::with_capacity(ports.len());
        for port in ports {
            let number = kept(&port.device.value).unwrap_or_else(|| {
                let free = (1..).find(|n| !used.contains(n)).unwrap_or(u32::MAX);
                used.insert(free);
                free
            });
            numbered.push(EdgePort {
                number,
                name: port.name.value.clone(),
                device: port.device.value.clone(),
            });
        }
        numbered
    }
}

fn port((port, numbered): (&config::Port, &EdgePort)) -> PortPlan {
    PortPlan {
        number: numbered.number,
        name: numbered.name.clone(),
        device: numbered.device.clone(),
        mode: port.mode,
        checksums: port.checksums,
        metadata: port.metadata,
    }
}

fn instance((function, planned): (&config::Function, Planned)) -> Instance {
    Instance {
        name: function.name.value.clone(),
        kind: function.kind.value.clone(),
        fresh: function.fresh,
        planned,
        shares: names_of(&function.maps),
    }
}
