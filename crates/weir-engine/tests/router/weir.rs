//! weir's router on the devices of a bed, in each of its forms.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use weir_engine::EngineKind;
use weir_engine::edge;
use weir_engine::edge::replay::{self, GraphOptions, Outcome};
use weir_functions::kind::{self, EdgePort, Files, Request};
use weir_functions::plan::ChecksumMode;
use weir_graph::{EdgePlan, Instance, Link, Mode, Model, PortPlan, Source, Target};
use weir_packet::Verdict;

use super::bed::Bed;
use super::packets::Packet;
use super::world::{PORTS, World, device, port_number};

/// How the router is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) own_table: bool,
    /// It answers with errors by itself.
    pub(crate) own_errors: bool,
}

/// All that are compared with the kernel.
pub(crate) const FORMS: [Form; 4] = [
    Form {
        own_table: false,
        own_errors: false,
    },
    Form {
        own_table: false,
        own_errors: true,
    },
    Form {
        own_table: true,
        own_errors: false,
    },
    Form {
        own_table: true,
        own_errors: true,
    },
];

impl Form {
    pub(crate) fn name(self) -> &'static str {
        match (self.own_table, self.own_errors) {
            (false, false) => "kernel's table, the stack's errors",
            (false, true) => "kernel's table, own errors",
            (true, false) => "own table, the stack's errors",
            (true, true) => "own table, own errors",
        }
    }

    /// As configuration writes it.
    fn keys(self, world: &World) -> String {
        let errors = if self.own_errors { "own" } else { "stack" };
        let table = if self.own_table { "own" } else { "kernel" };
        let mut keys = format!("table = \"{table}\"\nerrors = \"{errors}\"\n");
        if self.own_errors {
            keys += "errors_per_second = 1000000\n";
        }
        if self.own_table {
            let lines: Vec<String> = world
                .routes
                .iter()
                .map(|r| format!("{:?}", r.line()))
                .collect();
            keys += &format!("routes = [{}]\n", lines.join(", "));
        }
        for (n, port) in world.ports.iter().enumerate() {
            keys += &format!(
                "[[interface]]\nport = \"{}\"\naddress = [\"{}/24\", \"{}/64\"]\n",
                device(n),
                port.v4,
                port.v6
            );
        }
        keys
    }

    /// The edge: packets of all ports go to the router, and what it leaves to the stack.
    pub(crate) fn plan(self, name: &str, world: &World) -> EdgePlan {
        let ports: Vec<EdgePort> = (0..PORTS)
            .map(|n| EdgePort {
                number: port_number(n),
                name: device(n),
                device: device(n),
            })
            .collect();
        let keys = self.keys(world);
        let request = Request {
            name: "it",
            keys: &keys.parse().expect("TOML"),
            files: &NoFiles,
            ports: &ports,
            transmits: false,
        };
        let planned = kind::plan("router", &request);
        let planned = planned.unwrap_or_else(|e| panic!("{e}\n{keys}"));
        let model = Model {
            edge: name.to_owned(),
            ports: ports
                .iter()
                .map(|port| PortPlan {
                    name: port.name.clone(),
                    device: port.device.clone(),
                    number: port.number,
                    mode: Mode::Native,
                    checksums: Some(ChecksumMode::Complete),
                    metadata: false,
                })
                .collect(),
            instances: vec![Instance::new("it", "router", planned)],
            links: (0..PORTS)
                .map(|n| Link {
                    from: Source::Port(port_number(n)),
                    to: Target::Instance(0),
                    guard: None,
                })
                .collect(),
            ..Model::default()
        };
        model.plan().expect("a plan")
    }
}

/// An edge that is taken down with the value.
pub(crate) struct Running<'a> {
    bed: &'a Bed,
    name: String,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.bed.router.run(|| edge::down(&self.name));
    }
}

impl Running<'_> {
    pub(crate) fn apply<'a>(bed: &'a Bed, world: &World, form: Form) -> Running<'a> {
        let name = format!("agrees-{}", bed.router.name());
        let plan = form.plan(&name, world);
        let running = Running { bed, name };
        let applied = bed.router.run(|| edge::apply(&plan, ""));
        applied.expect("namespace").expect("applied");
        running
    }

    /// Adds the verdicts of the router to what was seen, so that one that leaves all to the stack is noticed.
    pub(crate) fn count(&self, seen: &mut BTreeMap<String, usize>) {
        let status = self.bed.router.run(|| edge::status(&self.name));
        let status = status.expect("namespace").expect("runs");
        let it = &status.instances[0];
        // By `enum xdp_action`.
        for (verdict, n) in [("pass", 2), ("sent back", 3), ("sent", 4)] {
            *seen.entry(format!("weir: {verdict}")).or_default() += it.ledger.verdict[n] as usize;
        }
        for (reason, n) in it.reasons() {
            *seen.entry(format!("weir: {reason}")).or_default() += n as usize;
        }
    }
}

/// What an engine makes of packets, by packet: where it goes, and its bytes if it goes anywhere.
pub(crate) fn replay(
    world: &World,
    form: Form,
    kind: EngineKind,
    packets: &[Packet],
) -> Vec<(Outcome, Vec<u8>)> {
    let graph = form.plan("replayed", world);
    let options = GraphOptions {
        seed: world.seed,
        ..GraphOptions::default()
    };
    let mut engine = replay::open(kind, &graph, &options).expect("an engine");
    engine.set_routes(world.told());
    let mut all = Vec::with_capacity(packets.len());
    for (number, packet) in (0u64..).zip(packets) {
        let packet = weir_engine::Packet {
            frame: &packet.frame,
            now_ns: 1_000_000 * number,
            number,
            port: port_number(packet.port),
            queue: 0,
        };
        let mut out = Vec::new();
        let outcome = engine.packet(&packet, &mut out).expect("judged");
        if outcome.verdict == Verdict::Drop {
            out.clear();
        }
        all.push((outcome, out));
    }
    all
}

struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}
