//! Configuration -> [`EdgePlan`]: kinds turn their keys into instances, links get targets, loops get guards, long paths get recirculations.
//!
//! Deterministic: the same configuration, files and numbers of ports give the same plan on every machine. All errors of a configuration are
//! found in one go, as far as one does not hide another.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use weir_bpf::abi::panel;
use weir_functions::balancer::Balancer;
use weir_functions::filter::Filter;
use weir_functions::kind::{self, EdgePort, Files, FunctionError, Judge, Planned, Request};
use weir_functions::router::interface::{self, Interface};
use weir_policy::ast::Span;
use weir_policy::{Diagnostics, Report};

use crate::config::Config;
use crate::edge::{EdgePlan, From, HookPlan, Link, Mode, PortPlan, Target};
use crate::instances::{instances, vid};
use crate::parts::shared_map;
use crate::paths::{Graph, MAX_CALLS, Walks};
use crate::wiring::{End, Wired};

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
    let mut named = vec![(config.source.name.as_str(), config.source.text.as_str())];
    named.extend(
        texts
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str())),
    );
    let failed = report.has_errors();
    let (errors, warnings) = report.finish(&named);
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
    let functions = config.functions.iter().filter_map(|function| {
        let request = Request {
            name: &function.name.value,
            keys: &function.keys,
            files,
            ports: &ports,
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
        };
        (function.name.value.clone(), Balancer::read(&request))
    });
    read.collect()
}

pub(crate) struct Planning<'a> {
    pub(crate) config: &'a Config,
    pub(crate) files: &'a dyn Files,
    pub(crate) report: Report,
    /// Files that mistakes were found in: name and text. The first is file number 1 of the report.
    pub(crate) texts: Vec<(String, String)>,
}

impl Planning<'_> {
    fn run(&mut self, numbers: &Numbers) -> Option<EdgePlan> {
        let config = self.config;
        let ports = self.ports(numbers);
        let functions = config.functions.iter();
        let planned: Vec<Option<Planned>> =
            functions.map(|one| self.function(one, &ports)).collect();
        let hooks = config.hooks.iter();
        let hooks: Vec<Option<HookPlan>> = hooks.map(|hook| self.hook(hook)).collect();
        self.unused_maps();
        let wired = self.wire(&planned, &ports);
        let entries = self.entries(&ports);
        let graph = self.graph(&wired, &entries)?;
        self.unreachable(&graph);
        let walks = self.walks(&graph, &wired)?;
        self.generic_ports(&graph, &walks, &entries);
        if self.report.has_errors() {
            return None;
        }
        let planned = planned.into_iter().collect::<Option<Vec<_>>>()?;
        let mut plan = EdgePlan {
            edge: config.edge.clone(),
            ports: Vec::new(),
            instances: instances(&config.functions, planned, &wired, &walks, &graph),
            links: Vec::new(),
            maps: config.maps.iter().map(shared_map).collect(),
            hooks: hooks.into_iter().collect::<Option<_>>()?,
            longest: walks.longest.len() as u32,
            recirculations: walks.recirculations,
            notes: Vec::new(),
        };
        if plan.instances.len() >= panel::VIDS {
            let text = format!(
                "the graph has {} instances, guards and recirculations included; an edge holds {}",
                plan.instances.len(),
                panel::VIDS - 1
            );
            self.report.error(0, Span::default(), text);
            return None;
        }
        for (port, numbered) in config.ports.iter().zip(&ports) {
            let entry = entries.get(numbered.name.as_str()).copied();
            let entry = entry.map_or(Target::Stack, target);
            if entries.contains_key(numbered.name.as_str()) {
                plan.links.push(Link {
                    from: From::Port(numbered.number),
                    to: entry,
                    guard: None,
                });
            }
            plan.ports.push(PortPlan {
                number: numbered.number,
                name: numbered.name.clone(),
                device: numbered.device.clone(),
                mode: port.mode,
                checksums: port.checksums,
                metadata: port.metadata,
                entry,
            });
        }
        plan.ports.sort_by_key(|port| port.number);
        plan.links.extend(wired.iter().map(link));
        plan.notes = notes(&plan, &walks, &graph);
        Some(plan)
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

    /// Generic XDP turns a redirected frame into a socket buffer, and what lies in front of it is lost.
    fn generic_ports(&mut self, graph: &Graph, walks: &Walks, entries: &BTreeMap<&str, End>) {
        for port in self
            .config
            .ports
            .iter()
            .filter(|port| port.mode == Mode::Generic)
        {
            let Some(End::Function(first)) = entries.get(port.name.value.as_str()) else {
                continue;
            };
            let met = graph.reachable([*first]);
            if walks.cut.iter().any(|&at| met[graph.steps[at].from]) {
                let text = format!(
                    "packets of the port `{}` could pass more than {MAX_CALLS} functions, and generic XDP cannot recirculate them",
                    port.name.value
                );
                self.report
                    .error(0, port.name.span, text)
                    .help("use `mode = \"native\"`, or shorten the path; each pass of a guarded link counts");
            }
        }
    }
}

fn target(end: End) -> Target {
    match end {
        End::Function(at) => vid(at),
        End::Out(target) => target,
    }
}

fn link(one: &Wired<'_>) -> Link {
    Link {
        from: From::Out {
            vid: one.from as u32 + 1,
            out: one.out,
        },
        to: target(one.end),
        guard: one.link.guard.as_ref().map(|guard| guard.value),
    }
}

fn notes(plan: &EdgePlan, walks: &Walks, graph: &Graph) -> Vec<String> {
    let mut notes = Vec::new();
    for instance in &plan.instances {
        let unshared = instance.planned.unshared.iter();
        let unshared = unshared.filter(|(map, _)| !instance.shares.contains_key(map));
        let of = instance.planned.notes.iter();
        let of = of.chain(unshared.map(|(_, note)| note));
        notes.extend(of.map(|note| format!("{}: {note}", instance.name)));
    }
    if !walks.cut.is_empty() {
        let names: Vec<&str> = walks
            .longest
            .iter()
            .map(|&at| plan.instances[at].name.as_str())
            .collect();
        let places: BTreeSet<&str> = walks
            .cut
            .iter()
            .map(|&at| plan.instances[graph.steps[at].to].name.as_str())
            .collect();
        let places: Vec<String> = places.iter().map(|name| format!("`{name}`")).collect();
        notes.push(format!(
            "a packet may pass {} functions ({}), and the kernel calls 33 in a row: packets are sent round through a veth pair in front of {}, \
             at most {} each, which costs about as much as receiving them once more",
            names.len(),
            abridged(&names),
            places.join(", "),
            match walks.recirculations {
                1 => "once".to_owned(),
                many => format!("{many} times"),
            },
        ));
    }
    notes
}

/// A walk, without its middle if it is long.
pub(crate) fn abridged(names: &[&str]) -> String {
    match names {
        [first, second, .., last] if names.len() > 6 => {
            format!("{first} > {second} > ... > {last}")
        }
        _ => names.join(" > "),
    }
}
