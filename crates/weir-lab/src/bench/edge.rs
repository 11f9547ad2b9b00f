//! Edges of weir's as benchmarks stand them up: some ports, a function or a chain of them, one way out, carried out by the edge engine as `weir apply` does it.
//!
//! Invariant: an edge is taken down with its value, and its namespace lives as long as that.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Table;
use weir_engine::edge;
use weir_engine::edge::routers::Router;
use weir_functions::kind::{self, EdgePort, Files, Request};
use weir_functions::plan::ChecksumMode;
use weir_graph::{EdgePlan, Instance, Link, Mode, Model, PortPlan, Source, Target};
use weir_kernel::NetNs;

use crate::LabError;

/// Name of the function.
const TESTED: &str = "tested";

/// A function by its kind, and its keys as configuration writes them.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) kind: &'static str,
    pub(crate) keys: String,
    /// Files that the keys name.
    pub(crate) files: Vec<(PathBuf, Vec<u8>)>,
}

/// Where packets go that the function lets go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End<'a> {
    Stack,
    Drop,
    Tx,
    /// Out of this interface.
    Device(&'a str),
}

/// An edge that runs.
pub(crate) struct Standing {
    name: String,
    ns: Arc<NetNs>,
}

impl Function {
    /// One that does nothing but count.
    pub(crate) fn empty() -> Function {
        Function {
            kind: "empty",
            keys: String::new(),
            files: Vec::new(),
        }
    }

    /// Whether this build has the kind.
    pub(crate) fn is_known(&self) -> bool {
        kind::named(self.kind).is_some()
    }

    fn instance(&self, edge: &str, name: String, ports: &[EdgePort]) -> Result<Instance, LabError> {
        let bad = |why: String| LabError::Policy {
            name: self.kind.to_owned(),
            why,
        };
        let keys: Table = self.keys.parse().map_err(|e| bad(format!("{e}")))?;
        let request = Request {
            name: &name,
            keys: &keys,
            files: &Given {
                files: &self.files,
                edge,
            },
            ports,
            transmits: false,
        };
        let planned = kind::plan(self.kind, &request).map_err(|e| bad(e.to_string()))?;
        Ok(Instance::new(name, self.kind, planned))
    }
}

impl Standing {
    /// Puts a function onto interfaces.
    pub(crate) fn apply(
        ns: &Arc<NetNs>,
        devices: &[&str],
        function: &Function,
        end: End<'_>,
    ) -> Result<Standing, LabError> {
        Standing::apply_chain(ns, devices, std::slice::from_ref(function), end)
    }

    /// The same with functions one behind the other.
    pub(crate) fn apply_chain(
        ns: &Arc<NetNs>,
        devices: &[&str],
        functions: &[Function],
        end: End<'_>,
    ) -> Result<Standing, LabError> {
        Standing::apply_all(ns, devices, &[], functions, end)
    }

    /// Puts functions one behind the other onto interfaces. Those of `beside` are ports, too, which the functions may send packets to and whose
    /// own go to the stack.
    pub(crate) fn apply_all(
        ns: &Arc<NetNs>,
        devices: &[&str],
        beside: &[&str],
        functions: &[Function],
        end: End<'_>,
    ) -> Result<Standing, LabError> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("bench-{}-{n}", std::process::id());
        let plan = plan(&name, devices, beside, functions, end)?;
        let applied = ns.run(|| edge::apply(&plan, "").map(drop))?;
        // What was begun is taken down, too.
        let standing = Standing {
            name,
            ns: Arc::clone(ns),
        };
        applied.map_err(|e| LabError::Engine(e.to_string()))?;
        Ok(standing)
    }

    /// Puts another configuration of its function in the place of the one that runs; what the function knows, stays.
    pub(crate) fn change(
        &self,
        devices: &[&str],
        function: &Function,
        end: End<'_>,
    ) -> Result<(), LabError> {
        let plan = plan(
            &self.name,
            devices,
            &[],
            std::slice::from_ref(function),
            end,
        )?;
        let applied = self.ns.run(|| edge::apply(&plan, "").map(drop))?;
        applied.map_err(|e| LabError::Engine(e.to_string()))
    }

    /// The tables of its router, to be edited while it runs.
    pub(crate) fn router(&self) -> Result<Router, LabError> {
        let opened = self.ns.run(|| Router::open(&self.name, None))?;
        opened.map_err(|e| LabError::Engine(e.to_string()))
    }

    /// Reasons that its function counted, by name.
    pub(crate) fn reasons(&self) -> Result<Vec<(&'static str, u64)>, LabError> {
        let status = self.ns.run(|| edge::status(&self.name))?;
        let status = status.map_err(|e| LabError::Engine(e.to_string()))?;
        let tested = status.instances.into_iter().find(|i| i.name == TESTED);
        Ok(tested.map(|i| i.reasons()).unwrap_or_default())
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // Runs while dropping: what fails here is found by whoever looks at the pins.
        let _ = self.ns.run(|| edge::down(&self.name));
    }
}

fn plan(
    name: &str,
    inside: &[&str],
    beside: &[&str],
    functions: &[Function],
    end: End<'_>,
) -> Result<EdgePlan, LabError> {
    let mut devices = inside.to_vec();
    let to = match end {
        End::Stack => Target::Stack,
        End::Drop => Target::Drop,
        End::Tx => Target::Tx,
        End::Device(behind) => {
            devices.push(behind);
            Target::Device(devices.len() as u32)
        }
    };
    devices.extend(beside);
    let ports: Vec<EdgePort> = (1..)
        .zip(&devices)
        .map(|(number, device)| EdgePort {
            number,
            name: (*device).to_owned(),
            device: (*device).to_owned(),
        })
        .collect();
    let mut instances = Vec::with_capacity(functions.len());
    for (number, function) in functions.iter().enumerate() {
        // The first one is asked for its ledger.
        let called = match number {
            0 => TESTED.to_owned(),
            n => format!("behind{n}"),
        };
        instances.push(function.instance(name, called, &ports)?);
    }
    let port = |port: &EdgePort| PortPlan {
        name: port.name.clone(),
        device: port.device.clone(),
        number: port.number,
        mode: Mode::Native,
        // Generated packets are complete, and the service's sender completes its own.
        checksums: Some(ChecksumMode::Complete),
        metadata: false,
    };
    let link = |from, to| Link {
        from,
        to,
        guard: None,
    };
    let out = |instance| Source::Out { instance, out: 0 };
    let mut links: Vec<Link> = (1..functions.len())
        .map(|next| link(out(next - 1), Target::Instance(next)))
        .collect();
    links.push(link(out(functions.len() - 1), to));
    for (at, port) in ports.iter().enumerate() {
        let to = match at < inside.len() {
            true => Target::Instance(0),
            false => Target::Stack,
        };
        links.push(link(Source::Port(port.number), to));
    }
    let model = Model {
        edge: name.to_owned(),
        ports: ports.iter().map(port).collect(),
        instances,
        links,
        ..Model::default()
    };
    model.plan().map_err(|e| LabError::Engine(e.to_string()))
}

/// Files that were given with the function, and what its instance holds where the edge runs.
struct Given<'a> {
    files: &'a [(PathBuf, Vec<u8>)],
    edge: &'a str,
}

impl Files for Given<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let found = self.files.iter().find(|(name, _)| name == path);
        found
            .map(|(_, bytes)| bytes.clone())
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn kept(&self, instance: &str, map: &str) -> Option<Vec<u8>> {
        edge::held(self.edge, instance, map).ok().flatten()
    }
}
