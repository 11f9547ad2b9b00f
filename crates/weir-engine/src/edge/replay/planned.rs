//! From the plan of an edge to a graph that is replayed: the same hops as live, guards and recirculations included.
//!
//! What only a live edge has (hooks of other kinds, modes of devices, names of maps in bpffs) is left out.

use weir_functions::plan::{Constant, InstancePlan, ObjectSource};

use super::{Graph, GraphPort, Instance, Target};
use crate::edge::error::EdgeError;
use crate::edge::plan::EdgePlan;
use crate::edge::wiring::{Node, Way, wire};

impl Graph {
    /// The graph of an edge. Ports that do not say how checksums are to be read have complete ones, as captures do.
    ///
    /// # Errors
    /// What keeps the links from becoming hops.
    pub fn of(plan: &EdgePlan) -> Result<Graph, EdgeError> {
        let wiring = wire(plan)?;
        let target = |way: Way| match way {
            Way::Node(node) => Target::Instance(node),
            Way::Port(place) => Target::Port(plan.ports.get(place).map_or(0, |p| p.number)),
            Way::Away => Target::Away,
            Way::Stack => Target::Stack,
            Way::Drop => Target::Drop,
            Way::Tx => Target::Tx,
        };
        let mut instances: Vec<Instance> = wiring
            .nodes
            .iter()
            .map(|node| of_node(plan, node))
            .collect();
        for (node, out, way) in &wiring.hops {
            let Some(instance) = instances.get_mut(*node) else {
                continue;
            };
            if instance.outs.len() <= *out {
                instance.outs.resize(*out + 1, Target::Stack);
            }
            if let Some(to) = instance.outs.get_mut(*out) {
                *to = target(*way);
            }
        }
        let ports = plan.ports.iter().zip(&wiring.entries);
        Ok(Graph {
            ports: ports
                .map(|(port, first)| GraphPort {
                    number: port.number,
                    name: port.name.clone(),
                    device: port.device.clone(),
                    checksums: port.checksums.unwrap_or_default(),
                    first: target(*first),
                })
                .collect(),
            instances,
            linear_frames: plan
                .instances
                .iter()
                .any(|instance| instance.planned.asks.linear_frames),
        })
    }
}

fn of_node(plan: &EdgePlan, node: &Node) -> Instance {
    match node {
        Node::Configured(place) => {
            let instance = &plan.instances[*place];
            Instance {
                name: instance.name.clone(),
                plan: instance.planned.instance.clone(),
                shared: instance.maps.iter().cloned().collect(),
                outs: Vec::new(),
                secret: instance.planned.asks.secret.map(str::to_owned),
            }
        }
        Node::Guard {
            name,
            shift,
            mask,
            limit,
        } => {
            let word = |symbol: &'static str, value: &u32| -> Constant {
                (symbol.into(), value.to_ne_bytes().to_vec())
            };
            let constants = vec![
                word("weir_guard_shift", shift),
                word("weir_guard_mask", mask),
                word("weir_guard_limit", limit),
            ];
            implicit("guard", name, constants)
        }
        Node::Recirculate { name } => implicit("recirculate", name, Vec::new()),
    }
}

fn implicit(object: &'static str, name: &str, constants: Vec<Constant>) -> Instance {
    Instance {
        name: name.to_owned(),
        plan: InstancePlan {
            object: ObjectSource::Embedded(object),
            program: object.into(),
            constants,
            maps: Vec::new(),
        },
        shared: Default::default(),
        outs: Vec::new(),
        secret: None,
    }
}
