//! What tests of the balancer share: planning one from text, and graphs of one.

pub(crate) mod model;

use std::io;
use std::path::Path;

use weir_functions::balancer;
use weir_functions::kind::{EdgePort, Files, FunctionError, Planned, Request};
use weir_functions::plan::ChecksumMode;
use weir_graph::{EdgePlan, Instance, Target};

use crate::graph::{plan, port};

/// What an instance that runs holds: map and contents.
pub(crate) type Held<'a> = &'a [(&'a str, Vec<u8>)];

struct Kept<'a>(Held<'a>);

impl Files for Kept<'_> {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn kept(&self, _: &str, map: &str) -> Option<Vec<u8>> {
        let found = self.0.iter().find(|(name, _)| *name == map);
        found.map(|(_, contents)| contents.clone())
    }
}

/// Plans an instance of an edge with ports `wan` (1) and `lan` (2).
pub(crate) fn planned(text: &str, held: Held<'_>) -> Result<Planned, FunctionError> {
    let keys = text.parse().expect("TOML");
    let port = |number, name: &str| EdgePort {
        number,
        name: name.to_owned(),
        device: format!("eth{number}"),
    };
    balancer::plan(&Request {
        name: "lb",
        keys: &keys,
        files: &Kept(held),
        ports: &[port(1, "wan"), port(2, "lan")],
        transmits: false,
    })
}

/// A graph of that instance alone, behind both ports; what it does not balance goes to the stack.
pub(crate) fn graph(planned: &Planned, checksums: ChecksumMode) -> EdgePlan {
    let ports = [1, 2].map(|number| port(number, checksums, Target::Instance(0)));
    let balancer = Instance::new("lb", "balancer", planned.clone());
    plan(ports.into(), vec![(balancer, Target::Stack)])
}

/// The model of the same text.
pub(crate) fn read(text: &str) -> balancer::Balancer {
    let keys = text.parse().expect("TOML");
    let port = |number, name: &str| EdgePort {
        number,
        name: name.to_owned(),
        device: format!("eth{number}"),
    };
    let read = balancer::Balancer::read(&Request {
        name: "lb",
        keys: &keys,
        files: &Kept(&[]),
        ports: &[port(1, "wan"), port(2, "lan")],
        transmits: false,
    });
    read.expect("read")
}
