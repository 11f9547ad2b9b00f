//! From the plan of an edge to a graph that is replayed: the same targets as live, guards and recirculations included.
//!
//! What only a live edge has (hooks of other kinds, modes of devices, names of maps in bpffs) is left out.

use weir_graph::EdgePlan;

use super::{Graph, GraphPort, Instance};

impl From<&EdgePlan> for Graph {
    /// Ports that do not say how checksums are to be read have complete ones, as captures do.
    fn from(plan: &EdgePlan) -> Graph {
        let port = |(port, entry): (&weir_graph::PortPlan, &weir_graph::Target)| GraphPort {
            number: port.number,
            name: port.name.clone(),
            device: port.device.clone(),
            checksums: port.checksums.unwrap_or_default(),
            first: *entry,
        };
        let instance = |(instance, targets): (&weir_graph::Instance, &Vec<_>)| Instance {
            name: instance.name.clone(),
            plan: instance.planned.instance.clone(),
            shared: instance.shares.clone(),
            outs: targets.clone(),
            secret: instance.planned.asks.secret.map(str::to_owned),
        };
        let asks = |one: &weir_graph::Instance| one.planned.asks.linear_frames;
        Graph {
            ports: plan.ports.iter().zip(&plan.entries).map(port).collect(),
            instances: plan
                .instances
                .iter()
                .zip(&plan.targets)
                .map(instance)
                .collect(),
            linear_frames: plan.instances.iter().any(asks),
        }
    }
}
